"""Numbers for beginnings of token sequences: two are equal where tokens, length and isolation are.

The hash of a beginning is the sum, modulo 2^64, of one number for each of its tokens, splitmix64 of (position, token),
so that all beginnings of all sequences are differences of one cumulative sum. Distinct (position, token) have distinct
numbers that look random, so that two of m distinct beginnings collide with a probability of about m * m / 2^65: 4e-8
for 19 million tokens in blocks of 16. Somebody who chooses tokens for it can make some collide; all that this spoils
is the replay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.model import Hashes, Ints, Ragged, Requests

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
    """Hashes (uint64) of the beginnings of each sequence that are `ends` tokens long, in ascending order."""
    n = len(sequences.offsets) - 1
    out = np.empty(len(ends.values), np.uint64)
    if n:
        own = np.zeros(n, np.uint64) if isolation is None else isolation
        tokens = sequences.values.astype(np.uint32, copy=False)
        _sums(tokens, sequences.offsets, ends.values, ends.offsets, own, out)
    return Ragged(out, ends.offsets)


def numbered(hashes: Ragged) -> Ragged:
    """The same with small numbers (int64) in place of hashes, in the order in which they come."""
    size = 1 << (2 * len(hashes.values) + 1).bit_length()
    out = np.empty(len(hashes.values), np.int64)
    _number(hashes.values, np.zeros(size, np.uint64), np.empty(size, np.int32), out)
    return Ragged(out, hashes.offsets)


@compiled
def _sums(tokens: Any, offsets: Any, ends: Any, end_offsets: Any, isolation: Any, out: Any) -> None:
    for row in range(len(offsets) - 1):
        total, at = np.uint64(0), 0
        if isolation[row] != 0:
            total = _mixed(isolation[row])
        for place in range(end_offsets[row], end_offsets[row + 1]):
            while at < ends[place]:
                token = np.uint64(tokens[offsets[row] + at])
                total += _mixed(np.uint64(at) << np.uint64(32) | token)
                at += 1
            out[place] = total


@compiled
def _number(hashes: Any, keys: Any, numbers: Any, out: Any) -> None:
    """keys, numbers: a table with room for twice the hashes, a power of two; 0 is where nothing is."""
    mask, count = np.uint64(len(keys) - 1), 0
    for at in range(len(hashes)):
        key = max(hashes[at], np.uint64(1))
        slot = key & mask
        while keys[slot] != key and keys[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        if keys[slot] == 0:
            keys[slot], numbers[slot] = key, count
            count += 1
        out[at] = numbers[slot]


@compiled
def _mixed(value: Any) -> Any:
    """splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a permutation."""
    mixed = value + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
