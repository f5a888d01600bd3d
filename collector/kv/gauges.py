"""What the index of a publisher holds, as rows of `series` and `samples`. Pure.

    hitmap.kv_index.resident_blocks   blocks that a tier holds
    hitmap.kv_index.unknown_blocks    blocks that it held before a gap or a clear, and of which nothing was told since
    hitmap.kv_index.orphans           blocks whose place in a chain is not known, since their parent was not seen

By server, rank and source: several sources can tell of one cache (tensor-parallel ranks), so sources are not to be
added up. A tier that is not known is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from collector.kv.index import BlockIndex
from collector.series import fingerprint
from collector.sink import Entry

_PREFIX = "hitmap.kv_index."
_encode = msgspec.json.Encoder().encode


class Gauges:
    """The gauges of one server's publishers."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._described: set[int] = set()  # fingerprints whose row of `series` was made

    def entries(self, indexes: Iterable[tuple[str, int, BlockIndex]], now_s: float) -> list[Entry]:
        """A sample of each gauge. indexes: (source, rank, index); now_s: Unix seconds."""
        new, samples = [], []
        for source, rank, index in indexes:
            for name, tier, value in _values(index):
                labels = {"rank": str(rank), "source": source} | ({"tier": tier} if tier else {})
                raw_name = (_PREFIX + name).replace(".", "_")
                key = fingerprint(self._server, raw_name, tuple(labels.items()))
                samples.append({"time": now_s, "fingerprint": key, "value": value, "delta": None})
                if key not in self._described:
                    self._described.add(key)
                    new.append(_series(key, self._server, name, raw_name, labels))
        return [_entry(kind, rows) for kind, rows in (("series", new), ("samples", samples)) if rows]


def summary(indexes: Iterable[BlockIndex]) -> str:
    """The same for a person, of all indexes together; empty where they hold and miss nothing."""
    by_tier: dict[str, int] = {}
    unknown = orphans = forgotten = 0
    for index in indexes:
        for tier, (held, open_) in index.totals().items():
            by_tier[tier] = by_tier.get(tier, 0) + held
            unknown += open_
        orphans += len(index.orphans)
        forgotten += index.counts["forgotten"]
    told = [f"{held:,} held in {tier or 'an unknown tier'}" for tier, held in sorted(by_tier.items()) if held]
    told += [f"{unknown:,} unknown since a gap or clear"] if unknown else []
    told += [f"{orphans:,} whose parent was not seen"] if orphans else []
    told += [f"{forgotten:,} forgotten for room"] if forgotten else []
    return "blocks: " + ", ".join(told) if told else ""


def _values(index: BlockIndex) -> Iterator[tuple[str, str, int]]:
    for tier, (held, unknown) in index.totals().items():
        yield "resident_blocks", tier or "unknown", held
        yield "unknown_blocks", tier or "unknown", unknown
    yield "orphans", "", len(index.orphans)


def _series(key: int, server: str, name: str, raw_name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "fingerprint": key,
        "server": server,
        "metric": _PREFIX + name,
        "raw_name": raw_name,
        "kind": "gauge",
        "unit": "blocks",
        "labels": labels,
    }


def _entry(kind: str, rows: list[dict[str, Any]]) -> Entry:
    return Entry(kind, b"".join(_encode(row) + b"\n" for row in rows), len(rows))
