"""Which requests had which pieces in their prompts.

The store tells of a piece who was the first to send it. A request's row has the pieces of what was new in it; what
stood in front of them it shares with earlier ones, whose rows have those pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from clickhouse_connect.driver.client import Client
from numpy.typing import NDArray

from analysis.misses.columns import Columns, at, hours_of
from analysis.misses.model import Hashes, Ints

Sender = tuple[str, int]
"""A server and when a request was sent to it, by the client's clock, microseconds."""


@dataclass(frozen=True)
class Holder:
    """A request and the pieces that its prompt has, in front of what is new in it as well."""

    request_id: str
    time: int
    pieces: Hashes

    def tokens(self, pieces: Hashes, tokens: NDArray[Any]) -> int:
        """How many tokens it has of some pieces, given those of each."""
        return int(tokens[np.isin(pieces, self.pieces)].sum())


def holders(client: Client, senders: Mapping[Sender, int]) -> list[Holder]:
    """Some requests, by time. senders: each with a piece that it was the first to send. Of what stood in front of the
    new part of a prompt only the pieces that another of them has are known."""
    times = sorted({time for _, time in senders})
    told = Columns(
        client,
        f"""
        SELECT request_id, toString(server) AS server_name, toUnixTimestamp64Micro(time) AS sent,
               toInt64(block_size) AS size, toInt64(pieces_from) AS begin, blocks, pieces, piece_tokens
        FROM request_chains
        PREWHERE time IN (SELECT fromUnixTimestamp64Micro(arrayJoin({{times:Array(Int64)}}), 'UTC'))
        WHERE server IN {{its_servers:Array(String)}} AND {hours_of(times)}
            AND time >= {at("earliest")} AND time <= {at("latest")} AND hasAny(pieces, {{some:Array(UInt64)}})
        ORDER BY time, request_id""",
        {
            "times": times,
            "its_servers": sorted({server for server, _ in senders}),
            "earliest": times[0],
            "latest": times[-1],
            "some": sorted(set(senders.values())),
        },
    )
    names, sent = told.texts("request_id").tolist(), told.ints("sent").tolist()
    known = zip(told.texts("server_name").tolist(), sent, strict=True)
    every = _Rows.of(told)
    return [
        Holder(names[row], sent[row], every.pieces_of(row))
        for row, sender in enumerate(known)
        if sender in senders
    ]


@dataclass(frozen=True)
class _Rows:
    """Chains of n requests, q pieces in all. size, begin: (n,) tokens of a block, and the token at which the new part
    begins. row, piece, end: (q,) whose each piece is, and the token before which it ends. depth, block: (q,) of its
    prompt, the last whole block that begins before that token."""

    size: Ints
    begin: Ints
    offsets: Ints
    blocks: Hashes
    row: Ints
    piece: Hashes
    end: Ints
    depth: Ints
    block: Hashes

    @classmethod
    def of(cls, told: Columns) -> _Rows:
        size, begin = told.ints("size"), told.ints("begin")
        (offsets, blocks), (starts, pieces) = told.arrays("blocks"), told.arrays("pieces")
        lengths = told.arrays("piece_tokens")[1].astype(np.int64)
        row = np.repeat(np.arange(told.n), np.diff(starts))
        ends = np.append(0, np.cumsum(lengths))
        end = begin[row] + ends[1:] - ends[starts[row]]
        last = np.diff(offsets)[row] - 1  # -1 of a prompt shorter than a block
        depth = np.minimum(-(-end // np.maximum(size[row], 1)) - 1, last)
        block = np.append(blocks, np.uint64(0))[np.where(depth < 0, len(blocks), offsets[row] + depth)]
        return cls(size, begin, offsets, blocks, row, pieces, end, depth, block)

    def pieces_of(self, row: int) -> Hashes:
        """Its own, and those in front of its new part that stand in a block which names all before it."""
        blocks = self.blocks[self.offsets[row] : self.offsets[row + 1]]
        ahead = (self.end <= self.begin[row]) & (self.size[self.row] == self.size[row])
        ahead &= (self.depth >= 0) & np.isin(self.block, blocks)
        pieces: Hashes = self.piece[(self.row == row) | ahead]
        return pieces
