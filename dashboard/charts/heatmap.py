"""A heatmap as a figure: rows of cells, below each its zones, and a frame where rewriting pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import plotly.graph_objects as go

from analysis.heatmap.colours import RAMP, UNKNOWN, ZONES
from analysis.heatmap.model import LAYERS, Cell, Heatmap, Row, tells, top_of, value_of
from analysis.heatmap.words import percent, shown, spread
from dashboard.charts.frame import framed
from dashboard.export import to_html as page_of
from dashboard.text import beside_bar, in_chart

ZONE_WORDS = {"hot": "hot, above 90 %", "warm": "warm, 60 to 90 %", "cold": "below 60 %"}
FRAME = "#E6007A"  # stands out from every colour of the ramp, on light and on dark
_CELLS, _BAND = (0.0, 0.70), (0.74, 0.88)  # of the height of a row
_MOST_TICKS = 6  # as many have room on a narrow screen
Matrix = list[list[float | None]]


def grid(found: Heatmap, layer: str) -> go.Figure:
    """A layer by row and position; what nothing tells is grey, what no prompt reaches is empty."""
    figure, columns = go.Figure(), len(found.edges) - 1
    top = top_of(found, layer)
    _cells(figure, found, lambda cell: value_of(cell, layer), _CELLS, {
        "colorscale": [[at / (len(RAMP) - 1), colour] for at, colour in enumerate(RAMP)],
        "zmin": 0.0,
        "zmax": top,
        "colorbar": {"title": {"text": _unit(layer), "side": "right"}, "thickness": 12, "outlinewidth": 0,
                     "tickformat": ".0%" if layer == "reuse" else "~s" if layer == "cost" else "~g"},
    })  # fmt: skip
    grey = [[0.0, UNKNOWN], [1.0, UNKNOWN]]
    _cells(figure, found, lambda cell: 0.0 if value_of(cell, layer) is None else None, _CELLS,
           {"colorscale": grey, "showscale": False})  # fmt: skip
    for zone, words in ZONE_WORDS.items():
        flat = [[0.0, ZONES[zone]], [1.0, ZONES[zone]]]
        _cells(figure, found, _is_in(zone), _BAND, {"colorscale": flat, "showscale": False})
        _key(figure, words, {"symbol": "square", "size": 11, "color": ZONES[zone]})
    if any(cell.rewrite for row in found.rows for cell in row.cells):
        _key(
            figure,
            "rewriting pays",
            {"symbol": "square-open", "size": 11, "color": FRAME, "line": {"width": 2}},
        )
    for at, row in enumerate(found.rows):
        for first, behind in _frames(row):
            figure.add_shape(
                type="rect", x0=first - 0.5, x1=behind - 0.5, y0=at - 0.01, y1=at + _CELLS[1] + 0.01,
                line={"color": FRAME, "width": 2},
            )  # fmt: skip
    figure.update_layout(height=165 + 30 * max(len(found.rows), 2), hoverlabel={"align": "left"})
    step = max(1, -(-columns // _MOST_TICKS))
    ticks = list(range(0, columns, step))
    figure.update_xaxes(
        range=[-0.5, max(columns, 1) - 0.5], showgrid=False, zeroline=False,
        tickvals=[tick - 0.5 for tick in ticks], ticktext=[_tick(found.edges[tick]) for tick in ticks],
    )  # fmt: skip
    names = [beside_bar(_name(found, row)) for row in found.rows]
    figure.update_yaxes(
        range=[max(len(found.rows), 1), -0.1], showgrid=False, zeroline=False,
        tickvals=[at + _CELLS[1] / 2 for at in range(len(names))], ticktext=names,
    )  # fmt: skip
    return framed(figure, "position in the prompt, tokens")


def to_html(found: Heatmap) -> str:
    """All layers of which anything is known, in one file that needs no network."""
    figures = {
        f"{layer.capitalize()}: {meaning}": grid(found, layer)
        for layer, meaning in LAYERS.items()
        if tells(found, layer)
    }
    return page_of(f"Heatmap: {found.name}", found.answer, figures)


def name(found: Heatmap, row: Row) -> str:
    """Of a row, for plotly."""
    return in_chart(_name(found, row))


def _name(found: Heatmap, row: Row) -> str:
    return row.key if found.by == "template" else row.key[:19].replace("T", " ")


def hover(found: Heatmap, row: Row, cell: Cell) -> str:
    """All that is known of a cell."""
    of = f"{found.by} <b>{name(found, row)}</b>, tokens <b>{spread(cell.start, cell.end)}</b>"
    lines = [
        of,
        f"{cell.requests:,} requests come here, {percent(cell.frequency)} of {row.requests:,}",
        f"reuse {shown(cell, 'reuse')}: had been part of an earlier prompt",
        "of the same server, salt and adapter",
        f"volatility {shown(cell, 'volatility')}",
        f"stability of responses: {shown(cell, 'stability')}",
        f"cost: {shown(cell, 'cost')}",
    ]
    zone = ZONE_WORDS.get(cell.zone, "not known")
    return "<br>".join([*lines, f"zone: {zone}" + ("; <b>rewriting pays</b>" if cell.rewrite else "")])


def _cells(
    figure: go.Figure,
    found: Heatmap,
    value: Callable[[Cell], float | None],
    height: tuple[float, float],
    look: dict[str, object],
) -> None:
    """One trace. height: where in a row its cells begin and end."""
    columns = len(found.edges) - 1
    values: Matrix = []
    texts: list[list[str]] = []
    bounds = [-0.1]
    for at, row in enumerate(found.rows):
        room = columns - len(row.cells)
        values += [[None] * columns, [value(cell) for cell in row.cells] + [None] * room]
        texts += [[""] * columns, [hover(found, row, cell) for cell in row.cells] + [""] * room]
        bounds += [at + height[0], at + height[1]]
    if not any(cell is not None for line in values for cell in line):
        return
    figure.add_heatmap(
        z=values,
        x=[column - 0.5 for column in range(columns + 1)],
        y=bounds,
        text=texts,
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        xgap=1,
        **look,
    )


def _is_in(zone: str) -> Callable[[Cell], float | None]:
    return lambda cell: 0.0 if cell.zone == zone else None


def _key(figure: go.Figure, words: str, marker: dict[str, object]) -> None:
    """An entry of the legend that has no points."""
    figure.add_scatter(x=[None], y=[None], mode="markers", name=words, marker=marker, hoverinfo="skip")


def _frames(row: Row) -> Iterator[tuple[int, int]]:
    """Columns side by side where rewriting pays: the first and the one behind the last."""
    numbered: Sequence[tuple[int, Cell]] = list(enumerate(row.cells))
    for pays, run in groupby(numbered, key=lambda pair: pair[1].rewrite):
        if pays:
            places = [column for column, _ in run]
            yield places[0], places[-1] + 1


def _tick(token: int) -> str:
    """In few characters: 8,192, then 12.3k."""
    return f"{token:,}" if token < 10_000 else f"{token / 1000:.3g}k"


def _unit(layer: str) -> str:
    return {"volatility": "bits", "cost": "tokens computed"}.get(layer, layer)
