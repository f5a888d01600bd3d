"""Replicas that follow a rule and a law, and what their telemetry tells of them: the columns that the ladder climbs.

Prompts are lists of token ids. Every request is served at once, in the order in which it is asked, and its blocks are
stored then. Times are seconds after START.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np

from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Sent
from cachemodel.alignment import Alignment
from cachemodel.content import ContentHasher
from collector.chains.memory import ChainMemory
from collector.chains.pieces import ends

START = 1_800_000_000_000_000
HASHER = ContentHasher(b"planted field reports")
_STEP_S = 0.02  # from arrival to the end of the engine's step, when it tells what it stored
_US = 1_000_000


@dataclass
class Cache:
    """One replica. law: how it reuses what it holds; blocks: room, without end where None; block: tokens of each.

    keyed: what of a salt or adapter is part of its keys. Least recently used blocks go first, leaves before roots.
    """

    law: Alignment
    blocks: int | None = None
    block: int = 16
    keyed: Callable[[str], str] = str
    held: dict[tuple[int, int], None] = field(default_factory=dict)

    def run(self, contents: Sequence[int], isolation: int) -> int:
        """Leading blocks that it holds."""
        for depth, content in enumerate(contents):
            if (content, isolation) not in self.held:
                return depth
        return len(contents)


class _Asked(NamedTuple):
    server: int
    at: float
    isolation: int
    prompt: int
    cached: int
    recomputed: int
    reads_off: bool
    contents: list[int]
    split: tuple[int, int]
    pieces: list[tuple[int, int]]


class _Event(NamedTuple):
    at: float
    holder: int
    action: Action
    content: int = 0
    isolation: int = 0


class Fleet:
    """Replicas by name. told: those that publish KV events; all where not given."""

    def __init__(self, caches: Mapping[str, Cache], told: Sequence[str] | None = None) -> None:
        self.caches = dict(caches)
        self.names = tuple(caches)
        self._told = {*(self.names if told is None else told)}
        self._memory = ChainMemory()
        self._asked: list[_Asked] = []
        self._events: list[_Event] = []

    def ask(
        self,
        server: str,
        tokens: Sequence[int],
        at: float,
        key: str = "",
        cached: int | None = None,
        recomputed: int = 0,
        reads_off: bool = False,
    ) -> int:
        """Send a prompt; tokens that were served. key: its salt or adapter; cached: what the server tells, where that
        is not what its law gives; reads_off: an option of the request keeps it from reading the cache."""
        cache, index = self.caches[server], self.names.index(server)
        contents = list(HASHER.chain(tokens, cache.block))
        isolation = HASHER.isolation(0, [key])
        held_under = HASHER.isolation(0, [cache.keyed(key)])
        run = 0 if reads_off else cache.run(contents, held_under)
        served = cache.law.served(len(tokens), run * cache.block)
        self._store(index, contents, held_under, isolation, at + _STEP_S)
        split = self._memory.take(contents, tokens, cache.block)
        told = served if cached is None else cached
        pieces = _pieces(tokens, split.depth * cache.block)
        self._asked.append(
            _Asked(index, at, isolation, len(tokens), told, recomputed, reads_off, contents, split, pieces)
        )
        return told

    def clear(self, server: str, at: float) -> None:
        """Empty a cache."""
        self.caches[server].held.clear()
        self._events.append(_Event(at, self.names.index(server), Action.CLEARED))

    def _store(self, index: int, contents: list[int], held_under: int, isolation: int, at: float) -> None:
        cache = self.caches[self.names[index]]
        new = [content for content in contents if (content, held_under) not in cache.held]
        for content in reversed(contents):  # the root is used last, so that leaves go first
            cache.held.pop((content, held_under), None)
            cache.held[content, held_under] = None
        while cache.blocks is not None and len(cache.held) > cache.blocks:
            content, under = next(iter(cache.held))
            del cache.held[content, under]
            self._events.append(_Event(at, index, Action.REMOVED, content, under))
        self._events += [_Event(at, index, Action.STORED, content, isolation) for content in new]

    def chains(self) -> Chains:
        """Requests in order of arrival."""
        asked = sorted(self._asked, key=lambda request: request.at)
        lengths = [len(request.contents) for request in asked]
        piece_counts = [len(request.pieces) for request in asked]
        blocks = [self.caches[self.names[request.server]].block for request in asked]
        arrived = _ints([START + round(request.at * _US) for request in asked])
        pieces = [piece for request in asked for piece in request.pieces]
        return Chains(
            servers=self.names,
            server=_ints([request.server for request in asked]),
            holder=_ints([request.server for request in asked]),
            arrived=arrived,
            began=arrived,
            first_token=arrived + round(_STEP_S * _US),
            isolation=_hashes([request.isolation for request in asked]),
            prompt=_ints([request.prompt for request in asked]),
            cached=_ints([request.cached for request in asked]),
            recomputed=_ints([request.recomputed for request in asked]),
            block_size=_ints(blocks),
            reads_off=np.array([request.reads_off for request in asked], dtype=bool),
            known=np.ones(len(asked), dtype=bool),
            offsets=_ints([0, *np.cumsum(lengths).tolist()]),
            blocks=_hashes([content for request in asked for content in request.contents]),
            split_depth=_ints([request.split[0] for request in asked]),
            split_tokens=_ints([request.split[1] for request in asked]),
            pieces_from=_ints(
                [request.split[0] * block for request, block in zip(asked, blocks, strict=True)]
            ),
            piece_offsets=_ints([0, *np.cumsum(piece_counts).tolist()]),
            pieces=_hashes([piece for piece, _ in pieces]),
            piece_tokens=_ints([tokens for _, tokens in pieces]),
        )

    def events(self) -> Events:
        """What was published."""
        events = sorted(
            (event for event in self._events if self.names[event.holder] in self._told),
            key=lambda event: event.at,
        )
        joined = [START - _US if name in self._told else NOT_TOLD for name in self.names]
        return Events(
            holders=tuple((name, 0) for name in self.names),
            time=_ints([START + round(event.at * _US) for event in events]),
            holder=_ints([event.holder for event in events]),
            tier=_ints([0] * len(events)),
            action=_ints([event.action for event in events]),
            content=_hashes([event.content for event in events]),
            isolation=_hashes([event.isolation for event in events]),
            joined=_ints(joined),
        )

    def blocks_sent(self) -> Sent:
        """When each block was first sent to each server under each key."""
        first: dict[tuple[int, int, int], float] = {}
        for request in self._asked:
            for content in request.contents:
                place = content, request.server, request.isolation
                first[place] = min(first.get(place, request.at), request.at)
        return _sent([(content, at, server, key) for (content, server, key), at in first.items()])

    def pieces_sent(self) -> Sent:
        """When each piece was first sent."""
        first: dict[int, float] = {}
        for request in self._asked:
            for piece, _ in request.pieces:
                first[piece] = min(first.get(piece, request.at), request.at)
        return _sent([(piece, at, 0, 0) for piece, at in first.items()])


class Tokens:
    """Token ids of which no two passages have anything in common."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def __call__(self, count: int) -> list[int]:
        return [self._random.randrange(1 << 20) for _ in range(count)]


def _pieces(tokens: Sequence[int], begin: int) -> list[tuple[int, int]]:
    new = tokens[begin:]
    starts = [0, *ends(new)]
    return [(HASHER.piece(new[start:end]), end - start) for start, end in itertools.pairwise(starts)]


def _ints(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def _hashes(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


def _sent(rows: list[tuple[int, float, int, int]]) -> Sent:
    rows = sorted(rows)
    return Sent(
        hash=_hashes([row[0] for row in rows]),
        first=_ints([START + round(row[1] * _US) for row in rows]),
        server=_ints([row[2] for row in rows]),
        isolation=_hashes([row[3] for row in rows]),
    )
