"""What a heatmap is: rows of cells, a cell being a stretch of token positions of the prompts of one row."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.treatments import Treatment

SCHEMA_VERSION = 1
BY = ("template", "time")
LAYERS = {
    "reuse": "share of the requests there whose block had been part of an earlier prompt of the same server, salt and"
    " adapter",
    "volatility": "bits by which the content there differs between requests whose prompts are the same up to there",
    "stability": "how much alike the responses of these requests are: 1 the same, 0 nothing in common",
    "cost": "prompt tokens that the servers computed there",
}
HOT, WARM = 0.9, 0.6  # above the first is hot; from the second to the first is warm
OFTEN, STABLE = 0.85, 0.4


@dataclass(frozen=True, slots=True)
class Cell:
    """Positions [start, end) of prompts, tokens. requests: that reach its first block; frequency: their share of the
    row's. reuse, stability: 0 to 1; volatility: bits; computed: tokens; computed_ms: by what its servers take a token;
    None where nothing tells. zone: hot, warm, cold, or empty where reuse is None. rewrite: whether rewriting pays."""

    start: int
    end: int
    requests: int
    frequency: float
    reuse: float | None
    volatility: float | None
    stability: float | None
    computed: int | None
    computed_ms: float | None
    zone: str
    rewrite: bool


@dataclass(frozen=True, slots=True)
class Row:
    """key: the first digits of a template's hash, or when the row begins (ISO, UTC). cells: from position 0 on, as far
    as any prompt of the row reaches."""

    key: str
    requests: int
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Mark:
    """Cells side by side where rewriting pays. frequency, reuse: of the first; volatile: positions at which content
    varies most within, and its bits; computed, computed_ms: of all of them."""

    key: str
    start: int
    end: int
    frequency: float
    reuse: float | None
    stability: float | None
    volatile: tuple[int, int] | None
    bits: float | None
    computed: int | None
    computed_ms: float | None


@dataclass(frozen=True, slots=True)
class Heatmap:
    """requests, blocks: prompts and their full blocks; reuse: the share of the blocks in shown rows that had been part
    of an earlier prompt. sampled: one request in how many was read, by layer; counts are estimates where that is more
    than one. rows_left: rows that are not shown, and requests_left theirs. width_s: of a row by time, 0 by template."""

    schema_version: int
    name: str
    by: str
    begin: str
    end: str
    requests: int
    reuse: float | None
    blocks: int
    block_sizes: list[int]
    servers: list[str]
    sampled: dict[str, int]
    width_s: int
    rows: list[Row]
    rows_left: int
    requests_left: int
    marks: list[Mark]
    answer: str
    warnings: list[str]
    next_steps: list[str]
    treatments: list[Treatment]

    @property
    def edges(self) -> list[int]:
        """Where its columns begin, and where the last one ends, tokens."""
        longest = max((row.cells for row in self.rows), key=len, default=[])
        return [*(cell.start for cell in longest), *(cell.end for cell in longest[-1:])]


def value_of(cell: Cell, layer: str) -> float | None:
    """What a layer shows of a cell."""
    values = {
        "reuse": cell.reuse,
        "volatility": cell.volatility,
        "stability": cell.stability,
        "cost": cell.computed,
    }
    return values[layer]


def top_of(found: Heatmap, layer: str) -> float:
    """The value at which the layer's scale ends: 1 for shares, else the largest there is."""
    if layer in ("reuse", "stability"):
        return 1.0
    values = [value_of(cell, layer) for row in found.rows for cell in row.cells]
    return float(max((value for value in values if value is not None), default=0.0)) or 1.0


def tells(found: Heatmap, layer: str) -> bool:
    """Whether anything is known of a layer."""
    return any(value_of(cell, layer) is not None for row in found.rows for cell in row.cells)
