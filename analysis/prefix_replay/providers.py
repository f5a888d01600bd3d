"""Caches of hosted APIs: entries at some positions of a prompt, with a minimum length and a lifetime."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.identity import beginnings, numbered, runs
from analysis.prefix_replay.model import Ints, Ragged, Requests, Served
from analysis.prefix_replay.rules import ProviderRule
from analysis.prefix_replay.timeline import times


def replay_provider(requests: Requests, rule: ProviderRule) -> Served:
    """Under a ProviderRule. held: the longest beginning under which an entry was there."""
    n, prompts = requests.n, Ragged(requests.tokens, requests.offsets)
    ends, written, read = _positions(requests, rule)
    entries = numbered(beginnings(prompts, requests.isolation, ends))
    sent, first, _ = times(requests)
    reads = np.ones(n, np.bool_) if requests.reads_off is None else ~requests.reads_off
    served, held = np.zeros(n, np.int64), np.zeros(n, np.int64)
    size = int(entries.values.max(initial=-1)) + 1
    columns = (ends.values, ends.offsets, entries.values, written, read)
    lifetime = np.inf if rule.lifetime is None else float(rule.lifetime)
    _run(columns, (sent, first, reads), size, lifetime, rule.refreshed, served, held)
    return Served(served, held)


def _positions(requests: Requests, rule: ProviderRule) -> tuple[Ragged, Any, Any]:
    """Positions of each prompt that matter, ascending, and which of them are written and read."""
    n, lengths = requests.n, requests.lengths
    if not rule.explicit:
        counts = lengths // rule.granularity
        ends = (runs(np.zeros_like(counts), counts) + 1) * rule.granularity
        row = np.repeat(np.arange(n), counts)
        enough = ends >= rule.minimum
        flags = np.ones(int(enough.sum()), np.bool_)
        return Ragged(ends[enough], _offsets(row[enough], n)), flags, flags
    marks = requests.breakpoints or Ragged.empty(n)
    row, mark = np.repeat(np.arange(n), marks.lengths), marks.values
    place = np.arange(len(row)) - np.repeat(marks.offsets[:-1], marks.lengths)
    fine = (mark >= rule.minimum) & (mark <= lengths[row]) & (place < rule.breakpoints)
    row, mark = row[fine], mark[fine].astype(np.int64)
    if requests.parts is None:
        return _all_known(row, mark, n, rule)
    return _looked_back(row, mark, requests.parts, n, rule)


def _all_known(row: Ints, mark: Ints, n: int, rule: ProviderRule) -> tuple[Ragged, Any, Any]:
    """Where the ends of content blocks are not known, only what the sender marked is looked at."""
    order = np.lexsort((mark, row))
    flags = np.ones(len(row), np.bool_)
    return Ragged(mark[order], _offsets(row, n)), flags, flags


def _looked_back(row: Ints, mark: Ints, parts: Ragged, n: int, rule: ProviderRule) -> tuple[Ragged, Any, Any]:
    """What is marked is written; it is read with the ends of the content blocks before it, so many of them."""
    scale = int(max(mark.max(initial=0), parts.values.max(initial=0))) + 1
    place = np.repeat(np.arange(n), parts.lengths) * scale + parts.values.astype(np.int64)
    place.sort()
    marked = row * scale + mark
    before = np.searchsorted(place, marked)
    since = np.maximum(np.searchsorted(place, row * scale), before - rule.look_back)
    near = place[runs(since, before - since)]
    near = near[near % scale >= rule.minimum]
    every = np.unique(np.concatenate([marked, near]))
    flags = np.ones(len(every), np.bool_)
    return Ragged(every % scale, _offsets(every // scale, n)), np.isin(every, marked), flags


def _offsets(row: Ints, n: int) -> Ints:
    counts = np.bincount(row, minlength=n) if len(row) else np.zeros(n, np.int64)
    offsets: Ints = np.append(0, np.cumsum(counts)).astype(np.int64)
    return offsets


@compiled
def _run(columns: Any, of: Any, size: int, lifetime: float, refreshed: bool, served: Any, held: Any) -> None:
    ends, offsets, entries, written, read = columns
    sent, first, reads = of
    ready, until = np.full(size, np.inf), np.full(size, -np.inf)
    for row in range(len(sent)):
        now, found = sent[row], -1
        for at in range(offsets[row], offsets[row + 1]):
            if read[at] and ready[entries[at]] <= now and now <= until[entries[at]]:
                found = at
        if found >= 0:
            held[row] = ends[found]
            if reads[row]:
                served[row] = ends[found]
        for at in range(offsets[row], offsets[row + 1]):
            entry = entries[at]
            there = ready[entry] <= now and now <= until[entry]
            if there and refreshed and (written[at] or (at == found and reads[row])):
                until[entry] = now + lifetime
            elif not there and written[at]:
                pending = ready[entry] > now and until[entry] >= ready[entry]
                if not pending or first[row] < ready[entry]:
                    ready[entry] = first[row]
                until[entry] = (
                    ready[entry] + lifetime if not pending else max(until[entry], ready[entry] + lifetime)
                )
