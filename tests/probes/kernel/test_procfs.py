"""Totals from /proc, on trees that change between two looks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from probes.kernel import processes
from probes.kernel.procfs import Gone, ProcessFiles
from tests.probes.conftest import Worker

RECORDED = Path(__file__).parent / "fixtures" / "proc"
PID, ZOMBIE = 13080, 13127
THREADS = (13080, 13123, 13124, 13125, 13126)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "proc"))


@pytest.fixture
def files(proc: Path) -> ProcessFiles:
    process = processes.process(PID, proc)
    assert process
    return ProcessFiles(process, proc, round_s=0)


def edit(path: Path, place: int, number: int) -> None:
    """Sets a field of a stat, counted from the state on."""
    head, _, rest = path.read_bytes().rpartition(b") ")
    fields = rest.split()
    fields[place] = str(number).encode()
    path.write_bytes(head + b") " + b" ".join(fields) + b"\n")


def run(task: Path, voluntary: int, involuntary: int) -> None:
    """A thread ran: its schedule and its switches change."""
    text = (task / "status").read_bytes()
    text = text[: text.index(b"\nvoluntary")]
    lines = b"\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t%d\n" % (voluntary, involuntary)
    (task / "status").write_bytes(text + lines)
    (task / "schedstat").write_bytes(b"%d 0 %d\n" % (voluntary * 1000, voluntary + involuntary))


def told(files: ProcessFiles, metric: str, kind: str = "", tid: int | None = None) -> float | None:
    found = [
        one.value
        for one in files.readings(threads=True)
        if (one.metric, one.tid) == (metric, tid) and (not kind or one.attributes[0][1] == kind)
    ]
    assert len(found) <= 1
    return found[0] if found else None


def test_totals_begin_when_the_sensor_does(files: ProcessFiles, proc: Path) -> None:
    files.update(100)
    assert told(files, "process.paging.faults", "minor") == 0
    assert told(files, "process.context_switches", "voluntary") == 0
    assert told(files, "process.thread.count") == 5
    assert told(files, "process.memory.usage") == 3519 * 4096
    edit(proc / str(PID) / "stat", 7, 3180 + 25)
    edit(proc / str(PID) / "stat", 9, 3)
    run(proc / str(PID) / "task" / "13123", 500, 70)
    files.update(100)
    assert told(files, "process.paging.faults", "minor") == 25
    assert told(files, "process.paging.faults", "major") == 3
    first = (RECORDED / str(PID) / "task" / "13123" / "status").read_text().split()
    assert told(files, "process.context_switches", "voluntary") == 500 - int(first[-3])
    assert told(files, "process.context_switches", "involuntary", 13123) == 70 - int(first[-1])


def test_counters_that_go_back_never_take_away(files: ProcessFiles, proc: Path) -> None:
    edit(proc / str(PID) / "stat", 7, 4000)
    files.update(100)
    edit(proc / str(PID) / "stat", 7, 10)
    files.update(100)
    assert told(files, "process.paging.faults", "minor") == 4000 - 3180


def test_an_ended_threads_switches_stay(files: ProcessFiles, proc: Path) -> None:
    task = proc / str(PID) / "task"
    files.update(100)
    run(task / "13123", 1000, 1000)
    files.update(100)
    before = told(files, "process.context_switches", "voluntary")
    assert before
    shutil.rmtree(task / "13123")
    files.update(100)
    assert told(files, "process.context_switches", "voluntary") == before
    assert told(files, "process.context_switches", "voluntary", 13123) is None


def test_a_new_thread_counts_from_its_start_also_with_an_old_number(files: ProcessFiles, proc: Path) -> None:
    task = proc / str(PID) / "task"
    files.update(100)
    shutil.copytree(task / "13123", task / "14000")
    run(task / "14000", 9, 0)
    files.update(100)
    assert told(files, "process.context_switches", "voluntary") == 9
    edit(task / "14000" / "stat", 19, 9999999)
    run(task / "14000", 4, 0)
    files.update(100)
    assert told(files, "process.context_switches", "voluntary") == 13
    assert told(files, "process.context_switches", "voluntary", 14000) == 4


def test_threads_take_turns(files: ProcessFiles) -> None:
    assert [files.update(2) for _ in range(4)] == [(3, 2), (1, 2), (0, 1), (3, 2)]
    assert files.update(0) == (3, 0)


def test_all_are_looked_at_no_more_often_than_told_but_new_ones_at_once(proc: Path) -> None:
    process = processes.process(PID, proc)
    assert process
    files = ProcessFiles(process, proc, round_s=1000)
    assert files.update(100) == (0, 5)
    assert files.update(100) == (0, 0)
    task = proc / str(PID) / "task"
    shutil.copytree(task / "13123", task / "14000")
    edit(proc / str(PID) / "stat", 17, 6)
    run(task / "14000", 9, 0)
    assert files.update(100) == (0, 1)
    assert told(files, "process.context_switches", "voluntary") == 9


def test_where_looking_takes_long_it_is_done_less_often(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.kernel.procfs.ROUND_SHARE", 1e9)
    process = processes.process(PID, proc)
    assert process
    for sparing, looked in ((True, 0), (False, 5)):
        files = ProcessFiles(process, proc, round_s=0, sparing=sparing)
        assert files.update(100) == (0, 5)
        assert files.update(100) == (0, looked)


def test_context_switches_are_told_at_a_look_and_not_again_before_the_next(proc: Path) -> None:
    """Else a point would say that nothing was counted while nobody looked."""
    process = processes.process(PID, proc)
    assert process
    files = ProcessFiles(process, proc, round_s=1000)
    files.update(100)
    files.update(100)  # of two reads between two tellings the look was in the first
    assert told(files, "process.context_switches", "voluntary") == 0
    files.update(100)
    assert told(files, "process.context_switches", "voluntary") is None
    assert told(files, "process.cpu.time", "user") == 0


def test_a_number_used_again_is_gone(files: ProcessFiles, proc: Path) -> None:
    edit(proc / str(PID) / "stat", 19, 6000000)
    with pytest.raises(Gone):
        files.update(100)


@pytest.mark.parametrize("left", [b"", b"13080 (od"])
def test_files_that_vanish_while_they_are_read(files: ProcessFiles, proc: Path, left: bytes) -> None:
    task = proc / str(PID) / "task"
    (task / "13124" / "stat").write_bytes(left)
    (task / "13125" / "status").unlink()
    files.update(100)
    (proc / str(PID) / "stat").write_bytes(left)
    with pytest.raises(Gone):
        files.update(100)


def test_a_zombie_is_told_without_memory(proc: Path) -> None:
    process = processes.process(ZOMBIE, proc)
    assert process
    zombie = ProcessFiles(process, proc)
    zombie.update(100)
    assert told(zombie, "process.memory.usage") is None
    assert told(zombie, "process.paging.faults", "minor") == 0


def test_a_real_process(worker: Worker) -> None:
    process = processes.process(worker.pid)
    assert process
    files = ProcessFiles(process, round_s=0)
    worker.do("read", 2000)
    worker.do("thread", 1000)
    files.update(100)
    faults = told(files, "process.paging.faults", "minor")
    assert faults
    assert 3000 <= faults <= 3200, "an ended thread's are in it"
    assert (told(files, "process.memory.usage") or 0) > 1_000_000
    for _ in range(3):
        worker.do("sleep", 0.01)
    files.update(100)
    assert (told(files, "process.context_switches", "voluntary") or 0) >= 3
