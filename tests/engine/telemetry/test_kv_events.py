"""The publisher, read by the collector's own subscriber: live, replayed, lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from cachemodel.errors import UserError
from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, Event, decode_batch
from collector.kv.subscriber import KvEndpoint, KvSubscriber
from collector.spool import Spool
from collector.tally import Tally
from engine.config import EngineConfig
from engine.faults import Faults
from engine.telemetry import Telemetry, TelemetryConfig
from engine.telemetry import kv_events as module
from engine.telemetry.kv_events import KvPublisher
from tests.collector.following import taken
from tests.collector.support import HASHER, take, wait_until

ANY = "tcp://127.0.0.1:*"


def stored(block: int, parent: int | None = None) -> Event:
    return BlockStored([block], parent, list(range(16)), 16, medium="GPU")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path, Tally())
    yield opened
    opened.close()


@pytest.fixture
def publisher() -> Iterator[KvPublisher]:
    opened = KvPublisher(ANY, ANY)
    yield opened
    opened.close()


def rows(publisher: KvPublisher, spool: Spool, messages: int, **endpoint: Any) -> list[dict[str, Any]]:
    replay = endpoint.pop("replay", publisher.replay)
    subscriber = KvSubscriber(KvEndpoint("e", publisher.events, replay, **endpoint), spool, hasher=HASHER)
    subscriber.start()
    try:
        taken(subscriber, messages=messages)
    finally:
        subscriber.stop()
    return take(spool, "kv_events")


def test_who_comes_late_gets_all_of_it_in_order(publisher: KvPublisher, spool: Spool) -> None:
    now = time.time()
    publisher.put(now, [stored(1), stored(2, 1)])
    publisher.put(now + 1, [BlockRemoved([2], "GPU")])
    publisher.put(now + 2, [AllBlocksCleared()])
    told = rows(publisher, spool, 3)
    assert [(row["action"], row["seq"], row["rank"]) for row in told] == [
        ("stored", 0, 0),
        ("stored", 0, 0),
        ("removed", 1, 0),
        ("cleared", 2, 0),
    ]
    assert [row.get("depth") for row in told[:2]] == [0, 1]
    assert told[0]["time"] == pytest.approx(now, abs=1e-6)


def test_it_is_published_live(publisher: KvPublisher) -> None:
    """Frame by frame, as a stock SUB socket sees it."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.connect(publisher.events)
        socket.subscribe("")
        number = 0
        while not socket.poll(50):
            publisher.put(time.time(), [stored(number)])
            number += 1
        topic, seq, payload = socket.recv_multipart()
        batch = decode_batch(payload)
    assert topic == b""
    assert batch.events == [stored(int.from_bytes(seq, "big"))]
    assert batch.rank == 0
    assert not batch.unknown


def test_a_replay_begins_where_it_is_asked_to(publisher: KvPublisher) -> None:
    for number in range(5):
        publisher.put(time.time(), [stored(number)])
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(publisher.replay)
        wait_until(lambda: publisher.counts["published"] == 5)
        socket.send_multipart([b"rubbish"])
        socket.send_multipart([b"", (3).to_bytes(8, "big")])
        got: list[list[bytes]] = []
        while not got or got[-1][2] != b"\xff" * 8:
            assert socket.poll(5000)
            got.append(socket.recv_multipart())
    assert [int.from_bytes(frames[2], "big") for frames in got[:-1]] == [3, 4]
    assert got[-1] == [b"", b"", b"\xff" * 8, b""]


def test_lost_batches_use_their_numbers_and_stay_lost(spool: Spool) -> None:
    faults = Faults(seed=3)
    lossy = KvPublisher(ANY, ANY, loses=faults.loses_events)
    faults.add("lose_events=0.3")
    for number in range(200):
        lossy.put(time.time(), [stored(number)])
    faults.clear()
    lossy.put(time.time(), [stored(200)])
    published, lost = 201 - lossy.counts["lost"], lossy.counts["lost"]
    told = rows(lossy, spool, published)
    lossy.close()
    gaps = [row for row in told if row["action"] == "gap"]
    numbers = {row["seq"] for row in told if row["action"] == "stored"}
    assert 30 < lost < 90
    assert len(numbers) == published
    assert 201 - len(numbers) == lost
    assert len(gaps) == sum(number - 1 not in numbers for number in numbers if number)


def test_what_no_longer_can_be_replayed_is_a_gap(monkeypatch: pytest.MonkeyPatch, spool: Spool) -> None:
    monkeypatch.setattr(module, "KEPT", 10)
    short = KvPublisher(ANY, ANY)
    for number in range(30):
        short.put(time.time(), [stored(number)])
    wait_until(lambda: short.counts["published"] == 30)
    told = rows(short, spool, 10)
    short.close()
    assert [row["action"] for row in told] == ["gap"] + ["stored"] * 10
    assert told[-1]["seq"] == 29


def test_closing_publishes_what_waits() -> None:
    publisher = KvPublisher(ANY, ANY)
    for number in range(1000):
        publisher.put(time.time(), [stored(number)])
    publisher.close()
    assert dict(publisher.counts) == {"published": 1000, "lost": 0}
    publisher.close()


@pytest.mark.parametrize(
    ("events", "replay", "option"), [("tcp://nowhere", "", "--kv-events"), (ANY, "x", "--kv-replay")]
)
def test_an_endpoint_that_cannot_be_bound_is_told(events: str, replay: str, option: str) -> None:
    with pytest.raises(UserError, match=option):
        KvPublisher(events, replay)


def test_it_says_where_it_publishes() -> None:
    telemetry = Telemetry(EngineConfig(), TelemetryConfig(kv_events=ANY, kv_replay=ANY))
    told = telemetry.kv_event_sources()["0"]
    telemetry.close()
    assert told["enable_kv_cache_events"] is True
    assert told["endpoint"].startswith("tcp://127.0.0.1:")
    assert told["replay_endpoint"].startswith("tcp://127.0.0.1:")
    assert told["topic"] == ""
