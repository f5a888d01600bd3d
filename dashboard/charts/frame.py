"""What surrounds a chart on a screen of any width: its legend and the name of its axis.

How many lines a legend takes, and where plotly puts ticks, is known in the browser only. So the legend stands above the
chart, where it pushes it down, and the name of the axis a fixed way below the ticks, which are never turned.
"""

from __future__ import annotations

import plotly.graph_objects as go

_ENTRY, _FEW = (
    19,
    4,
)  # pixels of an entry of a legend, a line each on a narrow screen; so many need no more room
_TICKS, _DATES, _NAME = 24, 38, 18  # pixels: ticks, ticks that are times, the name below them
ABOVE = {
    "orientation": "h",
    "xref": "container",
    "x": 0,
    "yref": "container",
    "y": 1,
    "yanchor": "top",
    "traceorder": "normal",
}
"""A legend over the whole width, that pushes the chart down as far as it needs."""


def framed(figure: go.Figure, below: str, *, dates: bool = False) -> go.Figure:
    """With its legend above, and `below` naming the x axis. dates: its ticks are times, of which the first has the day
    below it. The height of the figure is that with few entries in its legend."""
    figure.update_layout(
        legend=ABOVE,
        margin={"l": 10, "r": 30, "t": 34, "b": (_DATES if dates else _TICKS) + _NAME},
        showlegend=True,
    )
    entries = sum(trace.type != "heatmap" for trace in figure.data)
    figure.layout.height += _ENTRY * max(0, entries - _FEW)
    figure.update_xaxes(automargin=False, tickangle=0, ticks="")
    figure.update_yaxes(automargin=True)
    return named(figure, below, dates=dates)


def named(figure: go.Figure, below: str, *, dates: bool = False) -> go.Figure:
    """With `below` naming the x axis, under its ticks whatever their places."""
    return figure.add_annotation(
        text=below, x=1, xref="paper", xanchor="right", y=0, yref="paper", yanchor="top",
        yshift=-(_DATES if dates else _TICKS), showarrow=False, font={"size": 13},
    )  # fmt: skip
