"""Small worlds for the ladder: prompts as words whose letters are blocks, and what befell those blocks.

"ABC" is a prompt of three full blocks; a block's content stands for all letters up to it. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Ladder, Sent
from cachemodel.alignment import Alignment
from cachemodel.content import ContentHasher

HASHER = ContentHasher(b"small worlds for tests")
BLOCK = 16
_MS = 1000


def contents(word: str) -> list[int]:
    """Contents of the blocks of a prompt."""
    return list(HASHER.chain([ord(letter) for letter in word], 1))


def piece(name: str) -> int:
    """Hash of a piece."""
    return HASHER.text(name)


@dataclass
class Asked:
    """One request: tokens of its prompt that are past the last full block (`more`), what an earlier prompt shares of
    them (`split`), and pieces with their lengths from token `pieces_from` on."""

    word: str
    at: int
    server: str = "a"
    rank: int | None = 0
    began: int | None = None
    first: int | None = None
    salt: int = 0
    more: int = 0
    cached: int = NOT_TOLD
    recomputed: int = NOT_TOLD
    split: tuple[int, int] | None = None
    pieces: list[tuple[str, int]] = field(default_factory=list)
    pieces_from: int = 0
    reads_off: bool = False
    known: bool = True


@dataclass
class World:
    """servers: names, each with the number of its ranks; joined: when the events of each (server, rank) begin to be
    complete, 0 where nothing is said, None for one that tells none. blind: when each last stored an unknown block."""

    servers: dict[str, int] = field(default_factory=lambda: {"a": 1})
    joined: dict[tuple[str, int], int | None] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    rows: list[tuple[int, str, int, Action, int, int, int]] = field(default_factory=list)
    sent_rows: list[tuple[int, int, str, int]] = field(default_factory=list)
    sent_pieces: list[tuple[int, int]] = field(default_factory=list)
    alignments: dict[str, Alignment] = field(default_factory=dict)
    blind: dict[tuple[str, int], int] = field(default_factory=dict)

    def ask(self, word: str, at: int, server: str = "a", **told: Any) -> World:
        """A request. Without `began` it began at once, without `first` its first token came 20 ms later."""
        self.asked.append(Asked(word, at, server, **told))
        return self

    def store(self, word: str, at: int, server: str = "a", *, begin: int = 0, **where: int) -> World:
        """The blocks of a word from `begin` on were stored, in order."""
        return self._blocks(Action.STORED, contents(word)[begin:], at, server, **where)

    def remove(self, word: str, at: int, server: str = "a", *, begin: int = 0, **where: int) -> World:
        """The blocks of a word from `begin` on were removed, the last one first."""
        return self._blocks(Action.REMOVED, contents(word)[begin:][::-1], at, server, **where)

    def mark(self, action: Action, at: int, server: str = "a", rank: int = 0) -> World:
        """Something befell the whole cache."""
        self.rows.append((at, server, rank, action, 0, 0, 0))
        return self

    def served(self, word: str, at: int, server: str = "a", *, found: int = 0, **told: Any) -> World:
        """A request that found so many blocks and stored the rest 10 ms later."""
        self.ask(word, at, server, **told)
        where = {"rank": told.get("rank") or 0, "salt": told.get("salt", 0)}
        return self.store(word, at + 10, server, begin=found, **where)

    def sent(self, word: str, at: int, server: str = "a", salt: int = 0) -> World:
        """A word was part of a prompt before the requests of this world."""
        self.sent_rows += [(content, at, server, salt) for content in contents(word)]
        return self

    def _blocks(
        self,
        action: Action,
        blocks: list[int],
        at: int,
        server: str,
        rank: int = 0,
        tier: int = 0,
        salt: int = 0,
    ) -> World:
        self.rows += [(at, server, rank, action, tier, content, salt) for content in blocks]
        return self

    @property
    def holders(self) -> list[tuple[str, int]]:
        """All ranks of all servers."""
        return [(server, rank) for server, ranks in self.servers.items() for rank in range(ranks)]

    def chains(self) -> Chains:
        """The requests in order of arrival."""
        asked = sorted(self.asked, key=lambda one: one.at)
        names, holders = list(self.servers), self.holders
        words = [contents(one.word) if one.known else [] for one in asked]

        def column(values: list[int]) -> np.ndarray:  # type: ignore[type-arg]
            return np.array(values, dtype=np.int64)

        def hashes(values: list[int]) -> np.ndarray:  # type: ignore[type-arg]
            return np.array(values, dtype=np.uint64)

        return Chains(
            servers=tuple(names),
            server=column([names.index(one.server) for one in asked]),
            holder=column(
                [NOT_TOLD if one.rank is None else holders.index((one.server, one.rank)) for one in asked]
            ),
            arrived=column([one.at * _MS for one in asked]),
            began=column([(one.at if one.began is None else one.began) * _MS for one in asked]),
            first_token=column(
                [
                    NOT_TOLD
                    if one.first == NOT_TOLD
                    else (one.at + 20 if one.first is None else one.first) * _MS
                    for one in asked
                ]
            ),
            isolation=hashes([one.salt for one in asked]),
            prompt=column([len(one.word) * BLOCK + one.more for one in asked]),
            cached=column([one.cached for one in asked]),
            recomputed=column([one.recomputed for one in asked]),
            block_size=column([BLOCK] * len(asked)),
            reads_off=np.array([one.reads_off for one in asked], dtype=np.bool_),
            known=np.array([one.known for one in asked], dtype=np.bool_),
            offsets=column([0, *np.cumsum([len(word) for word in words]).tolist()]),
            blocks=hashes([content for word in words for content in word]),
            split_depth=column([one.split[0] if one.split else len(one.word) + 1 for one in asked]),
            split_tokens=column([one.split[1] if one.split else 0 for one in asked]),
            pieces_from=column([one.pieces_from for one in asked]),
            piece_offsets=column([0, *np.cumsum([len(one.pieces) for one in asked]).tolist()]),
            pieces=hashes([piece(name) for one in asked for name, _ in one.pieces]),
            piece_tokens=column([tokens for one in asked for _, tokens in one.pieces]),
        )

    def events(self) -> Events:
        """The rows, by time; rows of one time in the order in which they were given."""
        holders = self.holders
        rows = sorted(self.rows, key=lambda row: row[0])
        joined = [self.joined.get(holder, 0) for holder in holders]
        blind = [self.blind.get(holder) for holder in holders]
        return Events(
            holders=tuple(holders),
            time=np.array([row[0] * _MS for row in rows], dtype=np.int64),
            holder=np.array([holders.index((row[1], row[2])) for row in rows], dtype=np.int64),
            action=np.array([row[3] for row in rows], dtype=np.int64),
            tier=np.array([row[4] for row in rows], dtype=np.int64),
            content=np.array([row[5] for row in rows], dtype=np.uint64),
            isolation=np.array([row[6] for row in rows], dtype=np.uint64),
            joined=np.array([NOT_TOLD if at is None else at * _MS for at in joined], dtype=np.int64),
            blind=np.array([NOT_TOLD if at is None else at * _MS for at in blind], dtype=np.int64),
        )

    def blocks_sent(self) -> Sent:
        """What was sent before the requests of this world."""
        names = list(self.servers)
        rows = sorted(
            (content, at * _MS, names.index(server), salt) for content, at, server, salt in self.sent_rows
        )
        hashes, first, server, salt = ([row[n] for row in rows] for n in range(4))
        return Sent(
            np.array(hashes, np.uint64),
            np.array(first, np.int64),
            np.array(server, np.int64),
            np.array(salt, np.uint64),
        )

    def pieces_sent(self) -> Sent:
        """Pieces that were sent before the requests of this world."""
        rows = sorted((hash_, at * _MS) for hash_, at in self.sent_pieces)
        n = len(rows)
        return Sent(
            np.array([row[0] for row in rows], np.uint64),
            np.array([row[1] for row in rows], np.int64),
            np.full(n, NOT_TOLD),
            np.zeros(n, np.uint64),
        )

    def climb(self) -> Ladder:
        """What the ladder says of it."""
        return climb(self.chains(), self.events(), self.blocks_sent(), self.pieces_sent(), self.alignments)


PARTS = ("actual", "unaligned", "not_loaded", "elsewhere", "isolated", "evicted", "changed", "cold")


def parts(ladder: Ladder, row: int = -1) -> dict[str, int]:
    """Tokens of one request (the last one) by part, those without any left out; `evicted` by sub-cause."""
    steps = np.diff(ladder.served[row], prepend=0) - ladder.unknown[row]
    told = {name: int(tokens) for name, tokens in zip(PARTS, steps, strict=True) if name != "evicted"}
    for name, tokens in zip(("capacity", "expiry", "clear", "restart"), ladder.evicted[row], strict=True):
        told[name] = int(tokens)
    told["unknown"] = int(ladder.unknown[row].sum())
    assert sum(told.values()) == ladder.served[row, -1]
    return {name: tokens for name, tokens in told.items() if tokens}
