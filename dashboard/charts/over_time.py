"""A latency over time, in which two windows are brushed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import plotly.graph_objects as go

from analysis.over_time import Course, Marker
from dashboard.charts.frame import framed
from dashboard.text import in_chart

SIDES = {"A": "#0072B2", "B": "#D55E00"}
P50, P99 = "#56B4E9", "#8C564B"
MOST_MARKERS = 12


def latency(
    course: Course,
    windows: Mapping[str, tuple[datetime, datetime] | None],
    markers: Iterable[Marker],
    what: str,
) -> go.Figure:
    """P50 and P99 by bin; the windows of A and B shaded, deployments as lines. what: the metric, for the axis."""
    figure = go.Figure()
    times, counts, p50, p99 = _with_gaps(course)
    for name, values, colour in (("P99", p99, P99), ("P50", p50, P50)):
        figure.add_scatter(
            x=times,
            y=values,
            name=name,
            mode="lines+markers",
            marker={"size": 4},
            line={"color": colour, "width": 1.5},
            customdata=counts,
            hovertemplate=f"{name} %{{y:,.1f}} ms, n = %{{customdata:,}}<extra></extra>",
        )
    for side, window in windows.items():
        if window:
            figure.add_vrect(
                x0=window[0],
                x1=window[1],
                fillcolor=SIDES[side],
                opacity=0.16,
                line_width=0,
                annotation_text=f"<b>{side}</b>",
                annotation_position="top left",
            )
    ends = [bin_.begin for bin_ in course.bins]
    shown = [m for m in markers if ends and ends[0] <= m.time <= ends[-1]]
    for marker in shown[:MOST_MARKERS]:
        at = marker.time.timestamp() * 1000  # plotly adds up the ends of a line to place its text
        figure.add_vline(
            x=at, line_dash="dot", line_color="#666666", annotation_text=in_chart(marker.name, 20)
        )
    figure.update_layout(
        height=270,
        dragmode="select",
        selectdirection="h",
        hovermode="x unified",
    )
    figure.update_xaxes(type="date")
    figure.update_yaxes(title=f"{what}, ms", rangemode="tozero")
    return framed(figure, "time, UTC", dates=True)


def _with_gaps(
    course: Course,
) -> tuple[list[datetime], list[int], Sequence[float | None], Sequence[float | None]]:
    """Columns with an empty row behind each bin without a successor: a line is not drawn over what is not there."""
    width = timedelta(seconds=course.width_s)
    times: list[datetime] = []
    counts: list[int] = []
    p50: list[float | None] = []
    p99: list[float | None] = []
    for bin_ in course.bins:
        if times and bin_.begin - times[-1] > 2.5 * width:
            times.append(times[-1] + width)
            counts.append(0)
            p50.append(None)
            p99.append(None)
        times.append(bin_.begin)
        counts.append(bin_.n)
        p50.append(bin_.p50)
        p99.append(bin_.p99)
    return times, counts, p50, p99
