"""`hitmap probe` as an operator runs it: real processes, a stock receiver, signals, pipes, no root."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachemodel.observed import METRICS
from hitmap.probing import grouped
from probes.kernel import requirements
from probes.kernel.requirements import Host
from probes.reading import Gap
from tests.probes.conftest import NOBODY, ROOT, Worker
from tests.probes.daemon.receivers import Receiver, eventually

PROBE = (sys.executable, "-m", "hitmap", "probe")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts a probe; its output is told by `ended`."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                [*PROBE, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, **environment},
            )
        )
        return running[-1]

    yield start
    for one in running:
        if one.poll() is None:
            one.kill()
        one.communicate()


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.end()


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    one = Receiver()
    with one.listening() as port:
        yield one, f"127.0.0.1:{port}"


def ended(probe: subprocess.Popen[str], timeout_s: float = 60) -> tuple[int, str, str]:
    """(exit code, standard output, standard error); there is no traceback in it."""
    out, error = probe.communicate(timeout=timeout_s)
    assert "Traceback" not in error, error
    assert "Exception ignored" not in error, error
    return probe.returncode, out, error


def done(*arguments: str, **environment: str) -> tuple[int, str, str]:
    env = {**os.environ, **environment}
    probe = subprocess.Popen(
        [*PROBE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=env,
    )
    return ended(probe)


def points(receiver: Receiver) -> list[tuple[str, dict[str, str], Any]]:
    """(metric, resource, point) of all that was taken."""
    return [
        (metric.name, {one.key: one.value.string_value for one in block.resource.attributes}, point)
        for request in list(receiver.taken)
        for block in request.resource_metrics
        for metric in block.scope_metrics[0].metrics
        for point in (*metric.sum.data_points, *metric.gauge.data_points)
    ]


def minor(receiver: Receiver, pid: int | None = None) -> float:
    """Minor faults that were told, of all processes or one."""
    return sum(
        point.as_double
        for name, resource, point in points(receiver)
        if name == "process.paging.faults"
        and any(one.value.string_value == "minor" for one in point.attributes)
        and pid in (None, int(resource["process.pid"]))
    )


def test_faults_of_a_process_arrive_and_a_signal_ends_it_flushed(
    started: Start, worker: Worker, receiver: tuple[Receiver, str]
) -> None:
    taken, address = receiver
    for number in (signal.SIGTERM, signal.SIGINT):
        taken.taken.clear()
        probe = started("--pid", str(worker.pid), "--kernel", "--to", address)
        eventually(lambda: bool(points(taken)))
        before = minor(taken)
        worker.do("read", 3000)
        probe.send_signal(number)  # at once: what was counted since the last export is told, too
        code, _, error = ended(probe)
        assert code == 0, error
        assert 3000 <= minor(taken) - before <= 3400, error
        assert "points in" in error
        assert "lost" not in error


def test_a_process_that_exits_ends_it_after_its_last_numbers(
    started: Start, worker: Worker, receiver: tuple[Receiver, str]
) -> None:
    taken, address = receiver
    probe = started("--pid", str(worker.pid), "--kernel", "--to", address)
    eventually(lambda: bool(points(taken)))
    worker.do("read", 2000)
    time.sleep(0.5)
    worker.do("read", 1500)
    worker.end()  # before anybody could look: /proc tells it no more, the kernel's own counts do
    code, _, error = ended(probe)
    assert code == 0
    assert f"({worker.pid}): nothing is left to watch" in error
    assert minor(taken) >= 2000
    if not requirements.missing(Host()):
        assert (
            sum(point.as_double for name, _, point in points(taken) if name == "hitmap.page_faults") >= 3500
        )
    ends = [point.time_unix_nano for _, _, point in points(taken)]
    assert max(ends) - min(ends) < 60e9


def test_a_server_is_found_again_on_its_port(started: Start, receiver: tuple[Receiver, str]) -> None:
    taken, address = receiver
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])

    def serve() -> subprocess.Popen[bytes]:
        one = subprocess.Popen(
            [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: socket.socket().connect_ex(("127.0.0.1", int(port))) == 0)
        return one

    first = serve()
    probe = started("--port", port, "--kernel", "--to", address)
    eventually(lambda: bool(points(taken)))
    first.kill()
    first.wait()
    second = serve()
    try:
        eventually(
            lambda: any(told.get("process.pid") == str(second.pid) for _, told, _ in points(taken)), 30
        )
    finally:
        second.kill()
        second.wait()
        probe.terminate()
    code, _, error = ended(probe)
    assert code == 0
    assert f"({first.pid})" in error.partition("exited: ")[2]
    assert f"({second.pid})" in error.partition("watched from now on: ")[2]
    assert {told["server.port"] for _, told, _ in points(taken) if "process.pid" in told} == {port}


def test_without_a_collector_it_goes_on_and_says_so(
    started: Start, worker: Worker, receiver: tuple[Receiver, str]
) -> None:
    with Receiver().listening() as port:
        pass
    probe = started("--pid", str(worker.pid), "--kernel", "--to", f"127.0.0.1:{port}", "--duration", "15")
    worker.do("read", 100)
    time.sleep(4)
    taken = Receiver()
    with taken.listening(port):
        eventually(lambda: bool(points(taken)))
        code, _, error = ended(probe)
    assert code == 0
    assert error.count("collector: ") == 2, error
    assert f"collector: 127.0.0.1:{port} cannot be reached: Connection refused" in error
    assert "collector: points get through again" in error
    starts = [point.start_time_unix_nano for name, _, point in points(taken) if name == "process.cpu.time"]
    ends = [point.time_unix_nano for name, _, point in points(taken) if name == "process.cpu.time"]
    assert max(ends) - min(starts) > 12e9, "also what was counted before the collector was there"


def test_lines_into_a_pipe_that_closes(worker: Worker) -> None:
    """As `hitmap probe --json | head -1`: it ends by itself, and quietly."""
    probe = subprocess.Popen(
        [*PROBE, "--pid", str(worker.pid), "--kernel", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert probe.stdout
    assert probe.stderr
    line = json.loads(probe.stdout.readline())
    assert line["metric"] in {metric.name for metric in METRICS}
    assert line["resource"]["process.pid"] == str(worker.pid)
    probe.stdout.close()
    assert probe.wait(20) == 0
    error = probe.stderr.read()
    assert "Traceback" not in error
    assert "Exception ignored" not in error


def test_a_log_that_nobody_reads_stops_nothing(worker: Worker, receiver: tuple[Receiver, str]) -> None:
    """As `hitmap probe 2>&1 | head -1`."""
    taken, address = receiver
    probe = subprocess.Popen(
        [*PROBE, "--pid", str(worker.pid), "--kernel", "--to", address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert probe.stderr
    assert probe.stderr.readline().startswith(b"hitmap probe: ")
    probe.stderr.close()
    eventually(lambda: bool(points(taken)))
    worker.end()
    assert probe.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "say whom: --pid 4711, --port 8000 or --all"),
        (("--pid", "1", "--all"), 2, "--all watches every process"),
        (("--port", "1"), 1, "nothing listens on port 1 here"),
        (("--pid", str(2**22 + 1)), 1, "there is no process 4194305"),
        (("--pid", "1", "--to", "nowhere"), 1, "nowhere is no address of a collector"),
        (("--pid", "1", "--header", "x"), 2, "a header is NAME=VALUE"),
        (
            ("--all", "--pmu"),
            1,
            "nothing can be watched: hitmap.pmu.*: CPU caches are counted of processes that are named",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    found, out, error = done(*arguments)
    assert (found, out) == (code, ""), error
    assert error.startswith("hitmap: ")
    assert says in error
    assert len(error.splitlines()) == 1


def test_where_no_point_gets_through_it_fails_in_the_end(worker: Worker) -> None:
    with Receiver().listening() as port:
        pass
    where = f"127.0.0.1:{port}"
    code, _, error = done("--pid", str(worker.pid), "--kernel", "--to", where, "--duration", "2")
    assert code == 1
    assert f"no point reached {where}: is a collector there?" in error


def test_its_duration_is_kept(worker: Worker) -> None:
    _, out, _ = done("--pid", str(worker.pid), "--kernel", "--json", "--duration", "0.4", "--hz", "50")
    ends = [json.loads(line)["end_ns"] for line in out.splitlines()]
    assert 0.1e9 < max(ends) - min(ends) < 0.9e9


def test_two_probes_at_once_tell_the_same(
    started: Start, worker: Worker, receiver: tuple[Receiver, str]
) -> None:
    taken, address = receiver
    other = Receiver()
    with other.listening() as port:
        probes = [
            started("--pid", str(worker.pid), "--kernel", "--to", where)
            for where in (address, f"127.0.0.1:{port}")
        ]
        eventually(lambda: bool(points(taken) and points(other)), 30)
        before = minor(taken), minor(other)
        worker.do("read", 5000)
        for probe in probes:
            probe.terminate()
        assert [ended(probe)[0] for probe in probes] == [0, 0]
        told = minor(taken) - before[0], minor(other) - before[1]
    assert all(5000 <= one <= 5400 for one in told), told


def test_thousands_of_threads_at_a_hundred_readings_a_second(worker: Worker) -> None:
    worker.do("idle", 2000)
    arguments = ("--pid", str(worker.pid), "--kernel", "--threads", "--hz", "100", "--duration", "4")
    code, out, error = done(*arguments, "--json")
    assert code == 0, error
    lines = [json.loads(line) for line in out.splitlines()]
    assert {one["value"] for one in lines if one["metric"] == "process.thread.count"} == {2001}
    assert error.count("threads were not looked at this time") <= 1, "a count that changes is no news"


@pytest.mark.parametrize(("most", "codes"), [(10, {1}), (24, {0, 1}), (64, {0})])
def test_with_few_descriptors_it_tells_what_it_can_or_says_that_it_cannot(
    most: int, codes: set[int], worker: Worker, receiver: tuple[Receiver, str]
) -> None:
    worker.do("idle", 200)
    limited = ("sh", "-c", f'ulimit -n {most}; exec "$@"', "sh", *PROBE)
    whom = ("--pid", str(worker.pid), "--kernel", "--pmu", "--threads", "--duration", "2")
    probe = subprocess.Popen(
        [*limited, *whom, "--to", receiver[1]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    code, _, error = ended(probe)
    assert code in codes, error
    assert code == 0 or error.startswith("hitmap: "), error


def test_of_a_whole_host_thousands_of_short_lived_processes(
    started: Start, receiver: tuple[Receiver, str]
) -> None:
    taken, address = receiver
    probe = started("--all", "--kernel", "--to", address)
    eventually(lambda: bool(points(taken)), 30)
    before = status(probe.pid)
    began = time.monotonic()
    for at in range(5000):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        if at == 500:  # all that it ever allocates at once is there by now
            before = status(probe.pid)
        assert time.monotonic() - began < 100, "this machine is too slow for this test"
    after = status(probe.pid)
    probe.terminate()
    code, _, error = ended(probe)
    assert code == 0, error
    assert after["rss"] - before["rss"] < 40_000, (before, after)
    assert after["fds"] - before["fds"] <= 5
    assert len(error.splitlines()) < 20, error


def status(pid: int) -> dict[str, int]:
    """Resident kB, and open descriptors."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    rss = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return {"rss": rss, "fds": len(list((Path("/proc") / str(pid) / "fd").iterdir()))}


AS_NOBODY = f"""
import contextlib, io, os, sys
from hitmap import cli

def run(*arguments):
    sys.argv = ["hitmap", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return end.code

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    run(*sys.argv[1:])  # what it imports on its way may not be readable later
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
sys.exit(run(*sys.argv[1:]))
"""


def as_nobody(*arguments: str) -> tuple[int, str, str]:
    """The command line in a process that gave its privileges up."""
    one = subprocess.Popen(
        [sys.executable, "-c", AS_NOBODY, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    return ended(one)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user: run the tests as root")
def test_without_privileges_it_tells_what_proc_tells_and_says_what_the_rest_needs(worker: Worker) -> None:
    code, out, error = as_nobody(
        "probe", "--pid", str(worker.pid), "--kernel", "--json", "--duration", "1.5", "--threads"
    )
    assert code == 0, error
    lines = [json.loads(line) for line in out.splitlines()]
    told = {(one["metric"], one["attributes"]["hitmap.source"]) for one in lines}
    assert ("process.paging.faults", "procfs") in told
    assert ("process.memory.usage", "procfs") in told
    assert "ebpf" not in {source for _, source in told}
    assert "not told: hitmap.page_faults, hitmap.tlb_flushes: this user may not load BPF programs" in error
    assert "needs: root, or CAP_BPF and CAP_PERFMON" in error


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user: run the tests as root")
def test_without_privileges_a_port_of_another_user_is_said_to_be_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = str(mine.getsockname()[1])
        code, _, error = as_nobody("probe", "--port", port, "--kernel", "--json", "--duration", "0.2")
    assert code == 1
    assert f"something listens on port {port}, but another user's" in error


def test_reasons_are_grouped_and_families_of_metrics_named_as_one() -> None:
    family = [metric.name for metric in METRICS if metric.name.startswith("hitmap.pmu.")]
    gaps = [Gap(name, "no PMU", "one") for name in family]
    assert grouped([*gaps, Gap("a, b", "c"), Gap("b", "c")]) == [
        "hitmap.pmu.*: no PMU (needs: one)",
        "a, b: c",
    ]
    assert grouped(gaps[1:])[0].startswith("hitmap.pmu.dtlb.misses, "), "not all of them"
