"""Numbers for beginnings of token sequences: two are equal where tokens, length and isolation are.

The hash of a beginning is the sum, modulo 2^64, of one number for each of its tokens, splitmix64 of (position, token),
so that all beginnings of all sequences are differences of one cumulative sum. Distinct (position, token) have distinct
numbers that look random, so that two of m distinct beginnings collide with a probability of about m * m / 2^65: 4e-8
for 19 million tokens in blocks of 16. Somebody who chooses tokens for it can make some collide; all that this spoils
is the replay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analysis.prefix_replay.model import Hashes, Ints, Ragged, Requests

AT_ONCE = 1 << 20  # tokens hashed together: what is in between stays in tens of megabytes
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


def kept(requests: Requests) -> Ragged:
    """What a server can keep of each request: its prompt and what was generated but for the last token, which nobody
    computes anything from."""
    replies = requests.replies
    if replies is None or not len(replies.values):
        return Ragged(requests.tokens, requests.offsets)
    behind = np.maximum(replies.lengths - 1, 0)
    offsets = np.append(0, np.cumsum(requests.lengths + behind))
    values = np.empty(offsets[-1], np.uint32)
    values[runs(offsets[:-1], requests.lengths)] = requests.tokens
    values[runs(offsets[:-1] + requests.lengths, behind)] = replies.values[runs(replies.offsets[:-1], behind)]
    return Ragged(values, offsets)


def runs(begins: Ints, lengths: Ints) -> Ints:
    """begin, begin + 1, ... of each run, one run after the other."""
    before = np.cumsum(lengths) - lengths
    places: Ints = np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))
    return places


def blocks(sequences: Ragged, isolation: Hashes | None, size: int) -> Ragged:
    """A number, from 0 on, for each full block of `size` tokens of each sequence, which names it and all before it."""
    counts = sequences.lengths // size
    ends = Ragged(
        (runs(np.zeros_like(counts), counts) + 1) * size, np.append(0, np.cumsum(counts)).astype(np.int64)
    )
    return numbered(beginnings(sequences, isolation, ends))


def beginnings(sequences: Ragged, isolation: Hashes | None, ends: Ragged) -> Ragged:
    """Hashes (uint64) of the beginnings of each sequence that are `ends` tokens long."""
    n = len(sequences.offsets) - 1
    out = np.empty(len(ends.values), np.uint64)
    row = 0
    while row < n:
        to = int(np.searchsorted(sequences.offsets, sequences.offsets[row] + AT_ONCE, side="right")) - 1
        to = min(n, max(row + 1, to))
        _some(sequences, ends, row, to, out)
        row = to
    if isolation is not None and isolation.any():
        out += np.repeat(np.where(isolation == 0, np.uint64(0), _mixed(isolation)), ends.lengths)
    return Ragged(out, ends.offsets)


def numbered(hashes: Ragged) -> Ragged:
    """The same with small numbers (int64) in place of hashes."""
    _, numbers = np.unique(hashes.values, return_inverse=True)
    return Ragged(numbers.astype(np.int64, copy=False), hashes.offsets)


def _some(sequences: Ragged, ends: Ragged, row: int, to: int, out: Hashes) -> None:
    begins = sequences.offsets[row : to + 1]
    origin = begins[0]
    places = np.arange(begins[-1] - origin) - np.repeat(begins[:-1] - origin, np.diff(begins))
    numbers = _mixed(places.astype(np.uint64) << np.uint64(32) | sequences.values[origin : begins[-1]])
    total = np.zeros(len(numbers) + 1, np.uint64)
    np.cumsum(numbers, out=total[1:])
    some = slice(ends.offsets[row], ends.offsets[to])
    first = np.repeat(begins[:-1] - origin, np.diff(ends.offsets[row : to + 1]))
    out[some] = total[first + ends.values[some]] - total[first]


def _mixed(values: NDArray[np.uint64]) -> Hashes:
    """splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a permutation."""
    mixed = values + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
