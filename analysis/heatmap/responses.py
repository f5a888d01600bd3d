"""How much alike the responses are of requests whose prompts reach a position.

A response is a vector of 64 numbers of length one: its runs of 8 characters, each counted in a place and with a sign
that its hash says. The variance of such vectors is one less the square of their mean's length; without its bias for
few, one less this variance is the mean cosine of two different responses. Texts of responses stand on spans, where
capture is `full`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.heatmap.reader import Numbers
from analysis.heatmap.scope import Scope
from analysis.misses.columns import at
from analysis.misses.model import Hashes, Ints
from analysis.quantiles import Floats

MOST_RESPONSES = 2_000  # that are compared; of more, one in so many
PLACES = 64
_RUN, _LONGEST = 8, 1_000  # characters
_HOUR_US = 3_600_000_000
# Where instrumentations put what a model answered; collector/otlp/text_names.py says whose names these are.
_KEYS = (
    "gen_ai.output.messages",
    "gen_ai.completion.0.content",
    "gen_ai.completion",
    "gen_ai.response.text",
    "llm.output_messages.0.message.content",
    "output.value",
    "ai.response.text",
    "traceloop.entity.output",
    "langfuse.observation.output",
    "mlflow.spanOutputs",
)
_TEXT = "coalesce(" + ", ".join(f"nullIf(SpanAttributes['{key}'], '')" for key in _KEYS) + ")"


@dataclass(frozen=True)
class Responses:
    """row, blocks, block_size: (n,) of the prompts; vectors: (n, PLACES). sampled: one request in how many is here."""

    row: Hashes
    blocks: Ints
    block_size: Ints
    vectors: Floats
    sampled: int


def responses(client: Client, scope: Scope, most: int = MOST_RESPONSES) -> Responses | None:
    """Those that are kept; None where none is."""
    kept = f"hasAny(mapKeys(SpanAttributes), {list(_KEYS)!r})"
    during = f"Timestamp >= {at('from_us')} AND Timestamp <= {at('to_us')} AND {kept}"
    parameters = {
        **scope.parameters,
        "from_us": scope.begin - _HOUR_US,
        "to_us": scope.end + _HOUR_US,
    }
    count = client.query(
        f"SELECT count() FROM otel_traces WHERE {during}", parameters=parameters
    ).result_rows[0][0]
    if not count:
        return None
    sampled = max(1, -(-scope.requests // most))
    sql = f"""
        SELECT row, depth, block_size, request, bitAnd(hash, {PLACES - 1}) AS place,
               sum(if(bitTest(hash, 40), 1, -1)) AS amount
        FROM
        (
            SELECT asked.row AS row, asked.depth AS depth, asked.block_size AS block_size, asked.request AS request,
                   arrayJoin(if(lengthUTF8(text) < {_RUN}, [text], ngrams(text, {_RUN}))) AS gram,
                   sipHash64(gram) AS hash
            FROM
            (
                SELECT DISTINCT request, {scope.row} AS row, depth, block_size
                FROM chain_depths WHERE {scope.depths} AND request % {{one_in:UInt64}} = 0
            ) AS asked
            ANY INNER JOIN
            (
                SELECT sipHash64(server, request_id) AS request, span_id
                FROM requests
                WHERE time >= {at("from_us")} AND time <= {at("to_us")} AND span_id != 0
                      AND sipHash64(server, request_id) % {{one_in:UInt64}} = 0
            ) AS told USING (request)
            ANY INNER JOIN
            (
                SELECT reinterpretAsUInt64(reverse(unhex(SpanId))) AS span_id,
                       substringUTF8(assumeNotNull({_TEXT}), 1, {_LONGEST}) AS text
                FROM otel_traces WHERE {during}
            ) AS said ON told.span_id = said.span_id
        )
        GROUP BY row, depth, block_size, request, place"""
    told = Numbers(client, sql, {**parameters, "one_in": sampled})
    return _vectors(told, sampled) if told.n else None


def stability(found: Responses, rows: Hashes, bounds: Ints) -> Floats:
    """(r, b) mean cosine of two responses to prompts that reach a column, from 0 to 1; NaN where there are no two."""
    first = -(-bounds[None, :-1] // found.block_size[:, None])
    result = np.full((len(rows), len(bounds) - 1), np.nan)
    for at_row, key in enumerate(rows):
        mine = found.row == key
        reaching = (found.blocks[mine, None] > first[mine]).astype(np.float64)
        n = reaching.sum(axis=0)
        lengths = ((reaching.T @ found.vectors[mine]) ** 2).sum(axis=1)  # of the sums of vectors, squared
        pairs = n * (n - 1)
        np.divide(lengths - n, pairs, out=result[at_row], where=pairs > 0)
    clipped: Floats = np.clip(result, 0.0, 1.0)
    return clipped


def _vectors(told: Numbers, sampled: int) -> Responses:
    request = told.hashes("request")
    _, first, which = np.unique(request, return_index=True, return_inverse=True)
    vectors = np.zeros((len(first), PLACES))
    vectors[which, told.ints("place")] = told.floats("amount")
    size = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    usable = size[:, 0] > 0
    return Responses(
        told.hashes("row")[first][usable],
        told.ints("depth")[first][usable],
        told.ints("block_size")[first][usable],
        vectors[usable] / size[usable],
        sampled,
    )
