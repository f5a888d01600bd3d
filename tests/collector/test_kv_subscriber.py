from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UserError
from cachemodel.kv_events import AllBlocksCleared, BlockStored, KVEventBatch, encode_batch
from cachemodel.kv_events.media import pseudonym
from collector.kv.rows import depth_key
from collector.kv.stream import KvStream, Message, Position
from collector.kv.subscriber import KvEndpoint, KvSubscriber, of_rank, publisher_connects
from collector.resume import Stored
from collector.spool import Spool
from collector.tally import Tally
from store.client import connect
from tests.collector.publisher import Frames, Publisher, recorded
from tests.collector.support import take, wait_until

Row = dict[str, Any]
Subscribe = Callable[..., KvSubscriber]


@pytest.fixture(scope="module")
def messages(run1: Path) -> list[Frames]:
    return recorded(run1 / "kv_events.jsonl")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.sqlite", Tally())
    yield opened
    opened.close()


@pytest.fixture
def subscribe(spool: Spool) -> Iterator[Subscribe]:
    """Starts subscribers on a publisher, or where one will connect, and stops them at the end."""
    running: list[KvSubscriber] = []

    def start(publisher: Publisher | None = None, positions: Any = dict, **options: Any) -> KvSubscriber:
        events = {"events": publisher.events, "replay": publisher.replay} if publisher else {}
        subscriber = KvSubscriber(KvEndpoint(**{"server": "s", **events, **options}), spool, positions)
        subscriber.start()
        running.append(subscriber)
        return subscriber

    yield start
    for subscriber in running:
        subscriber.stop()


def taken(subscriber: KvSubscriber, **expected: int) -> None:
    """Wait until the counters have reached what is expected."""
    try:
        wait_until(lambda: all(subscriber.status().counts.get(name, 0) >= n for name, n in expected.items()))
    except AssertionError:
        raise AssertionError(f"{expected} expected, {subscriber.status()}") from None


def summary(rows: list[Row]) -> Counter[str]:
    return Counter(row["action"] for row in rows)


def restarted(messages: list[Frames], by_s: float = 3600.0) -> list[Frames]:
    """The same messages from a later life of the publisher."""
    later = []
    for topic, seq, payload in messages:
        batch = msgspec.msgpack.decode(payload)
        later.append([topic, seq, msgspec.msgpack.encode([batch[0] + by_s, *batch[1:]])])
    return later


def batch(ts: float, *blocks: int, parent: int | None = None) -> bytes:
    tokens = tuple(range(4 * len(blocks)))
    return encode_batch(KVEventBatch(ts, [BlockStored(blocks, parent, tokens, 4, medium="GPU")], 0))


RUN1 = Counter(stored=1215, removed=938, cleared=1)


def test_the_recorded_run(messages: list[Frames], subscribe: Subscribe, spool: Spool) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        publisher.send(messages)
        taken(subscriber, messages=244)
        rows = take(spool, "kv_events")
    assert summary(rows) == RUN1
    stored = [row for row in rows if row["action"] == "stored"]
    assert all(row["depth"] is not None for row in rows if "block" in row)
    assert [row["depth"] for row in stored if row["parent"] is None] == [0] * sum(
        r["parent"] is None for r in stored
    )
    assert {row["token_count"] for row in stored} == {32}
    assert {(row["source"], row["rank"], row["medium"]) for row in stored} == {("kv@tiny", 0, "GPU")}
    salted = {row["extra_keys"] for row in stored if "extra_keys" in row}
    assert salted == {f'["{pseudonym(salt)}"]' for salt in ("tenant-0", "tenant-1")}
    assert not any("tenant" in json.dumps(row) for row in rows)
    assert not any("token_ids" in json.dumps(row) for row in rows)
    order = [(row["epoch"], row["seq"], row["pos"]) for row in rows]
    assert order == sorted(order)
    assert len(set(order)) == len(order)
    cleared = next(row for row in rows if row["action"] == "cleared")
    after = [row["action"] for row in rows if row["seq"] == cleared["seq"] and row["pos"] > cleared["pos"]]
    assert after == ["stored"] * len(after) != [], (
        "the clear comes with the step after it, before what that stored"
    )


def test_the_publisher_may_be_the_one_that_connects(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        events = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    subscriber = subscribe(events=events, bind=True)
    with Publisher(connect_to=events) as publisher:
        publisher.wait_for_subscriber()
        publisher.send(messages)
        taken(subscriber, messages=244)
    assert summary(take(spool, "kv_events")) == RUN1


@pytest.mark.parametrize("old_replies", [False, True], ids=["with topic", "before 0.26"])
def test_gaps_are_replayed(
    old_replies: bool, messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with Publisher(old_replies=old_replies) as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        wait_until(lambda: publisher.requests)
        publisher.send(messages, lose=[5, *range(100, 150), 200])
        taken(subscriber, messages=244)
    status = subscriber.status()
    assert summary(take(spool, "kv_events")) == RUN1
    assert status.counts["gaps"] == 0
    assert 2 <= status.counts["replays"] <= 4, "at the start, and at most one for each gap"


def test_a_replay_with_holes_is_asked_for_again(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    """A ROUTER drops replies beyond its high-water mark, silently, and the end marker with them."""
    with Publisher(reply_hwm=60) as publisher:
        publisher.send(messages)
        subscriber = subscribe(publisher, replay_timeout_s=0.2)
        taken(subscriber, messages=244)
        assert len(publisher.requests) > 1
    assert summary(take(spool, "kv_events")) == RUN1


def test_who_comes_late_gets_what_was_before(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with Publisher() as publisher:
        publisher.send(messages[:200])
        subscriber = subscribe(publisher)
        taken(subscriber, messages=200)
        publisher.wait_for_subscriber()
        publisher.send(messages[200:])
        taken(subscriber, messages=244)
    rows = take(spool, "kv_events")
    assert summary(rows) == RUN1
    assert all(row["depth"] is not None for row in rows if row["action"] == "stored")


def test_what_cannot_be_replayed_is_told(messages: list[Frames], subscribe: Subscribe, spool: Spool) -> None:
    with Publisher(buffer=100) as publisher:
        publisher.send(messages)
        subscriber = subscribe(publisher)
        taken(subscriber, messages=100)
    rows = take(spool, "kv_events")
    assert (rows[0]["action"], rows[0]["seq"], rows[0]["pos"]) == ("gap", 0, 0)
    assert json.loads(rows[0]["detail"]) == {"missing": {"first": 0, "last": 143, "count": 144}}
    assert "144 missing" in subscriber.status().detail
    assert any(row["depth"] is None for row in rows if row["action"] == "stored"), (
        "their parents were not seen"
    )


def test_without_a_replay_socket_gaps_stay(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher, replay="")
        publisher.wait_for_subscriber()
        publisher.send(messages, lose=range(10, 20))
        taken(subscriber, messages=234)
    gaps = [row for row in take(spool, "kv_events") if row["action"] == "gap"]
    assert [json.loads(gap["detail"])["missing"] for gap in gaps] == [{"first": 10, "last": 19, "count": 10}]
    assert "no replay socket given" in subscriber.status().detail


@pytest.mark.parametrize("there", [False, True], ids=["nobody listens", "who listens is silent"])
def test_a_replay_socket_that_does_not_answer_is_left_alone(
    there: bool, messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    """Live events would wait for its answer at every gap."""
    with Publisher() as publisher, socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if there else 1
        subscriber = subscribe(publisher, replay=f"tcp://127.0.0.1:{port}", replay_timeout_s=0.1)
        publisher.wait_for_subscriber()
        publisher.send(messages, lose=[10, 20, 30])
        taken(subscriber, messages=241)
    status = subscriber.status()
    assert (status.counts["replays_unanswered"], status.counts["replays_put_off"]) == (1, 3)
    assert summary(take(spool, "kv_events"))["gap"] == 3
    assert "does not answer" in status.detail


def test_a_replay_socket_that_comes_back_is_asked_again(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with Publisher() as publisher:
        publisher.silent = True
        subscriber = subscribe(publisher, replay_timeout_s=0.1, replay_pause_s=0.01)
        publisher.wait_for_subscriber()
        taken(subscriber, replays_unanswered=1)
        publisher.silent = False
        time.sleep(0.05)  # longer than the pause
        publisher.send(messages, lose=[10])
        taken(subscriber, messages=244)
    assert summary(take(spool, "kv_events")) == RUN1
    assert "does not answer" not in subscriber.status().detail


def test_sglang_speaks_the_same_frames(subscribe: Subscribe, spool: Spool) -> None:
    """Read, not run live: no topic, replies without one, batches of three, signed hashes, a page of one token."""
    page = ["BlockStored", [-5, -4, -3], None, [7, 8, 9], 1, None, "GPU"]
    new_page = {"type": "BlockStored", "block_hashes": [-2], "parent_block_hash": -3, "token_ids": [10]}
    new_page |= {"block_size": 1, "medium": "CPU_PINNED", "cache_salt": "tenant-1", "lora_name": "sql"}
    events = [[page], [new_page], [{"type": "BlockRemoved", "block_hashes": [-3], "medium": "GPU"}]]
    sent = [
        [b"", n.to_bytes(8, "big"), msgspec.msgpack.encode([int(time.time()) + n, batch, 3])]
        for n, batch in enumerate(events)
    ]
    with Publisher(old_replies=True) as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        wait_until(lambda: publisher.requests)
        publisher.send(sent, lose=[0, 1])
        taken(subscriber, messages=3)
    rows = take(spool, "kv_events")
    assert [
        (row["action"], 2**64 - row["block"], row["depth"], row["tier"], row["rank"]) for row in rows
    ] == [
        ("stored", 5, 0, "device", 3),
        ("stored", 4, 1, "device", 3),
        ("stored", 3, 2, "device", 3),
        ("stored", 2, 3, "host", 3),
        ("removed", 3, 2, "device", 3),
    ]
    assert {row["source"] for row in rows} == {""}
    assert (rows[3]["medium"], rows[3]["lora_name"], rows[3]["token_count"]) == ("CPU_PINNED", "sql", 1)
    assert rows[3]["extra_keys"] == f'["{pseudonym("tenant-1")}"]'


def test_a_restart_begins_a_new_life(messages: list[Frames], subscribe: Subscribe, spool: Spool) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        publisher.send(messages)
        taken(subscriber, messages=244)
        publisher.buffer.clear()
        publisher.send(restarted(messages))
        taken(subscriber, messages=488)
    rows = take(spool, "kv_events")
    assert summary(rows) == RUN1 + RUN1 + Counter(restart=1)
    assert len({row["epoch"] for row in rows}) == 2
    assert subscriber.status().counts["restarts"] == 1


@pytest.mark.parametrize(
    "lost", [range(3), range(150)], ids=["its beginning lost", "lost beyond where the old one was"]
)
def test_a_restart_that_was_missed(
    lost: range, messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        publisher.send(messages[:100])
        taken(subscriber, messages=100)
        publisher.buffer.clear()
        publisher.send(restarted(messages), lose=lost)
        taken(subscriber, messages=344)
    rows = take(spool, "kv_events")
    first_life = min(row["epoch"] for row in rows)
    assert summary([row for row in rows if row["epoch"] > first_life]) == RUN1 + Counter(restart=1)
    assert subscriber.status().counts["missing"] == 0


def test_duplicates_are_left_out(messages: list[Frames], subscribe: Subscribe, spool: Spool) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        wait_until(lambda: publisher.requests)
        publisher.send([*messages[:50], *messages[:50], *messages[30:]])
        taken(subscriber, messages=244, duplicates=70)
    assert summary(take(spool, "kv_events")) == RUN1


def test_a_collector_that_starts_again_adds_nothing(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with Publisher() as publisher:
        publisher.send(messages)
        first = subscribe(publisher)
        taken(first, messages=244)
        first.stop()
        assert summary(take(spool, "kv_events")) == RUN1
        second = subscribe(publisher)
        taken(second, messages=244)
    assert take(spool, "kv_events") == []


def test_it_goes_on_where_the_store_stands(
    messages: list[Frames], subscribe: Subscribe, spool: Spool, db: Any
) -> None:
    """The replay buffer has lost its beginning: without the store, blocks would have no depth and come in twice."""

    def to_store() -> None:
        sealed = spool.seal("kv_events", 1_000_000, 1 << 30)
        assert sealed is not None
        db.client.raw_insert("kv_events", insert_block=spool.payload(sealed), fmt="JSONEachRow")
        spool.done(sealed)

    def positions() -> dict[str, Position]:
        return Stored(lambda: connect(db.dsn)).kv_positions("s", 0)

    with Publisher() as publisher:
        publisher.send(messages[:200])
        first = subscribe(publisher, positions)
        taken(first, messages=200)
        first.stop()
        to_store()
        publisher.send(messages[200:])
        for _ in range(150):
            publisher.buffer.popleft()
        second = subscribe(publisher, positions)
        taken(second, messages=44)
        assert publisher.requests == [0, 199]
    assert second.status().counts["missing"] == 0
    to_store()
    rows = db.client.query(
        "SELECT action, count(), countIf(depth IS NULL AND action = 'stored'), uniqExact(epoch, seq, pos)"
        " FROM kv_events GROUP BY action ORDER BY action"
    ).result_rows
    assert rows == [("stored", 1215, 0, 1215), ("removed", 938, 0, 938), ("cleared", 1, 0, 1)]


def test_the_store_tells_of_another_life(messages: list[Frames], subscribe: Subscribe, spool: Spool) -> None:
    """The publisher was restarted while no collector ran, and has come past the number where the old one was."""
    old = KvStream("s", "kv@tiny", 0)
    for _, seq, payload in messages[:100]:
        old.take(Message.read(int.from_bytes(seq, "big"), payload, 1.5e9))
    assert old.position
    position = old.position
    with Publisher() as publisher:
        publisher.send(restarted(messages))
        subscriber = subscribe(publisher, lambda: {"kv@tiny": position})
        taken(subscriber, messages=244)
        assert publisher.requests == [99, 0]
    assert summary(take(spool, "kv_events")) == RUN1 + Counter(restart=1)


def test_bad_messages_are_counted_and_the_rest_is_kept(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    topic = messages[0][0]
    ts = msgspec.msgpack.decode(messages[0][2])[0]

    def number(n: int) -> bytes:
        return n.to_bytes(8, "big")

    sent = [
        messages[0],
        [topic, number(1), messages[1][2][:50]],
        [topic, b"short", b"x"],
        [topic],
        [topic, number(2), msgspec.msgpack.encode([ts + 1, [["BlockFrobbed", [1, 2, 3], "why"]], 0])],
        [topic, number(3), batch(1e12, 1)],
        [topic, number(4), batch(float("nan"), 1)],
        [topic, number(5), batch(ts + 2, 7), b"an", b"extra", b"frame"],
    ]
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        publisher.send(sent)
        taken(subscriber, messages=6, malformed=2)
    rows = [row for row in take(spool, "kv_events") if row["seq"]]
    assert [(row["seq"], row["action"]) for row in rows] == [
        (1, "unknown"),
        (2, "unknown"),
        (3, "unknown"),
        (4, "unknown"),
        (5, "stored"),
    ]
    assert "error" in json.loads(rows[0]["detail"])
    assert json.loads(rows[1]["detail"])["type"] == "BlockFrobbed"
    assert "[1" not in rows[1]["detail"], "what may be token ids is not kept"
    assert all(row["time"] >= ts - 1 for row in rows)
    counts = subscriber.status().counts
    assert (counts["unreadable"], counts["unknown"]) == (3, 1)


def test_depth_is_unknown_below_an_unknown_parent() -> None:
    stream = KvStream("s", "", 0)
    entries = [
        *stream.take(Message.read(0, batch(1.5e9, 1, 2), 1.5e9)),
        *stream.take(Message.read(1, batch(1.5e9 + 1, 3, parent=2), 1.5e9)),
        *stream.take(Message.read(2, batch(1.5e9 + 2, 9, parent=8), 1.5e9)),
        *stream.take(Message.read(3, encode_batch(KVEventBatch(1.5e9 + 3, [AllBlocksCleared()], 0)), 1.5e9)),
    ]
    rows = [json.loads(line) for entry in entries for line in entry.payload.splitlines()]
    assert [(row.get("block"), row.get("depth")) for row in rows] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (9, None),
        (None, None),
    ]


def test_memory_for_depths_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.kv.rows.MAX_DEPTHS", 3)
    stream = KvStream("s", "", 0)
    stream.take(Message.read(0, batch(1.5e9, 1, 2, 3), 1.5e9))
    stream.take(Message.read(1, batch(1.5e9 + 1, 4, parent=1), 1.5e9))
    (entry,) = stream.take(Message.read(2, batch(1.5e9 + 2, 5, parent=1), 1.5e9))
    assert json.loads(entry.payload)["depth"] == 1, "a block that others follow is remembered"
    (entry,) = stream.take(Message.read(3, batch(1.5e9 + 3, 6, parent=2), 1.5e9))
    assert json.loads(entry.payload)["depth"] is None


def test_an_address_in_use_is_said(subscribe: Subscribe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken_port:
        address = f"tcp://127.0.0.1:{taken_port.getsockname()[1]}"
        with pytest.raises(UserError, match=r"cannot listen on .*Address already in use"):
            subscribe(events=address, bind=True)
    with pytest.raises(UserError, match="cannot connect to nonsense"):
        subscribe(events="nonsense")


@pytest.mark.parametrize(
    ("endpoint", "connects"),
    [
        ("tcp://*:5557", False),
        ("tcp://[::]:5557", False),
        ("ipc:///run/kv", False),
        ("inproc://kv", False),
        ("tcp://127.0.0.1:5557", True),
        ("tcp://collector:5557", True),
    ],
)
def test_who_binds(endpoint: str, connects: bool) -> None:
    assert publisher_connects(endpoint) is connects


def test_who_binds_with_sglang() -> None:
    assert publisher_connects("tcp://0.0.0.0:5557") is True
    assert publisher_connects("tcp://0.0.0.0:5557", any_ipv4_binds=True) is False
    assert publisher_connects("tcp://*:5557", bind=False) is True
    assert publisher_connects("tcp://host:5557", bind=True) is False


def test_ranks_are_on_consecutive_ports() -> None:
    assert [of_rank("tcp://*:5557", rank) for rank in range(3)] == [
        "tcp://*:5557",
        "tcp://*:5558",
        "tcp://*:5559",
    ]
    assert of_rank("", 2) == ""


@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), max_size=10))
def test_every_message_is_taken_once_or_told_missing(arrivals: list[int], late: list[int]) -> None:
    """In whatever order the messages of one life arrive, up to the last one each is either stored or in a gap."""
    stream, rows = KvStream("s", "", 0), []
    for number in [*arrivals, *late]:
        message = Message.read(number, batch(1.5e9 + number, number), 1.5e9)
        rows += [json.loads(line) for entry in stream.take(message) for line in entry.payload.splitlines()]
    taken_once = Counter(row["seq"] for row in rows if row["action"] == "stored")
    missing = Counter(
        number
        for row in rows
        if row["action"] == "gap"
        for number in range(row["seq"], json.loads(row["detail"])["missing"]["last"] + 1)
    )
    assert taken_once + missing == Counter(range(stream.last + 1))
    assert [(row["seq"], row["pos"]) for row in rows] == sorted((row["seq"], row["pos"]) for row in rows)


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_any_payload_is_survived(payload: bytes, number: int) -> None:
    stream = KvStream("s", "", 0)
    for entry in stream.take(Message.read(number, payload, 1.5e9)):
        assert all(json.loads(line)["action"] in ("gap", "unknown") for line in entry.payload.splitlines())


def test_an_event_without_blocks_costs_nothing_but_itself() -> None:
    odd = KVEventBatch(1.8e9, [BlockStored([], token_ids=[1, 2]), BlockStored([7], token_ids=[1])], 0)
    stream = KvStream("s", "topic", 0)
    entries = stream.take(Message.read(0, encode_batch(odd), 1.8e9))
    assert [entry.rows for entry in entries] == [1]


def test_the_store_tells_depths_by_group(db: Any) -> None:
    rows = [
        {"block": 2**64 - 1, "depth": 5, "group_idx": None},
        {"block": 2**64 - 1, "depth": 2, "group_idx": 3},
        {"block": 7, "depth": 0, "group_idx": 0},
    ]
    shared = {
        "time": 1.8e9,
        "server": "s",
        "source": "t",
        "rank": 0,
        "epoch": 1.8e9,
        "pos": 1,
        "action": "stored",
    }
    lines = [json.dumps(shared | row | {"seq": seq}) for seq, row in enumerate(rows)]
    db.client.raw_insert("kv_events", insert_block="\n".join(lines).encode(), fmt="JSONEachRow")
    position = Stored(lambda: connect(db.dsn)).kv_positions("s", 0)["t"]
    assert position.depths == {depth_key(2**64 - 1, None): 5, depth_key(2**64 - 1, 3): 2, depth_key(7, 0): 0}


def test_events_of_long_ago_are_told_and_not_stored() -> None:
    """Each day is a partition, and an insert may touch no more than a thousand of them."""
    now, day = 1.8e9, 86_400
    stream, rows = KvStream("s", "", 0), []
    for seq, age in enumerate([0, 399, 401, 3000, -2]):
        for entry in stream.take(Message.read(seq, batch(now - age * day, seq + 1), now)):
            rows += [json.loads(line) for line in entry.payload.splitlines()]
    assert [row["action"] for row in rows] == ["stored", "stored", "unknown", "unknown", "unknown"]
    assert all(now - 400 * day <= row["time"] <= now + day for row in rows)
    assert stream.counts["bad_time"] == 3
