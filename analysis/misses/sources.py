"""Holders of which several sources tell: tensor-parallel ranks, or a connector beside its engine.

A clear, a restart or a gap of one source concerns what that source told of; the ladder knows marks of whole caches.
So what the others hold is told again just behind such a mark, as kv_residency counts by source too: a block is held
while one of its sources says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from analysis.misses.model import Action, Flags, Hashes, Ints

Rows = Mapping[str, Ints | Hashes]
"""Columns holder, source, action, tier, content, isolation, time of events."""
_MOST_LOOKED_AT = 20_000_000  # blocks at marks of a holder; beyond that its marks are gaps
_NEVER = np.iinfo(np.int64).max


def settled(rows: Rows) -> tuple[Ints, Ints, Ints]:
    """Which rows to take, in which order and as which actions, and of each the row at whose time it is told.

    rows: in order of each holder, one holder after the other.
    """
    index, action, at = [], [], []
    breaks = np.flatnonzero(np.diff(rows["holder"])) + 1
    cuts = [0, *breaks.tolist(), len(rows["holder"])]
    for begin, end in pairwise(cuts):
        those = {name: column[begin:end] for name, column in rows.items()}
        if len(np.unique(those["source"])) > 1 and (those["action"] != Action.STORED).any():
            found = _of_holder(those)
        else:
            every = np.arange(end - begin)
            found = every, those["action"].astype(np.int64), every
        index.append(begin + found[0])
        action.append(found[1])
        at.append(begin + found[2])
    return np.concatenate(index), np.concatenate(action), np.concatenate(at)


def _of_holder(rows: Rows) -> tuple[Ints, Ints, Ints]:
    """`settled` for one holder."""
    action, source = (rows[name].astype(np.int64) for name in ("action", "source"))
    every = np.arange(len(action))
    block = (action <= Action.REMOVED) & (rows["content"] != 0)
    group = _groups(rows, block)
    end = _ends(group, source, action)
    stored = np.flatnonzero(block & (action == Action.STORED))
    removed = np.flatnonzero(block & (action == Action.REMOVED))
    gone = np.ones(len(action), np.bool_)
    gone[removed] = ~_held_by_others(group, stored, end, removed)
    marks = np.flatnonzero(action > Action.REMOVED)
    if len(marks) * len(stored) > _MOST_LOOKED_AT:
        return every[gone], np.where(action > Action.REMOVED, int(Action.GAP), action)[gone], every[gone]
    place, taken, become = [every[gone]], [every[gone]], [action[gone]]
    last: dict[int, int] = {}  # by source, its last mark
    for mark in marks.tolist():
        own = int(source[mark])
        nothing = action[mark] != Action.GAP and not (block[:mark] & (source[:mark] == own)).any()
        if nothing and last.get(own) != Action.GAP:  # it had told of none of these blocks
            gone_mark = place[0] != mark
            place[0], taken[0], become[0] = place[0][gone_mark], taken[0][gone_mark], become[0][gone_mark]
        else:
            if any(old == Action.GAP for other, old in last.items() if other != own):
                place.append(np.array([mark]))
                taken.append(np.array([mark]))
                become.append(np.array([int(Action.GAP)]))
            again = stored[(stored < mark) & (end[stored] > mark) & (source[stored] != own)]
            place.append(np.full(len(again), mark))
            taken.append(again)
            become.append(np.full(len(again), int(Action.STORED)))
        last[own] = int(action[mark])
    at = np.concatenate(place)
    order = np.argsort(at, kind="stable")
    return np.concatenate(taken)[order], np.concatenate(become)[order], at[order]


def _groups(rows: Rows, block: Flags) -> Ints:
    """Numbers of blocks on a tier, -1 for what is of no block."""
    columns = np.stack([rows[name][block].astype(np.uint64) for name in ("content", "isolation", "tier")])
    group = np.full(len(block), -1)
    group[block] = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
    return group


def _ends(group: Ints, source: Ints, action: Ints) -> Ints:
    """Where each row's word on its block ends: at the next of its source on that block, or its source's next mark."""
    end = np.full(len(group), _NEVER)
    order = np.lexsort((np.arange(len(group)), source, group))
    same = (group[order][1:] == group[order][:-1]) & (source[order][1:] == source[order][:-1])
    end[order[:-1][same]] = order[1:][same]
    for one in np.unique(source).tolist():
        marks = np.flatnonzero((source == one) & (action > Action.REMOVED))
        mine = np.flatnonzero(source == one)
        following = np.append(marks, _NEVER)[np.searchsorted(marks, mine, side="right")]
        end[mine] = np.minimum(end[mine], following)
    return end


def _held_by_others(group: Ints, stored: Ints, end: Ints, removed: Ints) -> Flags:
    """Whether a block that one source removes is held by the word of another."""
    scale = len(group) + 1
    begun = np.sort(group[stored] * scale + stored)
    ended = np.sort(group[stored] * scale + np.minimum(end[stored], scale - 1))
    base = group[removed] * scale
    held = (np.searchsorted(begun, base + removed) - np.searchsorted(begun, base)) - (
        np.searchsorted(ended, base + removed, side="right") - np.searchsorted(ended, base)
    )
    return held > 0
