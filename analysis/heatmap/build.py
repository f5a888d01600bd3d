"""A selection to a heatmap: the aggregates of the store, laid out in rows and columns."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.heatmap import bins
from analysis.heatmap.cells import Layers, rows_of, zones_often
from analysis.heatmap.marks import marks_of
from analysis.heatmap.model import BY, SCHEMA_VERSION, Heatmap
from analysis.heatmap.reader import Contents, Costs, Counts, contents, costs, counts, top_rows
from analysis.heatmap.responses import responses, stability
from analysis.heatmap.scope import Scope, moment, scope
from analysis.heatmap.words import answer, next_steps, warnings
from analysis.misses.choice import selected
from analysis.misses.columns import together
from analysis.misses.model import Flags, Hashes, Ints
from analysis.quantiles import Floats
from analysis.report.reader import label_names
from analysis.treatments import of_zones
from cachemodel.errors import UsageError


def build(client: Client, text: str, *, by: str = "template", now: datetime | None = None) -> Heatmap:
    """The heatmap of the requests that `text` asks for, as `hitmap misses` takes them.

    Raises UsageError for what cannot be asked, UserError where there is nothing, saying what there is.
    """
    if by not in BY:
        raise UsageError(f"a heatmap has rows by {' or '.join(BY)}, not by {by!r}")
    selection = selected(client, text, now or datetime.now(UTC), label_names(client))
    asked = scope(client, selection, by)
    keys = top_rows(client, asked)
    shown = asked.of_rows(keys)
    bounds = bins.edges(asked.longest, min(asked.block_sizes))
    (depth, known), held, cost, said = together(
        lambda: counts(client, shown),
        lambda: contents(client, shown),
        lambda: costs(client, shown, bounds),
        lambda: responses(client, shown),
    )
    rows = np.array(keys, np.uint64)
    requests, visits, prompts = _visits(depth, rows, bounds)
    tokens, ms = _cost(cost, rows, bounds)
    layers = Layers(
        requests=requests * asked.sampled,
        prompts=prompts * asked.sampled,
        reuse=bins.ratio(_visits(known, rows, bounds)[1], visits),
        volatility=_volatility(held, rows, bounds),
        stability=stability(said, rows, bounds) if said else np.full(visits.shape, np.nan),
        tokens=tokens * cost.sampled * asked.sampled,
        ms=ms * cost.sampled * asked.sampled,
    )
    laid_out = rows_of(_names(asked, keys), layers, bounds)
    marks = marks_of(laid_out)
    shown_requests = int(prompts.sum())
    found = Heatmap(
        schema_version=SCHEMA_VERSION,
        name=selection.name,
        by=by,
        begin=moment(asked.begin),
        end=moment(asked.end),
        requests=asked.requests * asked.sampled,
        reuse=_share(known, depth),
        blocks=asked.blocks * asked.sampled,
        block_sizes=list(asked.block_sizes),
        servers=list(asked.servers),
        sampled={
            "reuse": asked.sampled,
            "cost": cost.sampled * asked.sampled,
            "volatility": held.sampled * asked.sampled,
            "stability": (said.sampled if said else 1) * asked.sampled,
        },
        width_s=asked.width_s,
        rows=laid_out,
        rows_left=0 if by == "time" else max(0, asked.templates - len(keys)),
        requests_left=(asked.requests - shown_requests) * asked.sampled,
        marks=marks,
        answer="",
        warnings=warnings(asked, cost, said is not None),
        next_steps=next_steps(marks),
        treatments=of_zones(zones_often(laid_out)),
    )
    return replace(found, answer=answer(found))


def _share(known: Counts, depth: Counts) -> float | None:
    """Of all blocks: those that were sent before."""
    whole = int(depth.blocks @ depth.count)
    return int(known.blocks @ known.count) / whole if whole else None


def _visits(told: Counts, rows: Hashes, bounds: Ints) -> tuple[Ints, Ints, Ints]:
    """(r, b) prompts that reach each column, (r, b) their blocks in it, (r,) prompts."""
    at, here = _rows(told.row, rows)
    row, count = at[here], told.count[here]
    first, behind = bins.spans(bounds, told.block_size[here])
    args = (row, len(rows), told.blocks[here], count, first, behind)
    return bins.reached(*args), bins.covered(*args), np.bincount(row, count, len(rows)).astype(np.int64)


def _volatility(told: Contents, rows: Hashes, bounds: Ints) -> Floats:
    """(r, b) bits that the blocks of a column add, a request that reaches its first block."""
    at, here = _rows(told.row, rows)
    row, size, place = at[here], told.block_size[here], told.place[here]
    column = np.searchsorted(bounds, place * size, side="right") - 1
    shape = (len(rows), len(bounds) - 1)
    bits, visits = np.zeros(shape), np.zeros(shape)
    np.add.at(bits, (row, column), told.bits[here])
    is_first = place == -(-bounds[column] // size)
    np.add.at(visits, (row[is_first], column[is_first]), told.visits[here][is_first])
    return np.maximum(bins.ratio(bits, visits), 0.0)


def _cost(told: Costs, rows: Hashes, bounds: Ints) -> tuple[Floats, Floats]:
    """(r, b) tokens computed, NaN in rows of which nothing is told; and the milliseconds they took, NaN where a server
    that computed some has not measured what a token takes."""
    at, _ = _rows(told.row, rows)
    tokens, ms = np.full((2, len(rows), len(bounds) - 1), np.nan)
    tokens[at] = ms[at] = 0.0
    for server in sorted(set(told.server.tolist())):
        mine = told.server == server
        ends, inside = np.zeros((2, *tokens.shape))
        np.add.at(ends, (at[mine], told.column[mine]), told.ends[mine])
        np.add.at(inside, (at[mine], told.column[mine]), told.inside[mine])
        behind = (
            np.flip(np.cumsum(np.flip(ends, 1), 1), 1) - ends
        )  # they go through a column from its start to its end
        computed = behind * np.diff(bounds) + inside
        tokens += computed
        ms += np.where(computed > 0, computed * told.ms.get(str(server), np.nan), 0.0)
    return tokens, ms


def _rows(keys: Hashes, rows: Hashes) -> tuple[Ints, Flags]:
    """(n,) which of the rows each key is, and whether it is any."""
    order = np.argsort(rows)
    at = order[np.minimum(np.searchsorted(rows[order], keys), len(rows) - 1)]
    return at, rows[at] == keys


def _names(asked: Scope, keys: list[int]) -> list[str]:
    """As `hitmap misses` calls templates; a row by time by its beginning."""
    if asked.width_s:
        return [moment(key * 1_000_000) for key in keys]
    return [f"{key:016x}"[:8] if key else "(none)" for key in keys]
