"""What a prompt has that was sent before, but in another place or behind something else."""

from __future__ import annotations

import numpy as np

from analysis.misses.model import Chains, Ints, Sent

SHORTEST_RUN = 16  # tokens; less than that is shared by chance
_NEVER = np.iinfo(np.int64).max


def moved_tokens(chains: Chains, sent: Sent, beyond: Ints) -> Ints:
    """Tokens (n,) past the first `beyond` of each prompt that lie in pieces seen earlier, in runs of 16 and more."""
    counts = np.diff(chains.piece_offsets)
    row = np.repeat(np.arange(chains.n), counts)
    if not len(row):
        return np.zeros(chains.n, np.int64)
    seen = first_seen(chains, sent, row) < chains.arrived[row]
    ends = np.cumsum(chains.piece_tokens)
    before = np.append(0, ends)[chains.piece_offsets[:-1]]
    end = ends + (chains.pieces_from - before)[row]
    begin = end - chains.piece_tokens

    opens = np.ones(len(row), np.bool_)
    opens[1:] = (seen[1:] != seen[:-1]) | (row[1:] != row[:-1])
    heads = np.flatnonzero(opens)
    length = np.add.reduceat(chains.piece_tokens, heads)
    long = (length >= SHORTEST_RUN)[np.cumsum(opens) - 1]
    limit = chains.prompt[row]
    tokens = np.clip(np.minimum(end, limit) - np.maximum(begin, beyond[row]), 0, None)
    moved: Ints = np.bincount(row, weights=np.where(seen & long, tokens, 0), minlength=chains.n).astype(
        np.int64
    )
    return moved


def first_seen(chains: Chains, sent: Sent, row: Ints) -> Ints:
    """When each piece was first part of a prompt."""
    hashes = np.concatenate([chains.pieces, sent.hash])
    times = np.concatenate([chains.arrived[row], sent.first])
    distinct, number = np.unique(hashes, return_inverse=True)
    first = np.full(len(distinct), _NEVER)
    np.minimum.at(first, number, times)
    seen: Ints = first[number[: len(row)]]
    return seen
