"""Following a log that grows, is cut, rotated and truncated under our hands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pytest

from collector import log_tail
from collector.dialects.llama_cpp import log as llama_cpp_log
from collector.dialects.lmcache import log as lmcache_log
from collector.dialects.sglang import log as sglang_log
from collector.dialects.vllm import log as vllm_log
from collector.log_event import event
from collector.log_tail import CUT_OFF, LogFile, LogTail, ServerLogTail
from collector.request_log import NOT_JSON, TOO_LONG, parse_line
from collector.sink import Backpressure, Entry
from collector.spool import Spool


class Kept:
    """A sink that keeps what it takes, after refusing a few times."""

    def __init__(self, refusals: int = 0) -> None:
        self.entries: list[Entry] = []
        self._refusals = refusals

    def put(self, entries: Sequence[Entry]) -> int:
        if self._refusals:
            self._refusals -= 1
            raise Backpressure(0.01)
        self.entries += entries
        return len(entries)

    def ids(self) -> list[str]:
        return [json.loads(entry.payload)["request_id"] for entry in self.entries]


def line(request_id: str) -> bytes:
    return json.dumps({"response_id": request_id, "time": int(time.time())}).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_come_once_and_the_last_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    assert log.lines() is None
    append(path, b"one\n\ntwo\nthr")
    assert log.lines() == [b"one", b"two"]
    assert log.lines() == []
    append(path, b"ee\n")
    assert log.lines() == [b"three"]
    assert log.offset == path.stat().st_size
    assert log.lost == {}


def test_reading_is_taken_up_at_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, b"one\ntwo\nthr")
    first = LogFile(path)
    first.lines()
    append(path, b"ee\n")
    assert LogFile(path, first.offset).lines() == [b"three"]


def test_the_newest_lines_are_seen_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(path)
    assert log.newest() == ([], 0.0), "there is no file yet"
    append(path, b"one\n" + b"x" * 100_000 + b"\ntwo\nthree\nnot yet")
    os.utime(path, (1_000.0, 2_000.5))
    log.lines()
    lines, written_s = log.newest()
    assert lines[-2:] == [b"two", b"three"]
    assert written_s == 2_000.5


def test_a_rotated_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, b"one\n")
    log = LogFile(path)
    assert log.lines() == [b"one"]
    append(path, b"two\ncut")
    path.rename(tmp_path / "log.1")
    assert log.lines() == [b"two"]
    assert log.lines() == [], "the new file is not there yet"
    append(path, b"three\n")
    assert log.lines() == [b"three"]
    assert log.lost == {CUT_OFF: 1}


def test_a_truncated_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, b"one\ntwo\ncut")
    log = LogFile(path)
    log.lines()
    os.truncate(path, 0)
    assert log.lines() == []
    append(path, b"three\n")
    assert log.lines() == [b"three"]
    assert log.offset == 6
    assert log.lost == {CUT_OFF: 1}


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(log_tail, "CHUNK_BYTES", 64)
    path = tmp_path / "log"
    append(path, b"one\n" + b"x" * 1000 + b"\ntwo\n")
    log = LogFile(path)
    lines = [line for _ in range(30) for line in log.lines() or []]
    assert lines == [b"one", b"two"]
    assert log.lost == {TOO_LONG: 1}
    assert log.offset == path.stat().st_size


def test_tail_delivers_what_is_good_and_counts_the_rest(tmp_path: Path) -> None:
    path, sink = tmp_path / "log", Kept(refusals=2)
    tail = LogTail(path, "s", sink, poll_s=0.01)
    tail.start()
    try:
        eventually(lambda: "not there yet" in tail.status().detail)
        append(path, line("r1") + b"{broken\n" + line("r2"))
        eventually(lambda: sink.ids() == ["r1", "r2"])
        append(path, line("r3"))
        eventually(lambda: sink.ids() == ["r1", "r2", "r3"])
        eventually(lambda: tail.status().detail.startswith("3 responses"))
    finally:
        tail.stop()
    counts = tail.status().counts
    assert counts[NOT_JSON] == 1
    assert counts["rows"] == 3


def test_a_log_read_again_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, line("r1") + line("r2"))
    sinks = Kept(), Kept()
    for sink in sinks:
        tail = LogTail(path, "s", sink, poll_s=0.01)
        tail.start()
        eventually(lambda sink=sink: len(sink.entries) == 2)  # type: ignore[misc]
        tail.stop()
    assert sinks[0].entries == sinks[1].entries


BIG = "9" * 30
LINES = {
    vllm_log: (
        f"INFO {{day}} 12:00:00 [a.py:1] Engine {BIG}: Avg prompt throughput: 1.0 tokens/s",
        "INFO {day} 12:00:00 [a.py:1] Successfully reset prefix cache",
    ),
    sglang_log: (
        f"[{{date}} 12:00:00 DP{BIG}] Prefill batch [{BIG}], #new-seq: {BIG}",
        "[{date} 12:00:00] Cache flushed successfully!",
    ),
    lmcache_log: (
        f"[{{date}} 12:00:00,123] LMCache INFO: [req_id=x] Stored {BIG} out of total 5 tokens cost {'1' * 400} ms",
        "[{date} 12:00:00,123] LMCache INFO: [req_id=x] Stored 1 out of total 5 tokens",
    ),
    llama_cpp_log: (
        f"slot f: id {BIG} | task 1 | new prompt, task.n_tokens = {BIG}",
        "slot f: id 0 | task 7 | cancel task, id_task = 7",
    ),
}


@pytest.mark.parametrize("dialect", LINES, ids=lambda module: module.__name__.split(".")[-2])
def test_numbers_beyond_what_a_store_holds_cost_no_line(dialect: ModuleType) -> None:
    yesterday = datetime.fromtimestamp(time.time() - 86_400)
    dates = {"day": f"{yesterday:%m-%d}", "date": f"{yesterday:%Y-%m-%d}"}
    odd, good = (line.format(**dates).encode() for line in LINES[dialect])
    tail = ServerLogTail(Path("none"), "s", dialect.reader("s"), Kept())
    alone = tail.entries([good])
    assert len(tail.entries([good, odd, good])) >= 2 * len(alone)
    assert not tail.counts["unreadable"]


def test_a_line_that_a_reader_cannot_take_costs_itself_only() -> None:
    def read(line: str, now_s: float) -> Sequence[Entry]:
        if line == "odd":
            raise IndexError("no such group")
        days = {"old": 401, "ahead": -2}.get(line, 0)
        return [event("s", "x.y", now_s - days * 86_400, {"line": line})]

    tail = ServerLogTail(Path("none"), "s", read, Kept())
    lines = [b"one", b"odd", b"old", b"ahead", b"two"]
    assert len(tail.entries(lines)) == 2
    assert (tail.counts["unreadable"], tail.counts["bad_time"], tail.counts["other"]) == (1, 2, 0)


def test_a_record_that_cannot_be_read_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(line: bytes, *rest: object) -> object:
        if line == b"odd":
            raise ValueError("beyond")
        return parse_line(line, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("collector.log_tail.parse_line", odd)
    tail = LogTail(Path("none"), "s", Kept())
    assert len(tail.entries([line("r1"), b"odd", line("r2")])) == 2
    assert tail.counts["unreadable"] == 1


def test_the_status_says_what_was_left_out_and_why(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_text('{"id": "a", "time": 1.8e9}\n{"id": "b"}\n{"id": "c"}\nnot json\n')
    spool = Spool(tmp_path / "spool")
    tail = LogTail(log, "s", spool, poll_s=0.01)
    tail.start()
    eventually(lambda: tail.status().state == "running")
    tail.stop()
    detail = tail.status().detail
    assert "2 x no time" in detail
    assert "1 x line is no JSON" in detail
    spool.close()


def test_a_folder_is_no_log_and_says_so(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    tail = LogTail(tmp_path, "s", spool, poll_s=0.01)
    tail.start()
    eventually(lambda: tail.status().state == "failing")
    tail.stop()
    assert tail.status().detail == f"{tmp_path}: Is a directory"
    spool.close()
