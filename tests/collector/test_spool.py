"""The spool: durable, bounded, remembers content, exclusive."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cachemodel.errors import UserError
from collector import segments, set_aside
from collector.segments import PayloadLostError
from collector.set_aside import rejections
from collector.sink import Backpressure, Entry
from collector.spool import Spool

KINDS = ("traces", "samples")


def entries(*payloads: bytes, kind: str = "traces") -> list[Entry]:
    return [Entry(kind, payload, len(payload)) for payload in payloads]


def test_put_counts_new_rows_only(tmp_path: Path) -> None:
    box = Spool(tmp_path)
    assert box.put(entries(b"one", b"three")) == 8
    assert box.put(entries(b"one", b"x")) == 1
    assert box.put(entries(b"one", kind="samples")) == 3, "the same bytes of another kind are other content"
    assert box.pending() == {"traces": 9, "samples": 3}


def test_content_is_remembered_after_it_left_and_after_a_restart(tmp_path: Path) -> None:
    box = Spool(tmp_path)
    box.put(entries(b"one"))
    batch = box.seal("traces", 10, 100)
    assert batch
    box.done(batch)
    box.close()
    box = Spool(tmp_path)
    assert box.put(entries(b"one")) == 0
    assert box.pending() == {}


def test_memory_of_content_is_bounded(tmp_path: Path) -> None:
    box = Spool(tmp_path, seen_limit=3)
    box.put(entries(b"a", b"b", b"c", b"d"))
    assert box.put(entries(b"b", b"c", b"d")) == 0
    assert box.put(entries(b"a")) == 1, "the oldest is forgotten"


def test_full_spool_refuses_all_or_none_and_recovers(tmp_path: Path) -> None:
    box = Spool(tmp_path, limit_bytes=10)
    box.put(entries(b"12345678"))
    with pytest.raises(Backpressure):
        box.put(entries(b"a", b"bcd"))
    assert box.pending() == {"traces": 8}
    batch = box.seal("traces", 100, 100)
    assert batch
    box.done(batch)
    assert box.put(entries(b"a", b"bcd")) == 4, "what was refused is not remembered as accepted"


def test_batches_take_the_oldest_up_to_a_limit(tmp_path: Path) -> None:
    box = Spool(tmp_path)
    box.put(entries(b"aaaa", b"bbbb", b"cccc"))
    first = box.seal("traces", 5, 100)
    second = box.seal("traces", 100, 3)
    assert first
    assert second
    assert (box.payload(first), first.rows, first.entries) == (b"aaaabbbb", 8, 2)
    assert (box.payload(second), second.entries) == (b"cccc", 1), (
        "one entry goes even if it is over the limit"
    )
    assert box.seal("traces", 100, 100) is None
    assert first.name != second.name


def test_sealed_batches_survive_a_restart_under_their_name(tmp_path: Path) -> None:
    box = Spool(tmp_path)
    box.put(entries(b"a", b"b"))
    sealed = box.seal("traces", 100, 100)
    assert sealed
    sealed = box.renew(sealed)
    box.put(entries(b"c"))
    box.close()
    box = Spool(tmp_path)
    assert box.batches() == [sealed]
    assert box.payload(sealed) == b"ab"
    later = box.seal("traces", 100, 100)
    assert later
    assert box.payload(later) == b"c"


def test_splitting_ends_at_single_entries_which_can_be_set_aside(tmp_path: Path) -> None:
    box = Spool(tmp_path)
    box.put(entries(b"a", b"bb", b"ccc"))
    batch = box.seal("traces", 100, 100)
    assert batch
    left, right = box.split(batch)
    assert (box.payload(left), box.payload(right)) == (b"a", b"bbccc")
    assert box.batches() == [left, right]
    box.reject(left, "unreadable")
    (kept,) = rejections(tmp_path)
    assert (kept.kind, kept.rows, kept.reason, kept.file.read_bytes()) == ("traces", 1, "unreadable", b"a")
    assert box.pending() == {"traces": 5}


def test_rejected_payloads_are_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "MOST_BYTES", 10)
    box = Spool(tmp_path)
    for payload in (b"aaaa", b"bbbb", b"cccc"):
        box.put(entries(payload))
        batch = box.seal("traces", 1, 1)
        assert batch
        box.reject(batch, payload.decode())
    assert [kept.reason for kept in rejections(tmp_path)] == ["bbbb", "cccc"]
    assert len(list((tmp_path / "rejected").iterdir())) == 4


def test_files_go_when_nothing_in_them_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 8)
    box = Spool(tmp_path)
    batches = []
    for i in range(6):
        box.put(entries(b"%04d" % i))
        batches.append(box.seal("traces", 1, 1))
    assert len(list(tmp_path.glob("traces.*"))) == 3
    box.done(batches[1])
    assert len(list(tmp_path.glob("traces.*"))) == 3, "the first file still holds the first batch"
    box.done(batches[0])
    assert len(list(tmp_path.glob("traces.*"))) == 2
    for batch in batches[2:]:
        box.done(batch)
    assert sum(file.stat().st_size for file in tmp_path.glob("traces.*")) == 0


def test_a_payload_the_disk_lost_is_noticed(tmp_path: Path) -> None:
    box = Spool(tmp_path)
    box.put(entries(b"abcdef"))
    batch = box.seal("traces", 100, 100)
    assert batch
    (file,) = tmp_path.glob("traces.*")
    os.truncate(file, 3)
    with pytest.raises(PayloadLostError):
        box.payload(batch)
    box.reject(batch, "lost")
    assert box.pending() == {}


def test_one_process_one_spool(tmp_path: Path) -> None:
    box = Spool(tmp_path)
    with pytest.raises(UserError, match="in use by another collector"):
        Spool(tmp_path)
    box.close()
    Spool(tmp_path).close()


def test_foreign_and_damaged_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    foreign = sqlite3.connect(tmp_path / "spool.db")
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.close()
    before = (tmp_path / "spool.db").read_bytes()
    with pytest.raises(UserError, match="not a spool"):
        Spool(tmp_path)
    assert (tmp_path / "spool.db").read_bytes() == before
    (tmp_path / "spool.db").write_bytes(b"certainly no database" * 100)
    with pytest.raises(UserError, match="damaged"):
        Spool(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--spool"):
        Spool(tmp_path / "file" / "spool")


def test_what_put_returned_for_outlives_kill_9(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from collector.spool import Spool; from collector.sink import Entry\n"
        "box = Spool(Path(sys.argv[1]))\n"
        "for i in range(10**9):\n"
        "    box.put([Entry('traces', b'%08d' % i, 1)]); print(i, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    for _ in range(200):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    acknowledged = 200 + len(child.stdout.read().splitlines())
    child.wait()
    child.stdout.close()
    box = Spool(tmp_path)
    batch = box.seal("traces", 10**9, 10**9)
    assert batch
    data = box.payload(batch)
    assert acknowledged <= batch.rows <= acknowledged + 1
    assert data == b"".join(b"%08d" % i for i in range(batch.rows))


class SpoolMachine(RuleBasedStateMachine):
    """Whatever is put, sealed, split, delivered and restarted: each content comes out once, in order, none is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.box = Spool(Path(self.folder.name))
        self.accepted: dict[str, list[bytes]] = {kind: [] for kind in KINDS}
        self.delivered: dict[str, set[bytes]] = {kind: set() for kind in KINDS}

    @rule(kind=st.sampled_from(KINDS), payloads=st.lists(st.integers(0, 99), max_size=4))
    def put(self, kind: str, payloads: list[int]) -> None:
        contents = [b"%02d" % n for n in payloads]
        new = [c for c in dict.fromkeys(contents) if c not in self.accepted[kind]]
        assert self.box.put([Entry(kind, c, 1) for c in contents]) == len(new)
        self.accepted[kind] += new

    @rule(kind=st.sampled_from(KINDS), rows=st.integers(1, 5))
    def seal(self, kind: str, rows: int) -> None:
        self.box.seal(kind, rows, 10**6)

    @precondition(lambda self: self.box.batches())
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.box.batches()))
        payload = self.box.payload(batch)
        contents = [payload[i : i + 2] for i in range(0, len(payload), 2)]
        assert len(contents) == batch.rows == batch.entries
        assert self.delivered[batch.kind].isdisjoint(contents)
        self.delivered[batch.kind].update(contents)
        self.box.done(batch)

    @precondition(lambda self: any(batch.entries > 1 for batch in self.box.batches()))
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        self.box.split(data.draw(st.sampled_from([b for b in self.box.batches() if b.entries > 1])))

    @rule()
    def restart(self) -> None:
        self.box.close()
        self.box = Spool(Path(self.folder.name))

    @invariant()
    def nothing_is_lost(self) -> None:
        waiting = {kind: len(self.accepted[kind]) - len(self.delivered[kind]) for kind in KINDS}
        assert self.box.pending() == {kind: rows for kind, rows in waiting.items() if rows}
        assert self.box.size == 2 * sum(waiting.values())

    def teardown(self) -> None:
        for kind in KINDS:
            while self.box.seal(kind, 10**6, 10**6):
                pass
        for kind in KINDS:
            rest = b"".join(self.box.payload(batch) for batch in self.box.batches() if batch.kind == kind)
            contents = [rest[i : i + 2] for i in range(0, len(rest), 2)]
            assert [c for c in self.accepted[kind] if c not in self.delivered[kind]] == sorted(
                contents, key=self.accepted[kind].index
            )
        self.box.close()
        self.folder.cleanup()


SpoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSpoolMachine = SpoolMachine.TestCase
