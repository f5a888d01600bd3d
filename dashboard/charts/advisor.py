"""What each suggestion saves, as a figure: predicted with its interval, and measured beside it where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from analysis.advisor.report import Told
from analysis.interval import Interval
from dashboard.charts.frame import framed
from dashboard.text import beside_bar, in_chart

MOST_BARS = 15
PREDICTED, UP_TO, MEASURED = "#0072B2", "#999999", "#D55E00"


def savings(told: Sequence[Told], verified: Mapping[int, Interval]) -> go.Figure:
    """A bar a suggestion, the first at the top: milliseconds of the mean time to first token where all of those that a
    rule can write are priced, as that is what is measured; else tokens. verified: by place in `told`."""
    shown = list(told[:MOST_BARS])
    in_ms = any(one.mean_ms for one in shown)
    names = [in_chart(f"{at + 1}. {one.cause}") for at, one in enumerate(shown)]
    figure = go.Figure()
    if in_ms:
        _bars(figure, shown, [one.mean_ms for one in shown], names)
        _measured(figure, {at: value for at, value in verified.items() if at < len(shown)})
    else:
        _bars(figure, shown, [_tokens(one) for one in shown], names)
    left = [None if one.saves is not None else float(one.at_most) for one in shown]
    if not in_ms and any(left):
        figure.add_bar(
            y=list(range(len(shown))),
            x=left,
            orientation="h",
            name="at most, where no rule can write it",
            marker={"color": UP_TO, "pattern": {"shape": "/"}},
            hovertemplate="up to %{x:,} tokens<extra></extra>",
        )
    figure.update_layout(height=150 + 30 * max(len(shown), 2), bargap=0.3, barmode="overlay")
    title = "ms of the mean time to first token saved" if in_ms else "prompt tokens that need not be computed"
    figure.update_xaxes(tickformat="~g" if in_ms else "~s", rangemode="tozero")
    figure.update_yaxes(
        tickvals=list(range(len(shown))),
        ticktext=[beside_bar(f"{at + 1}. {one.cause}") for at, one in enumerate(shown)],
        autorange="reversed",
    )
    return framed(figure, title)


def _tokens(one: Told) -> Interval | None:
    if one.saves is None:
        return None
    return Interval(float(max(one.saves, one.needed or 0, one.alone or 0)), None, None)


def _bars(
    figure: go.Figure, shown: Sequence[Told], values: Sequence[Interval | None], names: Sequence[str]
) -> None:
    figure.add_bar(
        y=list(range(len(shown))),
        x=[None if one is None else one.value for one in values],
        orientation="h",
        name="predicted",
        marker={"color": PREDICTED},
        error_x=_error(values),
        customdata=[[name, _said(one)] for name, one in zip(names, values, strict=True)],
        hovertemplate="%{customdata[0]}<br>predicted %{customdata[1]}<extra></extra>",
    )


def _measured(figure: go.Figure, verified: Mapping[int, Interval]) -> None:
    if not verified:
        return
    values = list(verified.values())
    figure.add_scatter(
        y=list(verified),
        x=[one.value for one in values],
        mode="markers",
        name="measured",
        marker={"color": MEASURED, "symbol": "diamond", "size": 11},
        error_x=_error(values),
        customdata=[[_said(one)] for one in values],
        hovertemplate="measured %{customdata[0]}<extra></extra>",
    )


def _error(values: Sequence[Interval | None]) -> dict[str, object]:
    """Nothing is drawn where there is no interval."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [_width(one, 1) for one in values],
        "arrayminus": [_width(one, -1) for one in values],
        "thickness": 1.5,
    }


def _width(one: Interval | None, side: int) -> float | None:
    bound = None if one is None else one.high if side > 0 else one.low
    return None if one is None or bound is None else max(0.0, side * (bound - one.value))


def _said(one: Interval | None) -> str:
    if one is None:
        return ""
    if one.low is None or one.high is None:
        return f"{one.value:,.6g}"
    return f"{one.value:,.1f} (95 %: {one.low:,.1f} to {one.high:,.1f})"
