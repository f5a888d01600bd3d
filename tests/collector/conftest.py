"""Fixtures of the sources: a spool to fill, a recording to publish, subscribers to a publisher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.kv.subscriber import KvEndpoint, KvSubscriber
from collector.spool import Spool
from collector.tally import Tally
from tests.collector.following import Subscribe
from tests.collector.publisher import Frames, Publisher, recorded
from tests.collector.support import HASHER, Server


@pytest.fixture(scope="module")
def messages(run1: Path) -> list[Frames]:
    """All KV-event messages of run1."""
    return recorded(run1 / "kv_events.jsonl")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """A spool that nobody writes from: tests take what is in it."""
    opened = Spool(tmp_path / "spool.sqlite", Tally())
    yield opened
    opened.close()


@pytest.fixture
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that tries again soon."""
    monkeypatch.setattr("collector.writer.BACKOFF_S", (0.05, 0.2))


@pytest.fixture
def server() -> Iterator[Server]:
    """An HTTP server that answers what a test tells it to."""
    with Server() as running:
        yield running


@pytest.fixture
def subscribe(spool: Spool) -> Iterator[Subscribe]:
    """Starts subscribers on a publisher, or where one will connect, and stops them at the end."""
    running: list[KvSubscriber] = []

    def start(
        publisher: Publisher | None = None,
        positions: Any = dict,
        snapshot: Path | None = None,
        **options: Any,
    ) -> KvSubscriber:
        events = {"events": publisher.events, "replay": publisher.replay} if publisher else {}
        endpoint = KvEndpoint(**{"server": "s", **events, **options})
        subscriber = KvSubscriber(endpoint, spool, positions, hasher=HASHER, snapshot=snapshot)
        subscriber.start()
        running.append(subscriber)
        return subscriber

    yield start
    for subscriber in running:
        subscriber.stop()
