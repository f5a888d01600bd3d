"""Rows of a store that prompts are made of: SQL chooses and joins, what comes back is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from clickhouse_connect.driver.client import Client
from numpy.typing import NDArray

from analysis.misses.columns import Columns, Texts, at, gather
from analysis.misses.model import Flags, Hashes, Ints
from analysis.report.reader import inventory
from analysis.selection import Selection
from cachemodel.errors import UserError

MOST = 20_000  # prompts
LOOKED = 10  # times as many requests are looked through for them
MOST_BYTES = 256 << 20  # of texts, each once
MOST_SEGMENTS = 8_000_000  # of all prompts, each as often as it stands in one
_NUMBERS = {"sent": "sent", "prompt_tokens": "prompt_told", "cached_tokens": "cached_told", "split": "split"}
_WORDS = {
    "server": "server",
    "model": "model_told",
    "request_id": "request_id",
    "labels": "labels_told",
    "reads_off": "reads_off_told",
}


@dataclass(frozen=True)
class Asked:
    """The newest requests of a selection. chosen: condition on `requests`. told: condition on what clients tell of
    them: chains and texts, whose times are by another clock. parameters: of both. count: how many, by request id."""

    chosen: str
    told: str
    parameters: Mapping[str, object]
    count: int


@dataclass(frozen=True)
class Segments:
    """The texts of n prompts: those of prompt i are segments[offsets[i]:offsets[i + 1]], in the order in which they are
    rendered. ends: the token before which each ends, in the same order, none of a prompt where that is not known.
    texts: role and text by segment."""

    offsets: Ints
    segments: Hashes
    end_offsets: Ints
    ends: Ints
    texts: Mapping[int, tuple[str, str]] = field(repr=False)

    def of(self, prompt: int) -> list[int]:
        """Segments of a prompt."""
        told: list[int] = self.segments[self.offsets[prompt] : self.offsets[prompt + 1]].tolist()
        return told

    def ends_of(self, prompt: int) -> list[int]:
        """Where they end."""
        told: list[int] = self.ends[self.end_offsets[prompt] : self.end_offsets[prompt + 1]].tolist()
        return told


@dataclass(frozen=True)
class Rows:
    """n prompts with texts, in order of time.

    sent: microseconds. prompt_tokens, cached_tokens: -1 where nothing tells. split: token at which it parts from all
    prompts before it, -1. isolation: 0 for none. full: captured as it was sent, not redacted. labels: JSON.
    requests: of the selection, by id; captured: of those asked for, with texts; torn: with a text that is gone.
    dialect, block_size: of the most requests; empty and 0 where nothing tells.
    """

    asked: Asked
    sent: Ints
    server: Texts
    model: Texts
    request_id: Texts
    prompt_tokens: Ints
    cached_tokens: Ints
    labels: Texts
    isolation: Hashes
    reads_off: Texts
    full: Flags
    split: Ints
    segments: Segments
    requests: int
    captured: int
    torn: int
    dialect: str
    block_size: int

    @property
    def n(self) -> int:
        """How many prompts."""
        return len(self.sent)


def read_rows(client: Client, selection: Selection, most: int) -> Rows:
    """The newest `most` prompts of a selection; raises UserError where no request matches."""
    asked, requests, dialect = _asked(client, selection, most * LOOKED)
    captured, block_size = client.query(
        f"""
        SELECT (SELECT uniqExact(server, request_id) FROM prompts WHERE {asked.told}),
               (SELECT topK(1)(block_size)[1] FROM request_chains WHERE {asked.told})""",
        parameters=dict(asked.parameters),
    ).result_rows[0]
    told = Columns(client, _prompts_sql(asked), {**asked.parameters, "most": most}).reversed()
    offsets, segments = told.arrays("segments")
    end_offsets, ends = told.arrays("ends")
    fits, whole, texts = _texts(client, asked, told.ints("sent"), offsets, segments.astype(np.uint64))
    rows = np.flatnonzero(fits & whole)
    columns: dict[str, Any] = {name: told.ints(column)[rows] for name, column in _NUMBERS.items()}
    columns |= {name: told.texts(column)[rows] for name, column in _WORDS.items()}
    return Rows(
        **columns,
        asked=asked,
        isolation=told.hashes("isolation")[rows],
        full=told.flags("full")[rows],
        segments=Segments(*_taken(offsets, segments, rows), *_taken(end_offsets, ends, rows), texts),
        requests=requests,
        captured=int(captured),
        torn=int((fits & ~whole).sum()),
        dialect=dialect,
        block_size=int(block_size or 0),
    )


def _asked(client: Client, selection: Selection, most: int) -> tuple[Asked, int, str]:
    """The newest `most` requests, how many the selection has, and how most of their servers speak."""
    by_id = "uniqExact(server, request_id)"
    count, dialect = client.query(
        f"SELECT {by_id}, topKIf(1)(dialect, dialect != 'log')[1] FROM requests WHERE {selection.condition}",
        parameters=selection.parameters,
    ).result_rows[0]
    if not count:
        raise UserError(f"no request matches {selection.name!r}: {inventory(client, selection.texts)}")
    since, until = client.query(
        f"""
        SELECT toUnixTimestamp64Micro(min(time)), toUnixTimestamp64Micro(max(time))
        FROM (SELECT time FROM requests WHERE {selection.condition} ORDER BY time DESC LIMIT {{most:UInt64}})""",
        parameters={**selection.parameters, "most": most},
    ).result_rows[0]
    chosen = f"(({selection.condition}) AND time >= {at('since')})"
    around = f"time >= {at('since')} - INTERVAL 1 HOUR AND time <= {at('until')} + INTERVAL 1 HOUR"
    those = f"(server, request_id) IN (SELECT server, request_id FROM requests WHERE {chosen})"
    parameters = {**selection.parameters, "since": int(since), "until": int(until)}
    (looked,) = client.query(
        f"SELECT {by_id} FROM requests WHERE {chosen}", parameters=parameters
    ).result_rows[0]
    return Asked(chosen, f"({around} AND {those})", parameters, int(looked)), int(count), str(dialect)


def _prompts_sql(asked: Asked) -> str:
    """Newest first. A request whose text was kept twice has it as it was kept last."""
    return f"""
        SELECT sent, server, model_told, request_id, prompt_told, cached_told, labels_told, isolation, reads_off_told,
               full, if(has_chain, parts_at, -1) AS split, segments, ends
        FROM
        (
            SELECT toUnixTimestamp64Micro(time) AS sent, server, request_id, capture = 'full' AS full, segments, ends
            FROM prompts WHERE {asked.told}
            ORDER BY time DESC, request_id DESC LIMIT 1 BY server, request_id LIMIT {{most:UInt64}}
        ) AS texts
        ANY INNER JOIN
        (
            SELECT server, request_id, toString(model) AS model_told, toJSONString(labels) AS labels_told,
                   ifNull(toInt64(prompt_tokens), -1) AS prompt_told, ifNull(toInt64(cached_tokens), -1) AS cached_told
            FROM requests WHERE {asked.chosen}
        ) AS counted
        USING (server, request_id)
        ANY LEFT JOIN
        (
            SELECT server, request_id, isolation, toString(reads_off) AS reads_off_told, 1 AS has_chain,
                   toInt64(split_depth) * block_size + split_tokens AS parts_at
            FROM request_chains WHERE {asked.told}
        ) AS chained
        USING (server, request_id)
        ORDER BY sent DESC, request_id DESC"""


def _texts(
    client: Client, asked: Asked, sent: Ints, offsets: Ints, segments: Hashes
) -> tuple[Flags, Flags, dict[int, tuple[str, str]]]:
    """Of prompts in order of time: (n,) whether it is among the newest whose texts fit into the bounds; (n,) whether
    all of its texts are there; and the texts."""
    n = len(sent)
    row = np.repeat(np.arange(n), np.diff(offsets))
    distinct, number = np.unique(segments, return_inverse=True)
    newest = np.zeros(len(distinct), np.int64)
    np.maximum.at(newest, number, row)  # a text is read with the newest prompt that has it
    known = Columns(client, _of_prompts(asked, "max(length(text)) AS bytes"), _since(asked, sent))
    held = known.hashes("segment")
    place = np.searchsorted(distinct, held)
    mine = distinct[np.minimum(place, len(distinct) - 1)] == held
    bytes_of, there = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.bool_)
    bytes_of[place[mine]], there[place[mine]] = known.ints("bytes")[mine], True
    from_here = np.cumsum(np.bincount(newest, bytes_of, n)[::-1])[::-1]
    of_them = np.cumsum(np.diff(offsets)[::-1])[::-1]
    fits: Flags = (from_here <= MOST_BYTES) & (of_them <= MOST_SEGMENTS)
    whole = np.ones(n, np.bool_)
    whole[row[~there[number]]] = False
    texts = "toString(any(role)) AS role, any(text) AS text"
    told = Columns(client, _of_prompts(asked, texts), _since(asked, sent[fits]))
    named = zip(told.hashes("segment").tolist(), told.texts("role"), told.texts("text"), strict=True)
    return fits, whole, {name: (str(role), str(text)) for name, role, text in named}


def _of_prompts(asked: Asked, what: str) -> str:
    """SQL of the texts of prompts from a time on."""
    those = f"SELECT arrayJoin(segments) FROM prompts WHERE {asked.told} AND time >= {at('first')}"
    return f"SELECT segment, {what} FROM segments WHERE segment IN ({those}) GROUP BY segment"


def _since(asked: Asked, sent: Ints) -> dict[str, object]:
    never = 4_000_000_000_000_000  # of none
    return {**asked.parameters, "first": int(sent.min(initial=never))}


def _taken(offsets: Ints, values: NDArray[Any], rows: Ints) -> tuple[Ints, NDArray[Any]]:
    """The values of some rows, with offsets."""
    lengths = np.diff(offsets)[rows]
    own, index = gather(offsets[:-1][rows], lengths)
    return own, values[index]
