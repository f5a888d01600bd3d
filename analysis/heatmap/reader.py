"""SQL aggregates of prompts by row and position: what comes back grows with rows and columns, not with prompts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client
from numpy.typing import NDArray

from analysis.heatmap.scope import MOST_TIMES, Scope
from analysis.misses.columns import Columns, at
from analysis.misses.model import Hashes, Ints
from analysis.quantiles import Floats

MOST_COSTS = 100_000  # requests of which it is asked what they computed; of more, one in so many
MOST_BLOCKS = 500_000  # whose contents are compared; of more, those of one request in so many
_IN_SAMPLE = 16  # one prompt in so many is in chain_sample
_HOUR_US = 3_600_000_000


class Numbers(Columns):
    """With columns of fractions."""

    def floats(self, name: str) -> Floats:
        """(n,) Float64."""
        return np.asarray(self._flat(name), dtype=np.float64)


@dataclass(frozen=True)
class Counts:
    """How many prompts (n,) of a row begin with so many blocks of a size."""

    row: Hashes
    block_size: Ints
    blocks: Ints
    count: Ints


@dataclass(frozen=True)
class Contents:
    """By row, size and place of a block (n,), of the requests that were compared: visits, and by how much their entropy
    grows there, bits times visits. sampled: one request in how many was."""

    row: Hashes
    block_size: Ints
    place: Ints
    visits: Ints
    bits: Floats
    sampled: int


@dataclass(frozen=True)
class Costs:
    """By row, server and column (n,): prompts that end less cached parts that end there (`ends`), and the tokens of
    these ends in it (`inside`), less those of the cached parts; requests: whose prompt ends there. ms: what a token
    takes by server, of those that measured it."""

    row: Hashes
    server: NDArray[np.object_]
    column: Ints
    ends: Ints
    inside: Ints
    requests: Ints
    ms: dict[str, float]
    sampled: int


def top_rows(client: Client, scope: Scope) -> list[int]:
    """The templates with most requests; by time all rows, in order."""
    if not scope.width_s:
        return list(scope.top)
    rows = f"SELECT DISTINCT {scope.row} AS row FROM chain_depths WHERE {scope.depths}"
    sql = f"{rows} ORDER BY row LIMIT {MOST_TIMES + 1}"
    return [int(row[0]) for row in client.query(sql, parameters=dict(scope.parameters)).result_rows]


def counts(client: Client, scope: Scope) -> tuple[Counts, Counts]:
    """Of the blocks of prompts, and of those blocks of them that were sent before."""
    sql = f"""
        SELECT row, block_size, blocks, sum(whole) AS n_whole, count() - n_whole AS n_known
        FROM (SELECT {scope.row} AS row, block_size, depth, known FROM chain_depths WHERE {scope.depths})
        ARRAY JOIN [depth, known] AS blocks, [1, 0] AS whole
        GROUP BY row, block_size, blocks"""
    told = Columns(client, sql, scope.parameters)
    row, size, blocks = told.hashes("row"), told.ints("block_size"), told.ints("blocks")
    whole, known = (Counts(row, size, blocks, told.ints(name)) for name in ("n_whole", "n_known"))
    return whole, known


def contents(client: Client, scope: Scope, most_blocks: int = MOST_BLOCKS) -> Contents:
    """How much contents differ behind the same parent: for a parent visited m times, whose children are visited n times
    each, m log m - sum of n log n. A content names its parent, so that children of one are known by any of them."""
    sampled = max(1, -(-scope.blocks // most_blocks))
    source = _all(scope, sampled) if sampled < _IN_SAMPLE else _sample(scope)
    sql = f"""
        SELECT row, block_size, place, sum(visits) AS reached, sum(visits * log2(visits) - held) AS bits
        FROM
        (
            SELECT row, block_size, place, parent, sum(n) AS visits, sum(n * log2(n)) AS held
            FROM
            (
                SELECT row, block_size, place, content, any(parent_content) AS parent, count() AS n
                FROM
                (
                    {source}
                )
                ARRAY JOIN blocks AS content, arrayPopBack(arrayPushFront(blocks, 0)) AS parent_content,
                           arrayEnumerate(blocks) AS place
                GROUP BY row, block_size, place, content
            )
            GROUP BY row, block_size, place, parent
        )
        GROUP BY row, block_size, place"""
    told = Numbers(
        client,
        sql,
        {
            **scope.parameters,
            "one_in": sampled,
            "below": min((1 << 64) - 1, (1 << 64) * _IN_SAMPLE // sampled),
        },
    )
    return Contents(
        told.hashes("row"),
        told.ints("block_size"),
        told.ints("place") - 1,
        told.ints("reached"),
        told.floats("bits"),
        sampled,
    )


def _all(scope: Scope, sampled: int) -> str:
    thin = "AND key % {one_in:UInt64} = 0" if sampled > 1 else ""
    return f"SELECT {scope.row} AS row, block_size, blocks FROM request_chains WHERE {scope.chains} {thin}"


def _sample(scope: Scope) -> str:
    """From the table that holds one prompt in 16 by the hashes of their ids: those whose hash is below a bound."""
    return (
        f"SELECT {scope.row} AS row, block_size, blocks FROM chain_sample"
        f" WHERE {scope.depths} AND request < {{below:UInt64}}"
    )


def costs(client: Client, scope: Scope, bounds: Ints, most_requests: int = MOST_COSTS) -> Costs:
    """What servers said that they computed of each prompt: its tokens behind the cached ones."""
    sampled = max(1, -(-scope.requests // most_requests))
    thin = "AND request % {one_in:UInt64} = 0" if sampled > 1 else ""
    of_requests = "AND sipHash64(server, request_id) % {one_in:UInt64} = 0" if sampled > 1 else ""
    sql = f"""
        SELECT row, server, roundDown(tokens, {{starts:Array(Int64)}}) AS start, sum(sign) AS n,
               sum(sign * (tokens - start)) AS inside, countIf(sign = 1) AS told
        FROM
        (
            SELECT asked.row AS row, asked.server AS server, said.prompt AS prompt, said.cached AS cached
            FROM
            (
                SELECT DISTINCT request, {scope.row} AS row, server FROM chain_depths WHERE {scope.depths} {thin}
            ) AS asked
            ANY INNER JOIN
            (
                SELECT sipHash64(server, request_id) AS request, toInt64(assumeNotNull(prompt_tokens)) AS prompt,
                       least(toInt64(assumeNotNull(cached_tokens)), prompt) AS cached
                FROM requests
                WHERE time >= {at("from_us")} AND time <= {at("to_us")} AND prompt_tokens IS NOT NULL
                      AND cached_tokens IS NOT NULL {of_requests}
            ) AS said USING (request)
        )
        ARRAY JOIN [prompt, cached] AS tokens, [1, -1] AS sign
        GROUP BY row, server, start"""
    parameters = {
        **scope.parameters,
        "one_in": sampled,
        "starts": bounds[:-1].tolist(),
        "from_us": scope.begin - _HOUR_US,
        "to_us": scope.end + _HOUR_US,
    }
    told = Columns(client, sql, parameters)
    return Costs(
        told.hashes("row"),
        told.texts("server"),
        np.searchsorted(bounds[:-1], told.ints("start")).astype(np.int64),
        told.ints("n"),
        told.ints("inside"),
        told.ints("told"),
        _ms_per_token(client),
        sampled,
    )


def _ms_per_token(client: Client) -> dict[str, float]:
    """What computing a prompt token takes, as the newest canary measured it."""
    rows = client.query(
        "SELECT server, argMax(value, time) FROM findings"
        " WHERE origin = 'canary' AND name = 'prefill.ms_per_token' AND value IS NOT NULL GROUP BY server"
    ).result_rows
    return {str(server): float(ms) for server, ms in rows}
