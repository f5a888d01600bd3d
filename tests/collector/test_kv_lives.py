"""Publisher and collector end and begin again: nothing is stored twice, and no life is taken for another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from collector.kv.stream import KvStream, Message, Position
from collector.resume import Stored
from collector.spool import Spool
from store.client import connect
from tests.collector.following import RUN1, Subscribe, restarted, summary, taken
from tests.collector.publisher import Frames, Publisher
from tests.collector.support import HASHER, take


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
    old = KvStream("s", "kv@tiny", 0, hasher=HASHER)
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


@pytest.mark.parametrize("count", [3, 150], ids=["fewer than before", "more than before"])
def test_what_a_publisher_sends_before_it_is_listened_to_again_is_not_waited_for(
    count: int, messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    """It restarts, sends at once, and then nothing more: no later message shows that some were missed."""
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        publisher.send(messages[:100])
        taken(subscriber, messages=100)
    with Publisher(events=publisher.events, replay=publisher.replay) as again:
        again.send(restarted(messages[:count]), lose=range(count))
        taken(subscriber, messages=100 + count)
    rows = take(spool, "kv_events")
    assert len({row["epoch"] for row in rows}) == 2
    assert summary(rows)["restart"] == 1
    assert subscriber.status().counts["missing"] == 0
