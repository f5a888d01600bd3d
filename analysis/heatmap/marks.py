"""Where rewriting pays: cells side by side as one place, the dearest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from analysis.heatmap.model import Cell, Mark, Row

LEAST_BITS = 0.1  # less is no place at which contents vary


def marks_of(rows: Sequence[Row]) -> list[Mark]:
    """Those of all rows, by the tokens computed there and behind in the order of their rows where that is not told."""
    found = [mark for row in rows for mark in _of_row(row)]
    return sorted(found, key=lambda mark: -(mark.computed or 0))


def _of_row(row: Row) -> Iterator[Mark]:
    for pays, cells in groupby(row.cells, key=lambda cell: cell.rewrite):
        if pays:
            yield _mark(row.key, list(cells))


def _mark(key: str, cells: Sequence[Cell]) -> Mark:
    most = max(cells, key=lambda cell: cell.volatility or 0.0)
    tokens = _sum([cell.computed for cell in cells])
    varies = (most.volatility or 0.0) >= LEAST_BITS
    return Mark(
        key=key,
        start=cells[0].start,
        end=cells[-1].end,
        frequency=cells[0].frequency,
        reuse=cells[0].reuse,
        stability=cells[0].stability,
        volatile=(most.start, most.end) if varies else None,
        bits=most.volatility if varies else None,
        computed=None if tokens is None else round(tokens),
        computed_ms=_sum([cell.computed_ms for cell in cells]),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """None where any is."""
    told = [value for value in values if value is not None]
    return sum(told) if told and len(told) == len(values) else None
