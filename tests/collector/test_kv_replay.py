"""What was missed is asked for again at the replay socket, or told."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter

import pytest

from collector.spool import Spool
from tests.collector.following import RUN1, Subscribe, summary, taken
from tests.collector.publisher import Frames, Publisher
from tests.collector.support import take, wait_until


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
        subscriber = subscribe(publisher, replay_timeout_s=1.0)
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


def test_the_first_ask_waits_for_a_replay_socket_that_is_slow_to_connect(
    messages: list[Frames], subscribe: Subscribe, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was published before would be lost for good."""
    monkeypatch.setattr("collector.kv.subscriber._CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        events, replay = (f"tcp://127.0.0.1:{taken.getsockname()[1]}" for taken in (one, other))
    subscriber = subscribe(events=events, bind=True, replay=replay)
    time.sleep(0.5)  # longer than live events are kept waiting
    publisher = Publisher(connect_to=events, replay=replay)
    publisher.buffer.extend(messages[:200])
    with publisher:
        publisher.wait_for_subscriber()
        publisher.send(messages[200:])
        taken(subscriber, messages=244)
    assert summary(take(spool, "kv_events")) == RUN1
    assert "replays_unanswered" not in subscriber.status().counts


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


def test_a_replay_address_that_is_none_costs_no_live_event(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher, replay="nonsense")
        publisher.wait_for_subscriber()
        publisher.send(messages, lose=[10])
        taken(subscriber, messages=243)
    assert summary(take(spool, "kv_events")) == RUN1 - Counter(stored=1) + Counter(gap=1)
    assert "nonsense" in subscriber.status().detail


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
