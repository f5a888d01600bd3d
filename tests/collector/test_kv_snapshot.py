"""What a collector leaves in its index file, and what the next one makes of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachemodel.content import ContentHasher
from collector.kv.index import BlockIndex
from collector.kv.snapshot import SavedStream, SnapshotError, load, save
from collector.kv.stream import KvStream, Message, Position
from collector.kv.subscriber import KvSubscriber
from collector.resume import Stored
from collector.spool import Spool
from store.client import connect
from tests.collector.following import RUN1, Subscribe, summary, taken
from tests.collector.kv_random import Step, known, messages, steps, stream
from tests.collector.kv_random import taken as made
from tests.collector.publisher import Frames, Publisher
from tests.collector.support import HASHER, take, wait_until
from tests.conftest import Database

own_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@own_folder
@given(steps, st.integers(0, 11))
def test_a_snapshot_at_any_point_and_the_rest_are_the_whole(
    tmp_path: Path, said: list[Step], at: int
) -> None:
    whole, before = stream(), stream()
    read = messages(said)
    entries = made(whole, read)
    first = made(before, read[:at])
    state, position = before.state(), before.position
    if state is None or position is None:
        return
    save(tmp_path / "index", "s", HASHER, {"kv": state})
    after = stream(position=position, saved=load(tmp_path / "index", "s", HASHER)["kv"])
    assert after.misfit == ""
    assert known(after) == known(before)
    assert first + made(after, read[at:]) == entries
    assert (known(after), after.position) == (known(whole), whole.position)


def saved(path: Path, said: int = 3) -> SavedStream:
    """A file of a stream of some messages."""
    told = stream()
    made(told, messages([Step(0, False, [])] * said))
    state = told.state()
    assert state
    save(path, "s", HASHER, {"kv": state})
    return state


def test_a_file_is_for_its_owner_only(tmp_path: Path) -> None:
    saved(tmp_path / "deep" / "index")
    assert (tmp_path / "deep" / "index").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["index"], "nothing is left beside it"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_shows(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "index"
    told = stream()
    made(told, messages(data.draw(steps)))
    state = told.state()
    assert state
    save(path, "s", HASHER, {"kv": state})
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    path.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
    with pytest.raises(SnapshotError):
        load(path, "s", HASHER)


def test_what_is_foreign_is_told(tmp_path: Path) -> None:
    saved(tmp_path / "index")
    with pytest.raises(SnapshotError, match="of the server s"):
        load(tmp_path / "index", "other", HASHER)
    with pytest.raises(SnapshotError, match="key of another installation"):
        load(tmp_path / "index", "s", ContentHasher(bytes(32)))
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none", "s", HASHER)


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (None, "the store has nothing of it"),
        (Position(1.5e9, 9, 1.5e9), "another life"),
        (Position(1.7e9, 1, 1.7e9 + 1), "nothing past message 1 of it, and it stands at 2"),
        (Position(1.7e9, 2, 1.7e9 + 2), ""),
        (Position(1.7e9, 7, 1.7e9 + 7), ""),
    ],
)
def test_what_does_not_fit_the_store_is_not_gone_on_with(
    tmp_path: Path, position: Position | None, why: str
) -> None:
    told = stream()
    made(told, messages([Step(1, False, None)] + [Step(0, False, [])] * 2))
    state = told.state()
    assert state
    state = SavedStream(1.7e9, 2, 1.7e9 + 2, 2, state.ranks)
    after = stream(position=position, saved=state)
    assert why in after.misfit
    assert bool(after.misfit) is bool(why)
    assert after.last == (position.seq if position else -1)


def test_a_collector_goes_on_with_its_file_and_what_the_store_has_after_it(
    messages: list[Frames], subscribe: Subscribe, spool: Spool, db: Database, tmp_path: Path
) -> None:
    """The replay buffer begins after the file was written; the store has the messages between."""
    path = tmp_path / "index" / "file"

    def to_store() -> None:
        sealed = spool.seal("kv_events", 1_000_000, 1 << 30)
        assert sealed is not None
        db.client.raw_insert("kv_events", insert_block=spool.payload(sealed), fmt="JSONEachRow")
        spool.done(sealed)

    def positions() -> dict[str, Position]:
        return dict(Stored(lambda: connect(db.dsn)).kv_positions("s", 0))

    with Publisher() as publisher:
        publisher.send(messages[:100])
        first = subscribe(publisher, positions, snapshot=path)
        taken(first, messages=100)
        first.stop()
        early = path.read_bytes()
        to_store()
        publisher.send(messages[100:200])
        second = subscribe(publisher, positions, snapshot=path)
        taken(second, messages=100)
        second.stop()
        to_store()
        path.write_bytes(early)  # as if the machine had stopped before it was written again
        for _ in range(180):
            publisher.buffer.popleft()
        publisher.send(messages[200:])
        third = subscribe(publisher, positions, snapshot=path)
        taken(third, messages=44)
        third.stop()
        assert "ignored" not in third.status().detail
    to_store()
    whole = indexed(messages)
    left = load(path, "s", HASHER)["kv@tiny"].ranks[0]
    blocks = set(whole.table.keys)
    assert {b: (whole.holds(b, "GPU"), whole.lineage_of(b)) for b in blocks} == {
        b: (left.holds(b, "GPU"), left.lineage_of(b)) for b in blocks
    }
    count = "SELECT count(), uniqExact(epoch, seq, pos) FROM kv_events"
    assert db.client.query(count).result_rows == [(sum(RUN1.values()), sum(RUN1.values()))]


def indexed(messages: list[Frames]) -> BlockIndex:
    told = KvStream("s", "kv@tiny", 0, hasher=HASHER)
    for _, seq, payload in messages:
        told.take(Message.read(int.from_bytes(seq, "big"), payload, 1.796e9))
    return told.ranks[0]


@pytest.mark.parametrize(
    "content", [b"", b"hitmap-kv-index/1\nan older one", b"hitmap-kv-index/2\nnonsense", b"\0" * 1000]
)
def test_a_file_that_is_none_costs_nothing_but_a_word(
    content: bytes, messages: list[Frames], subscribe: Subscribe, spool: Spool, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    path.write_bytes(content)
    with Publisher() as publisher:
        publisher.send(messages)
        subscriber = subscribe(publisher, snapshot=path)
        taken(subscriber, messages=244)
        assert f"index file {path} ignored: " in subscriber.status().detail
        subscriber.stop()
    assert summary(take(spool, "kv_events")) == RUN1
    assert load(path, "s", HASHER)["kv@tiny"].last == 243


def test_a_file_that_cannot_be_written_is_told(
    messages: list[Frames],
    subscribe: Subscribe,
    spool: Spool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collector.kv.keeper.SAVE_S", 0.0)
    (tmp_path / "file").write_bytes(b"")
    with Publisher() as publisher:
        publisher.send(messages)
        subscriber: KvSubscriber = subscribe(publisher, snapshot=tmp_path / "file" / "index")
        taken(subscriber, messages=244)
        wait_until(lambda: "the index is not kept" in subscriber.status().detail)
    assert summary(take(spool, "kv_events")) == RUN1


_SAVES = """
import sys
from pathlib import Path
from cachemodel.content import ContentHasher
from cachemodel.kv_events import BlockStored, KVEventBatch
from collector.kv.snapshot import save
from collector.kv.stream import KvStream, Message
hasher = ContentHasher(sys.argv[2].encode())
told = KvStream("s", "kv", 0, hasher=hasher)
for seq in range(100_000):
    blocks = [BlockStored(range(100 * seq, 100 * seq + 100), 7, range(200), 2, medium="GPU")]
    told.take(Message(seq, 1.7e9, 1.7e9 + seq, KVEventBatch(1.7e9 + seq, blocks)))
    save(Path(sys.argv[1]), "s", hasher, {"kv": told.state()})
    print(seq, flush=True)
"""


def test_a_collector_killed_while_it_saves_leaves_a_whole_file(tmp_path: Path) -> None:
    path, key = tmp_path / "index", "the key of the tests"
    for pause_s in (0.0, 0.003, 0.011):
        process = subprocess.Popen(
            [sys.executable, "-c", _SAVES, str(path), key], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(40)]
        time.sleep(pause_s)  # somewhere in the next ones
        process.kill()
        process.wait()
        process.stdout.close()
        kept = load(path, "s", ContentHasher(key.encode()))["kv"]
        assert kept.last >= int(told[-1])
        assert len(kept.ranks[0].table) == 100 * (kept.last + 1)
        assert len(kept.ranks[0].orphans) == len(kept.ranks[0].table)
    saved(path)
    assert [file.name for file in tmp_path.iterdir()] == ["index"], (
        "what the killed one left beside it is gone"
    )
