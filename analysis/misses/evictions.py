"""Why what had been sent before was no longer held: by what ended a block's last stay in a cache."""

from __future__ import annotations

import numpy as np

from analysis.misses.model import NOT_TOLD, Flags, Ints
from analysis.misses.runs import Beyond, Runs, own_places
from analysis.misses.survey import Survey
from cachemodel.causes import Eviction


def evicted_tokens(runs: Runs, survey: Survey, those: Beyond, held: Flags, begins: Ints, ends: Ints) -> Ints:
    """Tokens [begins, ends) (n,) of each prompt by sub-cause, (n, 4) in the order of Eviction; those of which nothing
    shows how they were lost are in none.

    held: (t,) blocks that were there and of no use behind one that was not; they go with that one.
    """
    size = runs.chains.block_size[those.row]
    first, after = those.depth * size, (those.depth + 1) * size
    # what lies past the last whole block goes with that block
    last = those.depth == those.ends[those.row] - 1
    after = np.where(last, np.maximum(after, ends[those.row]), after)
    tokens = np.minimum(after, ends[those.row]) - np.maximum(first, begins[those.row])
    lost = np.flatnonzero(tokens > 0)
    cause = np.full(len(lost), NOT_TOLD)
    gone = np.flatnonzero(~held[lost])
    at = lost[gone]
    cause[gone] = _causes(runs, survey, those.key[at], those.row[at], own_places(runs, those)[at])
    ahead = np.maximum.accumulate(np.where(held[lost], -1, np.arange(len(lost))))
    same = (ahead >= 0) & (those.row[lost[ahead]] == those.row[lost])
    cause = np.where(same, cause[ahead], NOT_TOLD)
    told = cause >= 0
    kinds = len(Eviction)
    cell = those.row[lost[told]] * kinds + cause[told]
    counted = np.bincount(cell, weights=tokens[lost[told]], minlength=runs.chains.n * kinds)
    evicted: Ints = counted.astype(np.int64).reshape(-1, kinds)
    return evicted


def _causes(runs: Runs, survey: Survey, key: Ints, row: Ints, place: Ints) -> Ints:
    """Index in Eviction of what each block was lost to: on the request's own holder, else wherever it was held last;
    NOT_TOLD where nothing tells, or where it may have been lost another way in a gap. place: of the lookup there."""
    own = runs.positions.holder[row] >= 0
    holder = np.maximum(runs.positions.holder[row], 0)
    arrived = runs.chains.arrived[row]
    first = runs.history.first(key, runs.chains.server[row])
    end = runs.residency.ended(key, holder, place, first, arrived)
    told = own & (end.time != NOT_TOLD)
    cause = np.where(told & ~end.unsure, end.cause, NOT_TOLD)

    rest = np.flatnonzero(~told & ~(own & end.unsure))
    for pairs in survey.pairs(key[rest], row[rest], any_key=True):
        first = runs.history.first(pairs.key, survey.server[pairs.holder])
        arrived = runs.chains.arrived[pairs.row]
        end = runs.residency.ended(pairs.key, pairs.holder, pairs.place, first, arrived)
        order = np.lexsort((end.time, pairs.block))
        latest = np.append(pairs.block[order[1:]] != pairs.block[order[:-1]], True)[: len(order)]
        found = order[latest & (end.time[order] != NOT_TOLD)]
        cause[rest[pairs.block[found]]] = end.cause[found]
        cause[rest[pairs.block[end.unsure]]] = NOT_TOLD
    return cause
