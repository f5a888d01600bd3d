"""Layers as rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.heatmap.model import HOT, OFTEN, STABLE, WARM, Cell, Row
from analysis.misses.model import Ints
from analysis.quantiles import Floats


@dataclass(frozen=True)
class Layers:
    """By row and column (r, b), NaN where nothing tells. requests: that reach a column; prompts: (r,) of a row; tokens:
    computed; ms: that they took."""

    requests: Ints
    prompts: Ints
    reuse: Floats
    volatility: Floats
    stability: Floats
    tokens: Floats
    ms: Floats


def rows_of(names: Sequence[str], layers: Layers, bounds: Ints) -> list[Row]:
    """A row a name, as far as its prompts reach. A prompt's last tokens, less than a block, have a cell of their own
    only where they cost something."""
    found = []
    for at, name in enumerate(names):
        told = np.flatnonzero((layers.requests[at] > 0) | (layers.tokens[at] > 0))
        columns = range(int(told[-1]) + 1 if len(told) else 0)
        found.append(
            Row(name, int(layers.prompts[at]), [_cell(layers, at, column, bounds) for column in columns])
        )
    return found


def zone_of(reuse: float | None) -> str:
    """hot, warm, cold; empty where nothing is known."""
    if reuse is None:
        return ""
    return "hot" if reuse > HOT else "warm" if reuse >= WARM else "cold"


def zones_often(rows: Sequence[Row]) -> list[str]:
    """The zones of what most prompts of a row come by."""
    return sorted({cell.zone for row in rows for cell in row.cells if cell.zone and cell.frequency > OFTEN})


def pays(frequency: float, reuse: float | None, stability: float | None) -> bool:
    """Whether rewriting pays: where many prompts come by and their responses differ; where no responses are kept, where
    many come by and find nothing that was sent before."""
    if frequency <= OFTEN:
        return False
    if stability is not None:
        return stability < STABLE
    return reuse is not None and reuse < WARM


def _cell(layers: Layers, at: int, column: int, bounds: Ints) -> Cell:
    here = (at, column)
    requests = int(layers.requests[here])
    frequency = requests / int(layers.prompts[at]) if layers.prompts[at] else 0.0
    reuse, stability = _told(layers.reuse[here]), _told(layers.stability[here])
    tokens = _told(layers.tokens[here])
    return Cell(
        start=int(bounds[column]),
        end=int(bounds[column + 1]),
        requests=requests,
        frequency=frequency,
        reuse=reuse,
        volatility=_told(layers.volatility[here]),
        stability=stability,
        computed=None if tokens is None else round(tokens),
        computed_ms=_told(layers.ms[here]),
        zone=zone_of(reuse),
        rewrite=pays(frequency, reuse, stability),
    )


def _told(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
