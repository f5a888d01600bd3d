"""Figures of processes and GPUs over time: small charts of many beside each other, one process's below each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.observed.figures import FIGURES
from analysis.observed.watched import Key, Lane, Lanes
from dashboard.charts.counters import SERIES
from dashboard.charts.frame import ABOVE
from dashboard.text import in_chart

MOST_LINES = len(SERIES)
_SMALL, _LANE, _GAP = 118, 70, 34  # pixels: of a small chart, of a lane, for a title between charts
_TURNED = 84  # pixels of times that are turned, as they are on a narrow screen
_FLIGHT = "#7F7F7F"


def small_charts(found: Lanes, names: Mapping[Key, str], figures: Sequence[str]) -> go.Figure:
    """A chart a figure, two beside each other, on one time axis; a line a process or GPU, whose colour is the same in
    all. names: of those that are drawn, at most MOST_LINES."""
    colours = {key: SERIES[number % MOST_LINES] for number, key in enumerate(names)}
    rows = -(-len(figures) // 2)
    figure = _charts(figures, rows, 2, _SMALL)
    named: set[Key] = set()
    times = _times(found)
    for place, name in enumerate(figures):
        row, col = place // 2 + 1, place % 2 + 1
        drawn = [lane for lane in found.lanes if lane.figure == name and lane.of in names]
        for lane in drawn:
            line = _line(times, lane, names[lane.of], colours[lane.of], lane.of not in named)
            figure.add_trace(line, row=row, col=col)
            named.add(lane.of)
        _axis(figure, drawn, name, row, col)
    if len(figures) % 2:
        figure.update_xaxes(visible=False, row=rows, col=2)
        figure.update_yaxes(visible=False, row=rows, col=2)
    _below_legend(figure, _GAP / (rows * (_SMALL + _GAP)))
    figure.update_layout(
        showlegend=True,
        legend=ABOVE,
        margin={"l": 55, "r": 25, "t": 20, "b": _TURNED},
        height=rows * (_SMALL + _GAP) + _GAP + 20 + _TURNED,
    )
    return figure


def _below_legend(figure: go.Figure, room: float) -> None:
    """Lower by that share of the whole: the legend ends where the charts begin, and their titles stand between."""
    for axis in figure.select_yaxes():
        axis.domain = [(1 - room) * end for end in axis.domain]
    for title in figure.layout.annotations:
        title.y *= 1 - room


def stacked(found: Lanes, of: Key, figures: Sequence[str], server: str) -> go.Figure:
    """One process: a lane a figure below each other, and the requests of its server in flight at the top."""
    flying = found.in_flight
    heads = [*(["flight"] if flying else []), *figures]
    figure = _charts(heads, len(heads), 1, _LANE)
    times = _times(found)
    if flying:
        lane = Lane(of, "flight", flying)
        figure.add_trace(_line(times, lane, f"requests of {server} in flight", _FLIGHT, False), row=1, col=1)
        figure.update_yaxes(rangemode="tozero", nticks=4, row=1, col=1)
    own = {lane.figure: lane for lane in found.lanes if lane.of == of}
    for row, name in enumerate(figures, 2 if flying else 1):
        line = _line(times, own[name], FIGURES[name].label, SERIES[(row - 1) % MOST_LINES], False)
        figure.add_trace(line, row=row, col=1)
        _axis(figure, [own[name]], name, row, 1)
    figure.update_layout(
        showlegend=False,
        margin={"l": 55, "r": 15, "t": 30, "b": 40},
        height=len(heads) * (_LANE + _GAP) + 50,
    )
    return figure


def _charts(names: Sequence[str], rows: int, columns: int, height: int) -> go.Figure:
    titles = [FIGURES[name].label if name in FIGURES else "Requests in flight" for name in names]
    figure = make_subplots(
        rows=rows,
        cols=columns,
        shared_xaxes="all",
        subplot_titles=titles,
        horizontal_spacing=0.13,  # on a narrow screen numbers of the right one need it
        vertical_spacing=min(_GAP / (rows * (height + _GAP)), 1 / max(rows - 1, 1)),
    )
    figure.update_annotations(font={"size": 13})
    for title in figure.layout.annotations:  # above the left end of its chart
        title.update(xanchor="left", x=_left(figure, title.x, columns))
    figure.update_layout(hovermode="x unified", hoverlabel={"align": "left"})
    figure.update_xaxes(type="date", showticklabels=False, nticks=7, showgrid=True)
    for place in range(max(0, len(names) - columns), len(names)):  # the last of each column
        figure.update_xaxes(showticklabels=True, row=place // columns + 1, col=place % columns + 1)
    return figure


def _left(figure: go.Figure, middle: float, columns: int) -> float:
    domains = [figure.layout[f"xaxis{n if n > 1 else ''}"].domain for n in range(1, columns + 1)]
    return float(next(low for low, high in domains if low <= middle <= high))


def _axis(figure: go.Figure, lanes: Iterable[Lane], name: str, row: int, col: int) -> None:
    unit = FIGURES[name].unit
    top = max((value for lane in lanes for value in lane.values if value is not None), default=0.0)
    figure.update_yaxes(
        rangemode="tozero",
        tickformat=".0%" if unit == "1" else "~s" if top >= 10 else "~g",
        ticksuffix="B" if unit.startswith("By") else "",
        nticks=4,
        fixedrange=True,
        row=row,
        col=col,
    )


def _times(found: Lanes) -> list[datetime]:
    """When each bin begins, and when the last one ends."""
    count = max((len(lane.values) for lane in found.lanes), default=len(found.in_flight or ()))
    return [datetime.fromtimestamp((found.begin + n * found.step) / 1e6, UTC) for n in range(count + 1)]


def _line(times: Sequence[datetime], lane: Lane, name: str, colour: str, named: bool) -> go.Scatter:
    """A step a bin, to where the bin ends; bins in which nothing is told are not bridged. times: one more than bins."""
    unit = FIGURES[lane.figure].unit if lane.figure in FIGURES else ""
    x: list[datetime] = []
    y: list[float | None] = []
    before: float | None = None
    for time, value in zip(times, [*lane.values, None], strict=True):
        if value is None and before is not None:
            x += [time, time]
            y += [before, None]
        elif value is not None:
            x.append(time)
            y.append(value)
        before = value
    shown = ".1%" if unit == "1" else ".4s" if unit.startswith("By") else ",.4~g"
    return go.Scatter(
        x=x,
        y=y,
        name=in_chart(name, 46),
        legendgroup=repr(lane.of),
        showlegend=named,
        mode="lines",
        line={"color": colour, "width": 1.6, "shape": "hv"},
        connectgaps=False,
        hovertemplate=f"{in_chart(name, 46)}: %{{y:{shown}}}<extra></extra>",
    )
