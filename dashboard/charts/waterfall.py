"""One request in time: its spans, and below them on the same axis what was counted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.numbers import digits
from analysis.observed.model import Span, Trace
from analysis.observed.spans import shown
from analysis.observed.words import COLOUR_OF, amount
from cachemodel.observed import SPAN_COUNTERS
from dashboard.charts.counters import Strip, draw, legend
from dashboard.charts.frame import ABOVE, named
from dashboard.colours import SEAM
from dashboard.text import in_chart

MOST_ROWS = 60
_ROW, _STRIP, _LINE, _GAP = (
    24,
    62,
    15,
    16,
)  # pixels: of a span, of a strip, of a line beside it, between strips
_TOP, _BOTTOM, _LEFT, _RIGHT = 34, 48, 216, 84
_NO_LAYER = "rgba(128,128,128,0.45)"
_DEEPEST = 8  # steps of indentation
_MOST_TOLD = 14  # lines of a hover
_COUNTERS = {counter.name: counter for counter in SPAN_COUNTERS}


def waterfall(trace: Trace, strips: Sequence[Strip]) -> go.Figure:
    """x: ms after its arrival; what begins before it or ends after it is within reach by zooming out."""
    spans = shown(trace.spans, MOST_ROWS)
    before = [None, *(strip.layer for strip in strips)]
    legends = [
        legend(s, "" if s.layer == above else s.layer) for above, s in zip(before, strips, strict=False)
    ]
    heights = [_ROW * max(len(spans), 1), *(max(_STRIP, _LINE * len(lines)) for lines in legends)]
    inside = sum(heights) + _GAP * len(strips)
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=_GAP / inside,
    )
    _spans(figure, spans)
    for row, (strip, lines) in enumerate(zip(strips, legends, strict=True), 2):
        draw(figure, strip, row)
        _beside(figure, "<br>".join(lines), row, "y domain", 1.0, "top")
    figure.update_layout(
        height=inside + _TOP + _BOTTOM,
        margin={"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM},
        barmode="overlay",
        bargap=0.25,
        hoverlabel={"align": "left"},
        legend=ABOVE,
        showlegend=True,
    )
    begin, end = _range(trace)
    figure.update_xaxes(range=[begin, end], zeroline=False)
    figure.update_xaxes(tickangle=0)
    return named(figure, "ms after its arrival")


def _range(trace: Trace) -> tuple[float, float]:
    """ms: from its arrival, or the first span before, to its end."""
    own = [span for span in trace.spans if span.own] or list(trace.spans)
    begin = min([0.0, *(span.start_us for span in own)]) / 1000
    ends = [trace.e2e_us or 0.0, *(span.start_us + span.duration_us for span in own)]
    end = max(ends) / 1000
    return begin, end if end > begin else begin + 1.0


def _spans(figure: go.Figure, spans: Sequence[Span]) -> None:
    """A row a span, a colour a serving layer; the request's own first span is bold."""
    names = dict.fromkeys(span.layer for span in spans)
    for name in [layer for layer in COLOUR_OF if layer in names] + [n for n in names if n not in COLOUR_OF]:
        colour = COLOUR_OF.get(name, _NO_LAYER)
        own = [(row, span) for row, span in enumerate(spans) if span.layer == name]
        figure.add_trace(
            go.Bar(
                y=[row for row, _ in own],
                x=[span.duration_us / 1000 for _, span in own],
                base=[span.start_us / 1000 for _, span in own],
                orientation="h",
                name=in_chart(name) or "no layer of its own",
                marker={"color": colour, "line": SEAM},
                customdata=[_hover(span) for _, span in own],
                hovertemplate="%{customdata}<extra></extra>",
            ),
            row=1,
            col=1,
        )
    first = next((span for span in spans if span.own), None)
    for row, span in enumerate(spans):
        failed = " (failed)" if span.status == "Error" else ""
        name = "\N{NO-BREAK SPACE}" * 3 * min(span.depth, _DEEPEST) + in_chart(span.name + failed, 26)
        _beside(figure, f"<b>{name}</b>" if span is first else name, 1, "y", row, "middle")
        took = f"{digits(span.duration_us / 1000)} ms"
        figure.add_annotation(
            x=1, xref="x domain", xanchor="left", xshift=6, y=row, yref="y", text=took, showarrow=False,
            font={"size": 12},
        )  # fmt: skip
    figure.update_yaxes(
        range=[max(len(spans), 1) - 0.5, -0.5],
        showticklabels=False,
        showgrid=False,
        fixedrange=True,
        row=1,
        col=1,
    )


def _beside(figure: go.Figure, text: str, row: int, axis: str, y: float, anchor: str) -> None:
    """Text at the left edge, so that what stands deeper is seen to."""
    number = "" if row == 1 else str(row)
    figure.add_annotation(
        x=0, xref="paper", xanchor="left", xshift=8 - _LEFT, y=y, yref=axis.replace("y", f"y{number}", 1),
        yanchor=anchor, text=text, showarrow=False, align="left", font={"size": 12},
    )  # fmt: skip


def _hover(span: Span) -> str:
    """All that it tells, as far as there is room."""
    at = f"{digits(span.start_us / 1000)} to {digits((span.start_us + span.duration_us) / 1000)} ms"
    lines = [
        f"<b>{in_chart(span.name)}</b> of {in_chart(span.service)}",
        f"{at}: {digits(span.duration_us / 1000)} ms",
    ]
    if span.layer:
        lines.append(f"layer {in_chart(span.layer)}")
    if span.status not in ("", "Unset", "Ok"):
        lines.append(f"status {in_chart(span.status)}")
    for name, value in span.counted.items():
        counter = _COUNTERS[name]
        short = (
            name.removeprefix("hitmap.thread.").removeprefix("hitmap.").replace("_us", "").replace("_", " ")
        )
        lines.append(f"its thread: {short.replace('.', ' ')} {amount(round(value, 3), counter.unit)}")
    told = [f"{in_chart(key, 40)} = {in_chart(value, 90)}" for key, value in span.attributes.items()]
    room = max(_MOST_TOLD - len(lines), 4)
    more = [f"and {len(told) - room} attributes more"] if len(told) > room else []
    return "<br>".join([*lines, *told[:room], *more])
