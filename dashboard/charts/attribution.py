"""A change as figures, ms: waterfalls of its shares with their intervals, and what the quantile is made of."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis.attribution.model import Share, Verdict, View
from analysis.numbers import digits
from analysis.report.model import LayerLine
from dashboard.charts.frame import framed, named
from dashboard.colours import SEAM
from dashboard.text import beside_bar, in_chart

SLOWER, FASTER, WHOLE, FAINT = "#D55E00", "#0072B2", "#666666", "rgba(128,128,128,0.45)"
MOST_BARS = 16
_ROW = 34  # pixels


def waterfall(view: View) -> go.Figure:
    """A bar a share from where the last one ended, the largest first, with its 95% interval; then what is not explained
    and the whole change. Faint: not named."""
    shares = sorted(view.shares, key=lambda share: -abs(share.value))
    shown, rest = shares[:MOST_BARS], shares[MOST_BARS:]
    residual = (view.residual, view.residual_low, view.residual_high)
    steps = [
        (_name(share), share.value, share.low, share.high, _colour(share), _tip(share)) for share in shown
    ]
    if rest:
        steps.append((f"{len(rest)} more", sum(s.value for s in rest), None, None, FAINT, "the smallest"))
    steps.append(("not explained", *residual, FAINT, "chance, and the method's own error"))
    figure, at, ticks = go.Figure(), 0.0, []
    for row, (name, value, low, high, colour, tip) in enumerate(steps):
        _bar(figure, row, at, value, low, high, colour, f"{in_chart(name)}<br>{tip}")
        at += value
        ticks.append(name)
    whole = (view.change, view.change_low, view.change_high)
    _bar(figure, len(steps), 0.0, *whole, WHOLE, "the whole change")
    ticks.append("change")
    figure.update_layout(
        height=80 + _ROW * len(ticks),
        bargap=0.3,
        showlegend=False,
        margin={"l": 10, "r": 90, "t": 10, "b": 45},
    )
    figure.update_xaxes(zeroline=True, zerolinewidth=1.5, tickangle=0)
    rows = list(range(len(ticks)))
    figure.update_yaxes(
        tickvals=rows, ticktext=[beside_bar(t) for t in ticks], autorange="reversed", automargin=True
    )
    return named(figure, "ms")


def composition(layers: Sequence[LayerLine], names: tuple[str, str]) -> go.Figure:
    """What the quantile is made of in both sets: a bar a set, split by layer."""
    figure = go.Figure()
    for line in layers:
        ends = (line.part.a, line.part.b)
        if not any(end.value for end in ends):
            continue
        figure.add_bar(
            y=[beside_bar(f"{side}: {name}") for side, name in zip("AB", names, strict=True)],
            x=[end.value for end in ends],
            orientation="h",
            name=in_chart(line.layer),
            marker={"color": line.colour, "line": SEAM},
            customdata=[end.n for end in ends],
            hovertemplate=f"{in_chart(line.layer)}: %{{x:,.1f}} ms, n = %{{customdata:,}}<extra></extra>",
        )
    figure.update_layout(
        barmode="relative",
        height=190,
        bargap=0.3,
    )
    figure.update_yaxes(autorange="reversed")
    return framed(figure, "ms")


def _bar(
    figure: go.Figure,
    row: int,
    begin: float,
    value: float,
    low: float | None,
    high: float | None,
    colour: str,
    tip: str,
) -> None:
    bounds = (
        "no interval: too few requests"
        if low is None
        else f"95%: {digits(low, '+')} to {digits(high or 0, '+')}"
    )
    known = low is not None and high is not None
    figure.add_bar(
        y=[row],
        x=[value],
        base=[begin],
        orientation="h",
        marker={"color": colour, "line": SEAM},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, (high or 0.0) - value) if known else 0.0],
            "arrayminus": [max(0.0, value - (low or 0.0)) if known else 0.0],
            "visible": known,
            "color": "rgba(128,128,128,0.95)",
            "thickness": 1.4,
            "width": 4,
        },
        hovertemplate=f"{tip}<br>{digits(value, '+')} ms<br>{bounds}<extra></extra>",
    )
    figure.add_annotation(
        y=row,
        x=1,
        xref="paper",
        xanchor="left",
        xshift=8,
        text=f"<b>{digits(value, '+')}</b>",
        showarrow=False,
    )


def _name(share: Share) -> str:
    return share.name if share.verdict is Verdict.NAMED else f"{share.name} ({share.verdict})"


def _colour(share: Share) -> str:
    if share.verdict is not Verdict.NAMED:
        return FAINT
    return SLOWER if share.value > 0 else FASTER


def _tip(share: Share) -> str:
    own = f"{in_chart(share.own)}<br>" if share.own else ""
    return f"{own}{share.verdict}"
