"""The ladder: what is missing is a gap that says what it needs, and what is left is right."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from probes.kernel import distribution, requirements, sensor
from probes.kernel.procfs import ROUND_S
from probes.kernel.requirements import Host
from probes.kernel.sensor import KernelSensor
from tests.probes.conftest import Worker, child

PAGES = 2000


def lacking(tmp_path: Path, what: str) -> Host:
    """This host without one of the things that eBPF needs."""
    nowhere = tmp_path / "nowhere"
    if what == "bcc":
        return Host(packages=[nowhere])
    if what == "headers":
        (tmp_path / "sys").mkdir()
        return Host(modules=nowhere, sys=tmp_path / "sys")
    if what == "machine":
        return Host(machine="aarch64")
    return Host(release="4.19.0-generic")


@pytest.mark.parametrize(
    ("what", "why", "needs"),
    [
        ("bcc", "BCC is not installed", "python3-bpfcc"),
        ("headers", "no kernel headers", "linux-headers-"),
        ("machine", "no tracepoints", "x86_64"),
        ("kernel", "too old", "Linux 5.8"),
    ],
)
def test_without_one_thing_the_rest_is_told(
    worker: Worker, tmp_path: Path, what: str, why: str, needs: str
) -> None:
    watching = KernelSensor([worker.pid], threads=True, host=lacking(tmp_path, what))
    tid = worker.pid
    worker.do("read", PAGES)
    time.sleep(ROUND_S)
    readings = watching.read()
    gaps = [gap for gap in watching.gaps() if why in gap.why]
    watching.close()
    assert needs in gaps[0].needs
    assert gaps[0].what == "hitmap.page_faults, hitmap.tlb_flushes"
    assert not [one for one in readings if one.metric.startswith("hitmap.")], "unsupported is no reading"
    minor = {
        one.tid: one for one in readings if dict(one.attributes).get("system.paging.fault.type") == "minor"
    }
    assert minor[None].source == "procfs"
    assert minor[tid].source in ("perf", "procfs")
    for one in minor.values():
        assert PAGES <= one.value <= PAGES + 200


def test_a_later_threads_faults_come_from_proc_whole(worker: Worker, tmp_path: Path) -> None:
    watching = KernelSensor([worker.pid], threads=True, host=lacking(tmp_path, "bcc"))
    worker.do("idle", 3)
    readings = watching.read()
    watching.close()
    sources = {one.tid: one.source for one in readings if one.metric == "process.paging.faults"}
    assert len([tid for tid in sources if tid not in (None, worker.pid)]) == 3
    assert {source for tid, source in sources.items() if tid not in (None, worker.pid)} == {"procfs"}


@pytest.mark.usefixtures("ebpf")
def test_without_tracefs_only_waits_for_locks_are_missing(worker: Worker, tmp_path: Path) -> None:
    possible = tmp_path / "devices" / "system" / "cpu" / "possible"
    possible.parent.mkdir(parents=True)
    shutil.copy("/sys/devices/system/cpu/possible", possible)
    watching = KernelSensor([worker.pid], futex=True, off_cpu=True, host=Host(sys=tmp_path))
    readings = watching.read()
    gaps = watching.gaps()
    watching.close()
    assert [gap.what for gap in gaps] == ["hitmap.futex_waits, hitmap.futex_wait_time"]
    assert all("mount -t tracefs" in gap.needs for gap in gaps)
    metrics = {one.metric for one in readings}
    assert {"hitmap.page_faults", "hitmap.off_cpu_time"} <= metrics
    assert "hitmap.futex_waits" not in metrics


def test_an_unprivileged_user_gets_proc_and_the_reason(root: None) -> None:
    said = json.loads(
        child(
            f"""
import json, mmap
from probes.kernel.sensor import KernelSensor
watching = KernelSensor([os.getpid(), 1], threads=True)
memory = mmap.mmap(-1, {PAGES} * 4096, flags=34); memory.madvise(15); memory[::4096]
import time; time.sleep({ROUND_S})
readings = watching.read()
print(json.dumps([[list(one) for one in readings], [list(gap) for gap in watching.gaps()], os.getpid()]))
""",
            unprivileged=True,
        )
    )
    readings, gaps, pid = said
    assert {one[2] for one in readings} == {"procfs"}
    minor = [
        one[1] for one in readings if one[3] == pid and one[5] == [["system.paging.fault.type", "minor"]]
    ]
    assert len(minor) == 2, "of the process and of its one thread"
    assert all(PAGES <= value <= PAGES + 500 for value in minor)
    needs = {gap[0]: gap[2] for gap in gaps}
    assert "CAP_BPF and CAP_PERFMON" in needs["hitmap.page_faults, hitmap.tlb_flushes"]
    assert any("perf_event_paranoid" in one for one in needs.values())


@pytest.mark.usefixtures("ebpf", "root")
def test_two_capabilities_are_enough() -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv, of util-linux")
    only = "-all,+bpf,+perfmon"
    said = child(
        f"""
import mmap
from probes.kernel.sensor import KernelSensor
watching = KernelSensor([os.getpid()], futex=True)
memory = mmap.mmap(-1, {PAGES} * 4096, flags=34); memory.madvise(15); memory[::4096]
found = [one.value for one in watching.read() if one.metric == 'hitmap.page_faults']
held = [line for line in open('/proc/self/status') if line.startswith('CapEff')]
print(found[0], held[0].split()[1], [gap.needs for gap in watching.gaps()])
""",
        prefix=[
            setpriv,
            "--securebits=+noroot",
            f"--inh-caps={only}",
            f"--ambient-caps={only}",
            f"--bounding-set={only}",
        ],
    )
    faults, held, needs = said.split(maxsplit=2)
    assert int(held, 16) == 1 << 38 | 1 << 39
    assert PAGES <= int(faults) <= PAGES + 100
    assert needs.strip() == "[]", "tracefs is root's, and this is root without its privileges"


@pytest.mark.parametrize("left", [0, 1, 3, 6, 8, 12])
def test_few_descriptors_are_a_gap_and_never_an_error(worker: Worker, left: int) -> None:
    worker.do("idle", 20)
    said = json.loads(
        child(
            f"""
import json
import probes.kernel.sensor as sensor
sensor.events.raise_descriptor_limit = lambda: 0  # the limit stays where this test puts it
held = [os.open('/dev/null', os.O_RDONLY) for _ in range({left})]
try:
    while True: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError: pass
for fd in held[len(held) - {left}:]: os.close(fd)
watching = sensor.KernelSensor([{worker.pid}], threads=True)
readings = watching.read()
gaps = [list(gap) for gap in watching.gaps()]
watching.close()
for fd in held[: len(held) - {left}]: os.close(fd)
print(json.dumps([[one.source for one in readings], gaps]))
""",
            open_files=64,
        )
    )
    readings, gaps = said
    assert gaps or "ebpf" in readings
    assert not left or "procfs" in readings
    assert left > 3 or any("open files" in gap[2] for gap in gaps)
    assert all(gap[1] for gap in gaps)


def test_descriptors_that_run_out_later(worker: Worker) -> None:
    said = child(
        f"""
from probes.kernel.sensor import KernelSensor
watching = KernelSensor([{worker.pid}])
first = watching.read()
held = []
try:
    while True: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError: pass
second = watching.read()
why = [gap.why for gap in watching.gaps()]
for fd in held: os.close(fd)
import time; time.sleep({ROUND_S})  # context switches are told at each look at all threads
third = watching.read()
print(len(first), len(second), len(third), [gap for gap in watching.gaps() if 'open files' in gap.why])
assert any('Too many open files' in one for one in why), why
""",
        open_files=64,
    )
    first, second, third, gaps = said.split(maxsplit=3)
    assert int(first) == int(third) > 0
    assert int(second) == int(first), "what was known stays"
    assert gaps.strip() == "[]"


def test_a_tracefs_that_may_not_be_read_is_not_called_unmounted(root: None, tmp_path: Path) -> None:
    said = child(
        "from probes.kernel.requirements import Host, tracefs\nprint(tracefs(Host()))", unprivileged=True
    )
    if "None" in said:
        pytest.skip("tracefs is open to everyone here")
    assert "may not read" in said or "not mounted" in said
    assert "mount -t tracefs" in str(requirements.tracefs(Host(sys=tmp_path)))


def test_who_is_not_there_is_a_gap(worker: Worker) -> None:
    worker.end()
    watching = KernelSensor([worker.pid])
    assert watching.read() == []
    assert [gap.what for gap in watching.gaps() if gap.what.startswith("process")] == [
        f"process {worker.pid}"
    ]
    watching.watch([])
    assert not [gap for gap in watching.gaps() if gap.what.startswith("process")]
    watching.close()


def test_ten_thousand_threads_are_read_in_turns(worker: Worker) -> None:
    worker.do("idle", 10_000)
    if int(worker.do("tids")) < 10_001:
        pytest.skip(
            "this host does not let a process have 10,000 threads: raise ulimit -u and kernel.threads-max"
        )
    watching = KernelSensor([worker.pid], threads=True)
    worker.do("read", PAGES)
    readings = watching.read()
    waiting = [gap for gap in watching.gaps() if "turn" in gap.why]
    watching.close()
    counts = {one.metric: one.value for one in readings if one.tid is None}
    assert counts["process.thread.count"] == 10_001
    assert waiting
    assert int(waiting[0].why.split()[0]) == 10_001 - 2 * sensor.THREADS_A_READ, (
        "looked at when it began, and now"
    )


def test_a_container_is_told_to_share_the_hosts_processes(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532301]")
    (tmp_path / "self" / "status").write_text("Name:\tx\nCapEff:\t000000c000000000\n")
    missing = requirements.missing(Host(proc=tmp_path))
    assert "hostPID" in missing[0].needs
    assert requirements.privileged(tmp_path), "CAP_BPF and CAP_PERFMON are enough"


@pytest.mark.parametrize(
    ("bits", "enough"), [(1 << 21, True), (1 << 39, False), (1 << 38, False), (0, False)]
)
def test_which_capabilities_are_enough(tmp_path: Path, bits: int, enough: bool) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(f"CapEff:\t{bits:016x}\n")
    assert requirements.privileged(tmp_path) is enough


def test_another_bcc_is_refused(tmp_path: Path) -> None:
    """PyPI's `bcc` is a package of that name without BPF in it."""
    package = tmp_path / "bcc"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert distribution.folder([tmp_path]) is None
    (package / "libbcc.py").write_text("")
    (package / "__init__.py").write_text("raise OSError('libbcc.so.0: cannot open shared object file')")
    code = (
        "from pathlib import Path; from probes.kernel import distribution\n"
        f"try: distribution.load([Path({str(tmp_path)!r})])\n"
        "except Exception as e: print(type(e).__name__, e)\n"
        f"sys.path.insert(0, {str(tmp_path)!r}); open({str(package / '__init__.py')!r}, 'w').close()\n"
        "import bcc\n"
        "try: distribution.load(distribution.FOLDERS[:1])\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    first, second = child(code).splitlines()
    assert "libbcc.so.0" in first
    assert "python3-bpfcc" in first
    assert second.startswith("UserError")


def test_a_compiler_that_dies_is_a_gap(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if requirements.missing(Host()):
        pytest.skip("eBPF does not work here")
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'LLVM ERROR: out of memory' >&2\nkill -ABRT $$\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    watching = KernelSensor([worker.pid])
    gaps = watching.gaps()
    assert {one.source for one in watching.read()} == {"procfs"}
    assert "LLVM ERROR" in gaps[0].why
