"""What `hitmap doctor` says of the kernel is what was tried."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probes.kernel import selftest, support
from probes.kernel.ebpf import Program
from probes.kernel.requirements import Host
from probes.support import State
from tests.probes.conftest import child

NAMES = [support.FAULTS, support.FLUSHES, support.FUTEX, support.OFF_CPU]


@pytest.mark.usefixtures("tracefs")
def test_as_root_all_works() -> None:
    rows = {row.name: row for row in support.support()}
    assert {rows[name].state for name in NAMES if name != support.FLUSHES} == {State.YES}
    assert "4,096 pages touched, 4,0" in rows[support.FAULTS].how or "4,1" in rows[support.FAULTS].how
    assert all(not row.needs for row in rows.values() if row.state is State.YES)
    assert {row.sensor for row in rows.values()} == {"kernel"}


@pytest.mark.usefixtures("ebpf")
def test_the_selftest_counts_what_was_done() -> None:
    program = Program()
    program.watch([os.getpid()])
    seen = selftest.faults(program, 1000)
    assert 1000 <= seen.counted <= 1000 + selftest.TOLERANCE
    program.unwatch([os.getpid()])
    for pid, tid, _ in list(program.read()):
        program.forget(pid, tid)
    assert selftest.faults(program, 1000).counted == 0, "it would see a program that does not count"
    program.close()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    host = Host(modules=tmp_path, packages=[tmp_path], sys=tmp_path / "sys")
    rows = {row.name: row for row in support.support(host)}
    for name in NAMES:
        assert rows[name].state is State.NO
        assert "python3-bpfcc" in rows[name].needs
        assert "linux-headers-" in rows[name].needs
    rows = {row.name: row for row in support.support(Host(machine="aarch64"))}
    assert {rows[name].state for name in NAMES} == {State.NEVER}


def test_an_unprivileged_user_is_told_what_opens_it(root: None) -> None:
    said = child(
        "from probes.kernel.support import support\n"
        "for row in support(): print(row.state, row.name, row.needs, sep='|')",
        unprivileged=True,
    )
    rows = {line.split("|")[1]: line.split("|") for line in said.splitlines()}
    for name in NAMES:
        assert rows[name][0] == "no"
        assert "CAP_BPF and CAP_PERFMON" in rows[name][2]
    assert rows["threads of the instrumented process"][0] == "yes"
    assert rows["process by its port"][0] == "less"
