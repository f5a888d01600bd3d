"""One stream of messages in, rows out: order, depth, time."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.kv_events import AllBlocksCleared, BlockStored, KVEventBatch, encode_batch
from collector.kv.stream import MAX_RANKS, KvStream, Message, Room
from collector.otlp.check import Window
from tests.collector.following import batch
from tests.collector.support import HASHER

START = 1.5e9


def test_depth_is_unknown_below_an_unknown_parent() -> None:
    stream = KvStream("s", "", 0, hasher=HASHER)
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
    monkeypatch.setattr("collector.kv.index.MAX_BLOCKS", 3)
    stream = KvStream("s", "", 0, hasher=HASHER)
    stream.take(Message.read(0, batch(1.5e9, 1, 2, 3), 1.5e9))
    stream.take(Message.read(1, batch(1.5e9 + 1, 4, parent=1), 1.5e9))
    (entry,) = stream.take(Message.read(2, batch(1.5e9 + 2, 5, parent=1), 1.5e9))
    assert json.loads(entry.payload)["depth"] == 1, "a block that others follow is remembered"
    (entry,) = stream.take(Message.read(3, batch(1.5e9 + 3, 6, parent=2), 1.5e9))
    assert json.loads(entry.payload)["depth"] is None


@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), max_size=10))
def test_every_message_is_taken_once_or_told_missing(arrivals: list[int], late: list[int]) -> None:
    """In whatever order the messages of one life arrive, up to the last one each is either stored or in a gap."""
    stream, rows = KvStream("s", "", 0, hasher=HASHER), []
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
    stream = KvStream("s", "", 0, hasher=HASHER)
    for entry in stream.take(Message.read(number, payload, 1.5e9)):
        assert all(json.loads(line)["action"] in ("gap", "unknown") for line in entry.payload.splitlines())


def test_an_event_without_blocks_costs_nothing_but_itself() -> None:
    odd = KVEventBatch(1.8e9, [BlockStored([], token_ids=[1, 2]), BlockStored([7], token_ids=[1])], 0)
    stream = KvStream("s", "topic", 0, hasher=HASHER)
    entries = stream.take(Message.read(0, encode_batch(odd), 1.8e9))
    assert [entry.rows for entry in entries] == [1]


def test_events_of_long_ago_are_told_and_not_stored() -> None:
    """Each day is a partition, and an insert may touch no more than a thousand of them."""
    now, day = 1.8e9, 86_400
    stream, rows = KvStream("s", "", 0, hasher=HASHER), []
    for seq, age in enumerate([0, 399, 401, 3000, -2]):
        for entry in stream.take(Message.read(seq, batch(now - age * day, seq + 1), now)):
            rows += [json.loads(line) for line in entry.payload.splitlines()]
    assert [row["action"] for row in rows] == ["stored", "stored", *["gap", "unknown"] * 3]
    assert all(now - 400 * day <= row["time"] <= now + day for row in rows)
    assert stream.counts["bad_time"] == 3
    assert Message.read(9, batch(now - 800 * day, 9), now, Window(max_age_s=900 * day)).error == ""


def of_rank(rank: int, number: int) -> Message:
    events = [BlockStored([rank + 1], None, range(4), 4, medium="GPU")]
    return Message(number, START, START + number, KVEventBatch(START + number, events, rank))


def test_ranks_are_bounded_and_the_rest_is_counted() -> None:
    stream = KvStream("s", "", 0, hasher=HASHER)
    made = [stream.take(of_rank(number, number)) for number in range(MAX_RANKS + 3)]
    assert list(map(len, made)) == [1] * MAX_RANKS + [0] * 3
    assert len(stream.ranks) == MAX_RANKS
    assert stream.counts["ranks_left_out"] == 3
    assert stream.last == MAX_RANKS + 2, "they leave no gap"
    (known,) = stream.take(of_rank(5, MAX_RANKS + 3))
    assert b'"rank":5' in known.payload
    gaps = stream.take(of_rank(MAX_RANKS, MAX_RANKS + 9))
    assert [json.loads(entry.payload)["action"] for entry in gaps] == ["gap"] * MAX_RANKS
    later = KVEventBatch(START * 1.1, [BlockStored([1], None, range(4), 4)], MAX_RANKS)
    *_, stored = stream.take(Message(0, START * 1.1, START * 1.1, later))
    assert b'"action":"stored"' in stored.payload, "another life begins anew"
    assert list(stream.ranks) == [MAX_RANKS]


def test_the_streams_of_a_publisher_share_the_bound() -> None:
    room = Room()
    one, other = (KvStream("s", topic, 0, hasher=HASHER, room=room) for topic in "ab")
    for number in range(MAX_RANKS):
        one.take(of_rank(number, number))
    assert other.take(of_rank(0, 0)) == []
    assert other.take(of_rank(0, 2)) == [], "nor a gap"
    assert (other.counts["ranks_left_out"], other.ranks) == (2, {})
