"""How much of each prompt had been sent before: its longest beginning of blocks that were part of an earlier prompt."""

from __future__ import annotations

import numpy as np

from analysis.misses.model import Chains, Hashes, Ints, Sent


def sent_before(chains: Chains, sent: Sent, any_isolation: bool = False) -> Ints:
    """Tokens (n,) of each prompt's beginning that were sent before it arrived, to any server, under its own isolation
    or under any; with the tokens that it shares of the block in which it departs from earlier ones."""
    if any_isolation:
        wanted, keys = np.zeros_like(chains.isolation), sent.hash
    else:
        wanted, keys = spread(chains.isolation), sent.hash ^ spread(sent.isolation)
    run = _run(chains, wanted, *_earliest(keys, sent.first))
    tokens = run * chains.block_size + np.where(run == chains.split_depth, chains.split_tokens, 0)
    bounded: Ints = np.minimum(tokens, chains.prompt)
    return bounded


def _run(chains: Chains, key: Hashes, names: Hashes, first: Ints) -> Ints:
    """Leading blocks (n,) that were sent before. key: (n,) what the contents of a request are looked up with.

    A content names all before it: who sent a block sent those before it too, so that halving the chain finds the run.
    """
    low, high = np.zeros(chains.n, np.int64), np.diff(chains.offsets)
    if not len(names):
        return low
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        wanted = chains.blocks[chains.offsets[open_] + middle] ^ key[open_]
        place = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
        before = (names[place] == wanted) & (first[place] < chains.arrived[open_])
        low[open_] = np.where(before, middle + 1, low[open_])
        high[open_] = np.where(before, high[open_], middle)
    return low


def _earliest(keys: Hashes, first: Ints) -> tuple[Hashes, Ints]:
    """Each key once, sorted, with the earliest time told of it."""
    if not len(keys):
        return keys, first
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[begins], np.minimum.reduceat(first[order], begins)


def spread(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea, Flood, 2014): looks drawn by chance. 0, no isolation, stays."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: Hashes = mixed ^ (mixed >> np.uint64(31))
    return spread
