"""What the tests of the KV subscriber share: what a recording holds, how it is waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from cachemodel.kv_events import BlockStored, KVEventBatch, encode_batch
from collector.kv.subscriber import KvSubscriber
from tests.collector.publisher import Frames
from tests.collector.support import wait_until

Row = dict[str, Any]


Subscribe = Callable[..., KvSubscriber]


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
