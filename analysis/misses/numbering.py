"""Small numbers for what the ladder compares: contents, and keys, that is contents under their isolation.

Most of a prompt is that of the one before it, so that only what differs is sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.misses.model import Chains, Events, Flags, Hashes, Ints, Sent

NONE = -1


@dataclass(frozen=True)
class Numbers:
    """Numbers in the order in which prompts had the contents first, so that neighbours in a prompt are neighbours here.

    key: (m,) of each block of the chains. event, sent: (e,), (s,) of each event and each thing sent, NONE where the
    content is of no chain. sent_content: (s,) its content, by number too. content: (keys,) of each key. depth, parent:
    (contents,) blocks before it in its chain and the one just before, NONE where it begins a chain. root: (keys,) the
    first block of its chain under the same isolation, NONE where nobody has that. isolations: how many there are.
    """

    key: Ints
    event: Ints
    sent: Ints
    sent_content: Ints
    content: Ints
    depth: Ints
    parent: Ints
    root: Ints
    isolations: int

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return len(self.content)

    @property
    def contents(self) -> int:
        """How many contents there are."""
        return len(self.depth)


def number(chains: Chains, events: Events, sent: Sent) -> Numbers:
    """Number all blocks of the chains, and the events and sendings that are of one of their contents."""
    earlier, shared = _shared_with_earlier(chains)
    lengths = np.diff(chains.offsets)
    fresh = np.flatnonzero(np.arange(len(chains.blocks)) >= np.repeat(chains.offsets[:-1] + shared, lengths))
    row = np.searchsorted(chains.offsets, fresh, side="right") - 1

    known, numbers, content = _numbered(chains.blocks[fresh])
    event_content = _each(known, numbers, events.content)
    event_content[events.content == 0] = NONE
    sent_content = _each(known, numbers, sent.hash)

    contents = np.concatenate([content, event_content, sent_content])
    isolation = np.concatenate([chains.isolation[row], events.isolation, sent.isolation])
    of_chain = contents >= 0
    hashes = distinct(isolation[of_chain])
    if len(hashes) <= 1:
        keys, content_of_key = contents, np.arange(len(known))
    else:
        pairs = contents[of_chain] * len(hashes) + np.searchsorted(hashes, isolation[of_chain])
        distinct_pairs, pair_numbers, found = _numbered(pairs)
        keys = np.full(len(contents), NONE)
        keys[of_chain] = found
        content_of_key = np.empty(len(distinct_pairs), np.int64)
        content_of_key[pair_numbers] = distinct_pairs // len(hashes)
    fresh_key, event, sent_key = np.split(keys, np.cumsum([len(fresh), len(event_content)]))

    key = np.empty(len(chains.blocks), np.int64)
    key[fresh] = fresh_key
    _copy_shared(key, chains.offsets, earlier, shared)
    depth, parent = np.zeros(len(known), np.int64), np.full(len(known), NONE)
    depth[content] = fresh - chains.offsets[row]
    inner = depth[content] > 0
    parent[content[inner]] = content_of_key[key[fresh[inner] - 1]]
    root = np.zeros(len(known), np.int64)
    root[content] = content_of_key[key[chains.offsets[row]]]
    if len(hashes) > 1:
        of_key = np.empty(len(distinct_pairs), np.int64)
        of_key[pair_numbers] = distinct_pairs % len(hashes)
        wanted = root[content_of_key] * len(hashes) + of_key
        at = np.minimum(np.searchsorted(distinct_pairs, wanted), len(distinct_pairs) - 1)
        root = np.where(distinct_pairs[at] == wanted, pair_numbers[at], NONE)
    return Numbers(key, event, sent_key, sent_content, content_of_key, depth, parent, root, len(hashes))


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Distinct values, sorted. NumPy's own `unique` hashes, which takes several times as long on millions."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def leading(flags: Flags, begins: Ints, ends: Ints) -> Ints:
    """How many flags are set from each of `begins` on before one is not, up to its end."""
    unset = np.append(np.flatnonzero(~flags), len(flags))
    after = unset[np.searchsorted(unset[:-1], begins)]
    run: Ints = np.minimum(after, ends) - begins
    return run


def _shared_with_earlier(chains: Chains) -> tuple[Ints, Ints]:
    """For each chain the last one before it that begins with the same block under the same isolation, NONE where there
    is none, and how many blocks from the beginning on they have in common."""
    begins, ends = chains.offsets[:-1], chains.offsets[1:]
    lengths = ends - begins
    earlier = np.full(chains.n, NONE)
    some = np.flatnonzero(lengths > 0)
    first, isolation = chains.blocks[begins[some]], chains.isolation[some]
    order = np.lexsort((some, first, isolation))
    same = (first[order[1:]] == first[order[:-1]]) & (isolation[order[1:]] == isolation[order[:-1]])
    earlier[some[order[1:]][same]] = some[order[:-1]][same]

    has = earlier >= 0
    reach = np.where(has, np.minimum(lengths, lengths[earlier]), 0)
    place = np.arange(len(chains.blocks)) - np.repeat(np.where(has, begins - begins[earlier], 0), lengths)
    equal = chains.blocks[np.minimum(place, len(chains.blocks) - 1)] == chains.blocks
    return earlier, leading(equal, begins, begins + reach)


def _copy_shared(key: Ints, offsets: Ints, earlier: Ints, shared: Ints) -> None:
    """Give blocks that an earlier chain has the numbers that they have there."""
    some = np.flatnonzero(shared)
    to, source = offsets[some], offsets[earlier[some]]
    for begin, begin_there, length in zip(to.tolist(), source.tolist(), shared[some].tolist(), strict=True):
        key[begin : begin + length] = key[begin_there : begin_there + length]


def _numbered(values: NDArray[Any]) -> tuple[NDArray[Any], Ints, Ints]:
    """Distinct values sorted, their numbers by first appearance, and the number of each value."""
    known, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    numbers = np.empty(len(known), np.int64)
    numbers[np.argsort(first)] = np.arange(len(known))
    return known, numbers, numbers[inverse]


def _each(known: Hashes, numbers: Ints, hashes: Hashes) -> Ints:
    """Numbers of many hashes in any order, NONE where not among the known. They are sorted first: looked up as they
    come, each would wait for memory twenty times."""
    if not len(known):
        return np.full(len(hashes), NONE)
    order = np.argsort(hashes)
    ordered = hashes[order]
    new = np.ones(len(hashes), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    wanted = ordered[new]
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found = np.where(known[place] == wanted, numbers[place], NONE)
    out = np.empty(len(hashes), np.int64)
    out[order] = found[np.cumsum(new) - 1]
    return out
