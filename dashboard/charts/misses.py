"""A miss report as figures. Counts are tokens; texts of servers and users are escaped for plotly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import plotly.graph_objects as go

from analysis.misses.report_model import CeilingLine, EventsLine, MissLine
from dashboard.charts.frame import framed
from dashboard.colours import PARTS, SEAM, part_of
from dashboard.text import beside_bar, in_chart

MOST_BARS = 20
CEILINGS = {  # name -> colour, from what was served to all there was
    "achieved": "#56B4E9",
    "reachable": "#009E73",
    "attainable": "#E69F00",
    "prompt": "#999999",
}


def groups(lines: Sequence[MissLine], unit: str) -> go.Figure:
    """A bar a group, split by part. unit: "share" of its prompt tokens, or "tokens"."""
    shown = lines[:MOST_BARS]
    figure = go.Figure()
    names = [in_chart(line.key or "(none)") for line in shown]
    beside = [beside_bar(line.key or "(none)") for line in shown]
    for name in _present(line.parts for line in shown):
        counts = [line.parts.get(name, 0) for line in shown]
        whole = [sum(line.parts.values()) or 1 for line in shown]
        figure.add_bar(
            y=list(range(len(shown))),
            x=[c / w for c, w in zip(counts, whole, strict=True)] if unit == "share" else counts,
            orientation="h",
            customdata=[[n, c, c / w] for n, c, w in zip(names, counts, whole, strict=True)],
            hovertemplate="%{customdata[0]}<br>"
            f"{in_chart(part_of(name).label)}: %{{customdata[1]:,}} tokens, %{{customdata[2]:.1%}}<extra></extra>",
            **_look(name),
        )
    figure.update_layout(barmode="stack", height=150 + 34 * max(len(shown), 2), bargap=0.25)
    figure.update_xaxes(
        tickformat=".0%" if unit == "share" else "~s",
        range=[0, 1] if unit == "share" else None,
    )
    figure.update_yaxes(tickvals=list(range(len(shown))), ticktext=beside, autorange="reversed")
    return framed(figure, "share of prompt tokens" if unit == "share" else "prompt tokens")


def trend(lines: Sequence[MissLine], unit: str) -> go.Figure:
    """Parts over time, stacked; stretches without requests are empty, not bridged."""
    shown = _without_gaps(lines)
    times = [line.begin for line in shown]
    figure = go.Figure()
    for name in _present(line.parts for line in shown):
        counts = [line.parts.get(name, 0) for line in shown]
        figure.add_scatter(
            x=times,
            y=[c / (sum(line.parts.values()) or 1) for c, line in zip(counts, shown, strict=True)]
            if unit == "share"
            else counts,
            customdata=counts,
            stackgroup="parts",
            mode="lines",
            line={**SEAM, "shape": "hv"},
            fillcolor=part_of(name).colour,
            fillpattern=part_of(name).pattern(),
            name=part_of(name).label,
            hovertemplate=f"{in_chart(part_of(name).label)}: %{{customdata:,}} tokens<extra></extra>",
        )
    figure.update_layout(height=330, hovermode="x unified")
    figure.update_yaxes(
        title="share of prompt tokens" if unit == "share" else "prompt tokens",
        tickformat=".0%" if unit == "share" else "~s",
        range=[0, 1] if unit == "share" else None,
    )
    figure.update_xaxes(type="date")
    return framed(figure, "time, UTC", dates=True)


def ceilings(lines: Sequence[CeilingLine]) -> go.Figure:
    """For each server what it served beside what it could have, as shares of its prompt tokens."""
    shown = lines[:MOST_BARS]
    names = [in_chart(line.server) for line in shown]
    figure = go.Figure()
    for what, colour in list(CEILINGS.items())[:-1]:
        counts = [getattr(line, what) for line in shown]
        shares = [
            None if c is None or not line.prompt else c / line.prompt
            for c, line in zip(counts, shown, strict=True)
        ]
        if all(share is None for share in shares):
            continue
        figure.add_bar(
            y=list(range(len(shown))),
            x=shares,
            orientation="h",
            name=what,
            marker={"color": colour},
            text=["" if s is None else f"{s:.1%}" for s in shares],
            textposition="auto",
            customdata=[[n, c, line.prompt] for n, c, line in zip(names, counts, shown, strict=True)],
            hovertemplate=f"%{{customdata[0]}}<br>{what}: %{{customdata[1]:,}} of %{{customdata[2]:,}} prompt tokens"
            "<extra></extra>",
        )
    figure.update_layout(barmode="group", height=150 + 84 * len(shown), bargap=0.3)
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_yaxes(
        tickvals=list(range(len(shown))),
        ticktext=[beside_bar(line.server) for line in shown],
        autorange="reversed",
    )
    return framed(figure, "share of prompt tokens")


def stored(lines: Sequence[EventsLine]) -> go.Figure:
    """What KV events alone tell: tokens of stored blocks by why they had to be stored, over time, all servers."""
    begins = sorted({line.begin for line in lines})
    figure = go.Figure()
    for name in _present(line.parts for line in lines):
        figure.add_bar(
            x=begins,
            y=[sum(line.parts.get(name, 0) for line in lines if line.begin == begin) for begin in begins],
            hovertemplate=f"%{{x}}<br>{in_chart(part_of(name).label)}: %{{y:,}} tokens<extra></extra>",
            **_look(name),
        )
    figure.update_layout(barmode="stack", height=280, bargap=0.1)
    figure.update_yaxes(title="tokens of stored blocks", tickformat="~s")
    figure.update_xaxes(type="date")
    return framed(figure, "time, UTC", dates=True)


def _present(parts: Iterable[dict[str, int]]) -> list[str]:
    """Parts that occur, in the order in which they are stacked; those that are not known, last."""
    seen = {name for found in parts for name, count in found.items() if count}
    return [name for name in PARTS if name in seen] + sorted(seen - PARTS.keys())


def _look(name: str) -> dict[str, object]:
    part = part_of(name)
    return {"name": part.label, "marker": {"color": part.colour, "line": SEAM, "pattern": part.pattern()}}


def _without_gaps(lines: Sequence[MissLine]) -> list[MissLine]:
    """With an empty line after each stretch that has no successor, and at the end, so that areas end there."""
    if len(lines) < 2:
        width = timedelta(minutes=1)
    else:
        begins = [datetime.fromisoformat(line.begin) for line in lines]
        width = min(b - a for a, b in pairwise(begins))
    found: list[MissLine] = []
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        found.append(line)
        end = datetime.fromisoformat(line.begin) + width
        if after is None or datetime.fromisoformat(after.begin) > end:
            found.append(MissLine("", 0, 0, 0, {}, begin=end.isoformat()))
    return found
