"""One prompt as a strip of tokens, coloured by where each came from."""

from __future__ import annotations

import plotly.graph_objects as go

from analysis.misses.report_model import Explanation, TokenRun
from dashboard.charts.frame import framed
from dashboard.colours import SEAM, part_of
from dashboard.text import in_chart

MOST_RUNS = 2_000  # more cannot be told apart on a screen


def strip(found: Explanation) -> go.Figure:
    """A bar from the first token to the last; hovering a run shows its evidence, and its text where it was kept."""
    figure = go.Figure()
    runs = found.runs[:MOST_RUNS]
    for name in dict.fromkeys(run.part for run in runs):
        own = [run for run in runs if run.part == name]
        figure.add_bar(
            y=[""] * len(own),
            x=[run.end - run.start for run in own],
            base=[run.start for run in own],
            orientation="h",
            name=part_of(name).label,
            marker={"color": part_of(name).colour, "line": SEAM, "pattern": part_of(name).pattern()},
            customdata=[_hover(run) for run in own],
            hovertemplate="%{customdata}<extra></extra>",
        )
    figure.update_layout(
        barmode="overlay",
        height=190,
        bargap=0,
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(range=[0, max(found.prompt, 1)], tickformat=",d")
    figure.update_yaxes(visible=False)
    return framed(figure, "token of the prompt")


def span(run: TokenRun) -> str:
    """From its first token to the one behind its last, as the terminal and JSON count: `0-320`, then `320-400`."""
    return f"{run.start:,}-{run.end:,}"


def _hover(run: TokenRun) -> str:
    label, count = in_chart(part_of(run.part).label), run.end - run.start
    tokens = f"<b>{label}</b>: tokens {span(run)} ({count:,})"
    return "<br>".join(filter(None, [tokens, in_chart(run.evidence, 160), in_chart(run.text, 160)]))
