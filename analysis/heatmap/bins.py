"""Positions of prompts in columns: single blocks at the beginning, where causes of misses stand, wider ones behind."""

from __future__ import annotations

import numpy as np

from analysis.misses.model import Ints
from analysis.quantiles import Floats

MOST = 60
_FINENESS = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)


def edges(last: int, unit: int, most: int = MOST) -> Ints:
    """(b + 1,) multiples of `unit` from 0 to beyond token `last - 1`, b at most `most`. A column is as wide as a fixed
    share of where it begins, a unit at least: the finest share that needs no more columns. unit: tokens of a block."""
    units = max(1, -(-last // unit))
    for fineness in _FINENESS:
        found = [0]
        while found[-1] < units and len(found) <= most:
            found.append(found[-1] + max(1, found[-1] // fineness))
        if found[-1] >= units:
            return np.array(found, np.int64) * unit
    return np.linspace(0, units, most + 1).astype(np.int64) * unit


def spans(bounds: Ints, block_size: Ints) -> tuple[Ints, Ints]:
    """(n, b) first block and the one behind the last of each column, for blocks of each size: a block belongs to the
    column in which it begins. bounds: (b + 1,) tokens; block_size: (n,)."""
    at = -(-bounds[None, :] // block_size[:, None])
    return at[:, :-1], at[:, 1:]


def covered(row: Ints, rows: int, blocks: Ints, count: Ints, first: Ints, behind: Ints) -> Ints:
    """(rows, b) how many of the first `blocks` blocks of prompts fall into each column. row, blocks, count: (n,) which
    row, of how many blocks, how many prompts; first, behind: (n, b) as `spans` has them."""
    inside = np.clip(blocks[:, None], first, behind) - first
    return _by_row(row, rows, inside * count[:, None])


def reached(row: Ints, rows: int, blocks: Ints, count: Ints, first: Ints, behind: Ints) -> Ints:
    """(rows, b) prompts that have the first block of each column; as `covered`."""
    return _by_row(row, rows, ((blocks[:, None] > first) & (behind > first)) * count[:, None])


def ratio(part: Ints | Floats, whole: Ints | Floats) -> Floats:
    """part / whole, NaN where there is no whole."""
    shares: Floats = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0)
    return shares


def _by_row(row: Ints, rows: int, values: Ints) -> Ints:
    total = np.zeros((rows, values.shape[1]), np.int64)
    np.add.at(total, row, values)
    return total
