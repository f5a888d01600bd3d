"""From the store to what is said of each request, and how much of it is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.alignments import climb_by_laws, laws
from analysis.misses.choice import selected
from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD
from analysis.misses.parts import HITS, named, split
from analysis.misses.reader import read
from analysis.report.reader import label_names
from cachemodel.alignment import Alignment
from tests.planted.book import Planted

Parts = Mapping[str, int]


@dataclass(frozen=True)
class Climbed:
    """parts: of each request, hits of all tiers together. recomputed: of each, as the server told. laws: by server,
    where they are known."""

    parts: dict[str, Parts]
    recomputed: dict[str, int]
    laws: Mapping[str, Alignment]


def climbed(client: Client, *, usage: bool = True) -> Climbed:
    """Take all requests of the store through the ladder, as `hitmap misses` does. usage: without it nobody says what
    was served, and the ladder estimates it from chains and events."""
    reading = read(client, selected(client, "", datetime.now(UTC), label_names(client)))
    chains = reading.chains
    read_too = (reading.events, reading.blocks_sent, reading.pieces_sent)
    ladder, known = climb_by_laws(reading, laws(chains, {}))
    if not usage:
        chains = replace(chains, cached=np.full(chains.n, NOT_TOLD))
        ladder = climb(chains, *read_too, known.alignments)
    assert np.array_equal(ladder.served[:, -1], chains.prompt)
    assert bool((np.diff(ladder.served, axis=1) >= 0).all())
    tiers = reading.asked.tiers if usage else np.full_like(reading.asked.tiers, NOT_TOLD)
    ids = [str(request_id) for request_id in reading.asked.request_id]
    rows = split(ladder, tiers)
    return Climbed(
        {request_id: _hits_together(named(row)) for request_id, row in zip(ids, rows, strict=True)},
        dict(zip(ids, chains.recomputed.tolist(), strict=True)),
        known.alignments,
    )


def _hits_together(parts: Parts) -> Parts:
    found: Counter[str] = Counter()
    for part, tokens in parts.items():
        found["hit" if part in HITS else part] += tokens
    return dict(found)


def right(planted: Iterable[Planted], told: Mapping[str, Parts]) -> tuple[int, int]:
    """Tokens whose part is told right, and all tokens."""
    good = whole = 0
    for one in planted:
        parts = told[one.request_id]
        good += sum(min(tokens, parts.get(part, 0)) for part, tokens in one.truth.items())
        whole += sum(one.truth.values())
    return good, whole


def table(cases: Mapping[str, Iterable[Planted]], told: Mapping[str, Parts]) -> str:
    """A line a case: the share that is right, the truth and what was told."""
    lines = [f"{'case':32} {'right':>8}   truth -> told"]
    for case, planted in cases.items():
        good, whole = right(planted, told)
        truth: Counter[str] = Counter()
        found: Counter[str] = Counter()
        for one in planted:
            truth.update(one.truth)
            found.update(told[one.request_id])
        lines.append(f"{case:32} {good / whole:8.2%}   {_said(truth)} -> {_said(found)}")
    return "\n".join(lines)


def _said(parts: Parts) -> str:
    return ", ".join(f"{part} {tokens}" for part, tokens in sorted(parts.items()))
