"""What the index holds, as samples and in a word."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cachemodel.kv_events import BlockRemoved, BlockStored, Event, KVEventBatch
from collector.kv.gauges import Gauges, summary
from collector.kv.stream import KvStream, Message
from collector.sink import Entry
from collector.spool import Spool
from tests.collector.following import Subscribe, taken
from tests.collector.publisher import Frames, Publisher
from tests.collector.support import HASHER, take, wait_until


def told_of() -> KvStream:
    made = KvStream("s", "kv", 3, hasher=HASHER)
    events: list[Event] = [
        BlockStored([1, 2, 3], None, range(3), 1, medium="GPU"),
        BlockStored([1], None, [0], 1, medium="CPU"),
        BlockStored([9], 8, [0], 1, medium="odd"),
        BlockRemoved([2], "GPU"),
    ]
    made.take(Message(0, 1.7e9, 1.7e9, KVEventBatch(1.7e9, events)))
    made.take(
        Message(2, 1.7e9, 1.7e9 + 1, KVEventBatch(1.7e9 + 1, [BlockStored([5], None, [7], 1, medium="GPU")]))
    )
    return made


def by_kind(entries: list[Entry]) -> dict[str, list[dict[str, Any]]]:
    return {
        entry.kind: [msgspec.json.decode(line) for line in entry.payload.splitlines()] for entry in entries
    }


def test_gauges_by_rank_and_tier() -> None:
    told, gauges = told_of(), Gauges("s")
    first = by_kind(gauges.entries([("kv", 3, told.ranks[3])], 1.7e9))
    series = {row["fingerprint"]: row for row in first["series"]}
    found = {
        (series[row["fingerprint"]]["metric"], series[row["fingerprint"]]["labels"].get("tier")): row["value"]
        for row in first["samples"]
    }
    assert found == {
        ("hitmap.kv_index.resident_blocks", "device"): 1,
        ("hitmap.kv_index.unknown_blocks", "device"): 2,
        ("hitmap.kv_index.resident_blocks", "host"): 0,
        ("hitmap.kv_index.unknown_blocks", "host"): 1,
        ("hitmap.kv_index.resident_blocks", "unknown"): 0,
        ("hitmap.kv_index.unknown_blocks", "unknown"): 1,
        ("hitmap.kv_index.orphans", None): 1,
    }
    assert {(row["server"], row["labels"]["rank"], row["labels"]["source"]) for row in series.values()} == {
        ("s", "3", "kv")
    }
    again = by_kind(gauges.entries([("kv", 3, told.ranks[3])], 1.7e9 + 10))
    assert again.keys() == {"samples"}, "a series is described once"
    assert summary([told.ranks[3]]) == (
        "blocks: 1 held in device, 4 unknown since a gap or clear, 1 whose parent was not seen"
    )


def test_a_subscriber_tells_them(
    messages: list[Frames], subscribe: Subscribe, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.kv.keeper.GAUGES_S", 0.0)
    with Publisher() as publisher:
        publisher.send(messages)
        subscriber = subscribe(publisher)
        taken(subscriber, messages=244)
        wait_until(lambda: subscriber.status().counts["rows"] > 2154 + 9)
        assert "held in device" in subscriber.status().detail
    resident = 1215 - 938
    series = {row["fingerprint"]: row["metric"] for row in take(spool, "series")}
    samples = [
        row for row in take(spool, "samples") if series[row["fingerprint"]].endswith("resident_blocks")
    ]
    assert 0 < samples[-1]["value"] <= resident
