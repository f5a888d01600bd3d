"""Where the prompt tokens of a set of requests came from: the tiers that served them, and why the rest was computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import NOT_TOLD, Ints
from analysis.misses.alignments import climb_by_laws, laws, measured
from analysis.misses.parts import HITS, PARTS, cause_of, split
from analysis.misses.reader import Reading, read
from analysis.quantiles import Floats
from analysis.selection import Selection
from cachemodel.causes import MissCause

COMPUTED = "computed"
CAUSES = tuple(str(cause) for cause in MissCause)
CACHED = HITS.index("cached")
_INTO_CAUSES = np.array([[float(cause_of(part) == cause) for cause in CAUSES] for part in PARTS[len(HITS) :]])


@dataclass(frozen=True)
class Counted:
    """n requests as the store counts them. arrived: microseconds; server: index; cached: tokens; tiers: (3, n) tokens
    by cachemodel.layers.Tier; NaN for NULL."""

    client: Client
    selection: Selection
    arrived: Ints
    request_id: pyarrow.ChunkedArray
    server: Ints
    prompt: Floats
    cached: Floats
    tiers: Floats


@dataclass(frozen=True)
class Sources:
    """names: (s,) tiers, then causes; tokens: (s, n), which add up to `prompt` where known. template: (n,) keyed hashes
    of 63 bits, NOT_TOLD. notes: a sentence each."""

    names: tuple[str, ...]
    tokens: Floats
    prompt: Floats
    template: Ints
    notes: tuple[str, ...] = ()


def by_tier(counted: Counted) -> Sources:
    """By tier, and what was computed."""
    hits = _hits(counted)
    template = np.full(len(counted.prompt), NOT_TOLD)
    return _named(
        HITS, hits, (COMPUTED,), (counted.prompt - hits.sum(axis=0))[None], counted.prompt, template
    )


def by_cause(counted: Counted) -> Sources:
    """By tier and by cause of computing; by tier alone where no prompt is known as a chain."""
    reading, tiers = read(counted.client, counted.selection), by_tier(counted)
    asked = np.flatnonzero(reading.asked.asked)
    row = _rows_of(counted, reading, asked)
    asked, row = asked[row >= 0], row[row >= 0]
    template = np.full(len(tiers.prompt), NOT_TOLD)
    told = reading.asked.template[asked]  # 0 where it is not known
    template[row] = np.where(told > 0, (told >> np.uint64(1)).astype(np.int64), NOT_TOLD)
    if not reading.chains.known[asked].any():
        return replace(tiers, template=template)
    ladder, _ = climb_by_laws(reading, laws(reading.chains, measured(counted.client)))
    parts = split(ladder, reading.asked.tiers)[asked].astype(np.float64)
    prompt, hits = tiers.prompt.copy(), _hits(counted)
    prompt[row], hits[:, row] = parts.sum(axis=1), parts[:, : len(HITS)].T
    causes = np.full((len(CAUSES), len(prompt)), np.nan)
    causes[:, row] = (parts[:, len(HITS) :] @ _INTO_CAUSES).T
    notes = []
    if reading.sampled > 1:
        _as_their_like(causes, prompt - hits.sum(axis=0), counted.server, row)
        notes.append(
            f"why tokens were computed was looked up for one request in {reading.sampled}; the others are taken to be"
            " as those of their server"
        )
    if derived := int(ladder.derived[asked].sum()):
        notes.append(f"{derived:,} requests tell no cached tokens: what they were served is estimated")
    return _named(HITS, hits, CAUSES, causes, prompt, template, notes)


def _hits(counted: Counted) -> Floats:
    """(4, n) tokens by tier, or as cached where tiers do not add up to what was served; NaN where nothing tells."""
    told = np.nan_to_num(counted.tiers)
    cached = np.where(np.isfinite(counted.tiers).any(axis=0), told.sum(axis=0), np.nan)
    cached = np.where(np.isnan(counted.cached), cached, counted.cached)
    whole = told.sum(axis=0) == cached
    hits = np.vstack([np.where(whole, told, 0.0), np.where(whole, 0.0, cached)])
    hits[:, np.isnan(cached)] = np.nan
    return hits


def _named(
    tiers: Sequence[str],
    hits: Floats,
    rest: Sequence[str],
    computed: Floats,
    prompt: Floats,
    template: Ints,
    notes: Sequence[str] = (),
) -> Sources:
    """Without the tiers that are another way to say the same: `cached` where all are told, or the others where none."""
    of_tiers = np.nansum(hits[:CACHED]) > 0 or not np.nansum(hits[CACHED]) > 0
    untold = np.nansum(hits[CACHED]) > 0
    kept = [at for at in range(len(tiers)) if (untold if at == CACHED else of_tiers)]
    names = (*(str(tiers[at]) for at in kept), *rest)
    return Sources(names, np.vstack([hits[kept], computed]), prompt, template, tuple(notes))


def _as_their_like(causes: Floats, computed: Floats, server: Ints, known: Ints) -> None:
    """Fill in the causes of requests that were not looked up: in the shares of their server's others."""
    looked_up = np.zeros(len(computed), np.bool_)
    looked_up[known] = True
    for at in np.unique(server):
        mine = server == at
        share = causes[:, mine & looked_up].sum(axis=1)
        if share.sum() > 0:
            rest = mine & ~looked_up
            causes[:, rest] = np.outer(share / share.sum(), computed[rest])


def _rows_of(counted: Counted, reading: Reading, asked: Ints) -> Ints:
    """Where each of the ladder's requests `asked` stands among those counted, NOT_TOLD where it does not: by id and
    time of arrival; of several that have both alike the first."""
    theirs = pyarrow.array(reading.asked.request_id[asked], pyarrow.string())
    ids = pyarrow.chunked_array([*counted.request_id.chunks, theirs]).combine_chunks().dictionary_encode()
    arrived = np.concatenate([counted.arrived, reading.chains.arrived[asked]])
    pairs = np.stack([ids.indices.to_numpy(), arrived], axis=1)
    code = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    here, there = np.split(code, [len(counted.arrived)])
    order = np.argsort(here, kind="stable")
    at = np.minimum(np.searchsorted(here[order], there), len(order) - 1)
    return np.where(here[order[at]] == there, order[at], NOT_TOLD)
