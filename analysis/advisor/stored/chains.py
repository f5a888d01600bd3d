"""Where prompts part from all that were sent before, by their chains of hashes: position and behaviour without text.

The heatmap says how much content differs at a position. This says what that costs: the tokens behind it that had been
sent before, and so would be found again if nothing were in front of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.advisor.stored.rows import Asked
from analysis.misses.changed import moved_tokens
from analysis.misses.columns import Columns
from analysis.misses.model import Chains, Hashes, Ints, Sent

MOST_PIECES, MOST_BLOCKS = (
    4_000_000,
    20_000_000,
)  # that are compared; of more, those of one request in so many
MOST_PARTINGS = 20
MIN_SHARE = 0.01  # of the prompt tokens: what loses less is not worth a look
_EACH_TIME, _RARELY = 0.9, 0.2
_UNREAD = ("server", "holder", "began", "first_token", "cached", "recomputed")


@dataclass(frozen=True, slots=True)
class Parting:
    """Prompts of a template that part from all before them within one block.

    template: the first digits of its hash, as elsewhere. start, end: tokens [start, end) within which they part.
    requests: that part there, of `of` that come there with the same beginning. lost: tokens behind that had been sent
    before, in runs of 16 and more; behind: all tokens behind. share: `lost` of all prompt tokens looked at. sampled:
    one request in how many was; counts are estimates where that is more than one.
    """

    template: str
    start: int
    end: int
    requests: int
    of: int
    lost: int
    behind: int
    share: float
    sampled: int

    @property
    def behaviour(self) -> str:
        """How what stands there behaves, as far as hashes tell."""
        often = self.requests / self.of
        if often >= _EACH_TIME:
            return "new nearly each time (a clock, an id, a measurement)"
        if often <= _RARELY:
            return "seldom new (a value of a session or user, one of some variants)"
        return "often new (an order, a rewritten history)"

    def __str__(self) -> str:
        tokens = f"{self.start:,}" if self.end - self.start == 1 else f"{self.start:,}-{self.end:,}"
        about = "about " if self.sampled > 1 else ""
        return (
            f"template {self.template}, token {tokens}: {about}{self.requests:,} of {self.of:,} prompts that come there"
            f" part from all before them; what stands there is {self.behaviour}; {about}{self.lost:,} of the"
            f" {self.behind:,} tokens behind ({self.share:.0%} of all prompt tokens) had been sent before"
        )


def partings(client: Client, asked: Asked) -> list[Parting]:
    """Of the requests that are asked for, those first that lose most."""
    ((tokens, pieces, blocks),) = client.query(
        "SELECT sum(prompt_tokens), sum(length(pieces)), sum(length(blocks)) FROM request_chains"
        f" WHERE {asked.told}",
        parameters=dict(asked.parameters),
    ).result_rows
    if not pieces:
        return []
    sampled = max(-(-int(pieces) // MOST_PIECES), -(-int(blocks) // MOST_BLOCKS), 1)
    told = [
        replace(one, share=one.lost / int(tokens)) for one in _told(_read(client, asked, sampled), sampled)
    ]
    told = [one for one in told if one.share >= MIN_SHARE]
    return sorted(told, key=lambda one: (-one.lost, one.template, one.start))[:MOST_PARTINGS]


def _told(parted: _Parted, sampled: int) -> Iterator[Parting]:
    """One for each template and block in which prompts part."""
    keys = np.stack([parted.template, parted.depth.astype(np.uint64)])
    distinct, number = np.unique(keys, axis=1, return_inverse=True)
    order = np.argsort(number.ravel(), kind="stable")
    bounds = np.searchsorted(number.ravel()[order], np.arange(distinct.shape[1] + 1))
    for group, template in enumerate(distinct[0].tolist()):
        mine = order[bounds[group] : bounds[group + 1]]
        yield Parting(
            template=f"{template:016x}"[:8] if template else "(none)",
            start=int(parted.at[mine].min()),
            end=int(parted.at[mine].max()) + 1,
            requests=len(mine) * sampled,
            of=int(parted.visits[mine[0]]) * sampled,
            lost=int(parted.lost[mine].sum()) * sampled,
            behind=int((parted.prompt - parted.at)[mine].sum()) * sampled,
            share=0.0,
            sampled=sampled,
        )


@dataclass(frozen=True)
class _Parted:
    """n prompts that part from all before them: template, the block in which they do and the token (`at`); prompt,
    lost: tokens. visits: prompts of the template that begin as one of those that part there does, up to that block."""

    template: Hashes
    depth: Ints
    at: Ints
    prompt: Ints
    lost: Ints
    visits: Ints


def _read(client: Client, asked: Asked, sampled: int) -> _Parted:
    chosen = f"{asked.told} AND key % {sampled} = 0"
    parts = f"{chosen} AND toUInt64(split_depth) * block_size + split_tokens < prompt_tokens"
    told = Columns(
        client,
        f"""
        SELECT template, toInt64(split_depth) AS split_depth, toInt64(split_tokens) AS split_tokens, visits,
               toInt64(block_size) AS block_size, toInt64(prompt_tokens) AS prompt_tokens,
               toUnixTimestamp64Micro(time) AS sent, toInt64(pieces_from) AS pieces_from, pieces, piece_tokens
        FROM (SELECT * FROM request_chains WHERE {parts} LIMIT 1 BY server, request_id) AS parted
        ANY LEFT JOIN
        (
            SELECT template, toUInt32(place) AS split_depth, count() AS visits
            FROM request_chains
            ARRAY JOIN range(0, length(blocks) + 1) AS place
            WHERE {chosen} AND (template, place, place = 0 ? 0 : blocks[place]) IN
            (
                SELECT template, split_depth, split_depth = 0 ? 0 : blocks[split_depth]
                FROM request_chains WHERE {parts}
            )
            GROUP BY template, split_depth
        ) AS visited
        USING (template, split_depth)
        ORDER BY sent""",
        asked.parameters,
    )
    at = told.ints("split_depth") * told.ints("block_size") + told.ints("split_tokens")
    sent = _sent(client, asked, parts)
    return _Parted(
        template=told.hashes("template"),
        depth=told.ints("split_depth"),
        at=at,
        prompt=told.ints("prompt_tokens"),
        lost=moved_tokens(_chains(told), sent, at),
        visits=told.ints("visits"),
    )


def _sent(client: Client, asked: Asked, parts: str) -> Sent:
    """When their pieces were first part of a prompt, on any server: chains are compared with those of all."""
    told = Columns(
        client,
        f"""
        SELECT piece, toUnixTimestamp64Micro(min(first)) AS us FROM chain_pieces
        WHERE piece IN (SELECT arrayJoin(pieces) FROM request_chains WHERE {parts})
        GROUP BY piece ORDER BY piece""",
        asked.parameters,
    )
    nowhere = np.zeros(told.n, np.int64)
    return Sent(told.hashes("piece"), told.ints("us"), nowhere, nowhere.astype(np.uint64))


def _chains(told: Columns) -> Chains:
    """As far as pieces are asked for: of blocks and of what servers said of these requests nothing is read."""
    offsets, pieces = told.arrays("pieces")
    nothing = np.zeros(told.n, np.int64)
    unread: dict[str, Any] = dict.fromkeys(_UNREAD, nothing)
    unread |= dict.fromkeys(("reads_off", "known"), nothing.astype(np.bool_))
    return Chains(
        **unread,
        servers=(),
        arrived=told.ints("sent"),
        isolation=nothing.astype(np.uint64),
        prompt=told.ints("prompt_tokens"),
        block_size=told.ints("block_size"),
        offsets=np.zeros(told.n + 1, np.int64),
        blocks=np.zeros(0, np.uint64),
        split_depth=told.ints("split_depth"),
        split_tokens=told.ints("split_tokens"),
        pieces_from=told.ints("pieces_from"),
        piece_offsets=offsets,
        pieces=pieces.astype(np.uint64),
        piece_tokens=told.arrays("piece_tokens")[1].astype(np.int64),
    )
