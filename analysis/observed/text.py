"""A trace for a terminal and as Markdown: waterfall, what each observation layer saw, and what nothing tells."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.misses.explain_text import token_map
from analysis.misses.report_model import Explanation
from analysis.misses.text import legend
from analysis.numbers import digits
from analysis.observed import words
from analysis.observed.model import Observed, Span, Trace
from analysis.report.paper import escaped, markdown_table, shown_text, terminal_table
from analysis.report.tables import Column, TextTable
from cachemodel.layers import ObservationLayer

_BAR = 32
_MOST_ROWS = 60
_FULL, _LEFT = "\N{FULL BLOCK}", "\N{LEFT ONE EIGHTH BLOCK}"


def to_terminal(trace: Trace, explanation: Explanation | None, console: Console) -> None:
    """Print it; `console` decides width and colour. explanation: of the same prompt, None where it is not known."""
    console.print(shown_text(words.answer(trace), "bold"), Text(), sep="\n")
    for line in words.described(trace):
        console.print(shown_text(line))
    if explanation and explanation.prompt and console.color_system:
        totals: dict[str, int] = {}
        for run in explanation.runs:
            totals[run.part] = totals.get(run.part, 0) + run.end - run.start
        width = min(console.width, 100)
        console.print(Text("\nIts prompt, token by token", "bold"))
        console.print(token_map(explanation, width), legend(totals), sep="\n")
    for table, bars in ((_waterfall(trace), _bars(trace)), (_layers(trace), None)):
        if table.rows:
            console.print(Text(), terminal_table(table, detail=console.width >= 120, last=bars), sep="\n")
    for heading, lines in (("Not known", _missing(trace)), ("Note", trace.notes)):
        if lines:
            console.print(Text(f"\n{heading}", style="bold"))
        for line in lines:
            console.print(Padding(shown_text(line), (0, 0, 0, 2), expand=False))


def to_markdown(trace: Trace) -> str:
    """A page of its own."""
    lines = [f"# {escaped(trace.request_id)}", "", escaped(words.answer(trace)), ""]
    lines += [f"* {escaped(line)}" for line in words.described(trace)]
    for table in (_waterfall(trace), _layers(trace)):
        if table.rows:
            lines += ["", f"## {escaped(table.title)}", "", *markdown_table(table)]
    if rest := [*_missing(trace), *trace.notes]:
        lines += ["", "## Not known", "", *(f"* {escaped(line)}" for line in rest)]
    return "\n".join(lines) + "\n"


def _shown(trace: Trace) -> Sequence[Span]:
    return trace.spans[:_MOST_ROWS]


def _waterfall(trace: Trace) -> TextTable:
    rest = len(trace.spans) - len(_shown(trace))
    columns = [
        Column("span", number=False),
        Column("from, ms"),
        Column("ms"),
        Column("counted meanwhile", number=False),
        Column("service", number=False, detail=True),
    ]
    rows = [
        [
            "  " * span.depth + span.name,
            digits(span.start_us / 1000),
            digits(span.duration_us / 1000),
            words.spent(span),
            span.service,
        ]
        for span in _shown(trace)
    ]
    title = "Its spans" if rest <= 0 else f"Its spans, the first {len(rows)} of {len(trace.spans)}"
    return TextTable(title, columns, rows, [span.own and span.depth == 0 for span in _shown(trace)])


def _bars(trace: Trace) -> list[Text]:
    """When each span ran, in the colour of its serving layer."""
    begin = min((span.start_us for span in trace.spans), default=0.0)
    end = max((span.start_us + span.duration_us for span in trace.spans), default=0.0)
    scale = _BAR / (end - begin) if end > begin else 0.0
    bars = []
    for span in _shown(trace):
        first = min(_BAR - 1, int((span.start_us - begin) * scale))
        cells = round(span.duration_us * scale)
        bar = _FULL * min(cells, _BAR - first) or _LEFT
        bars.append(Text(" " * first).append(bar, words.COLOUR_OF.get(span.layer, "grey50")))
    return bars


def _layers(trace: Trace) -> TextTable:
    """What was observed beside the spans, by layer."""
    columns = [
        Column("layer", number=False),
        Column("what", number=False),
        Column("meanwhile"),
        Column("its part"),
        Column("share", number=False),
        Column("of", number=False),
        Column("counted by", number=False, detail=True),
    ]
    order = list(ObservationLayer)
    told = sorted(trace.observed, key=lambda one: order.index(one.layer))
    rows, before = [], None
    for one in told:
        rows.append([one.layer if one.layer != before else "", *_row(one)])
        before = one.layer
    return TextTable("Below its spans", columns, rows, [False] * len(rows))


def _row(one: Observed) -> list[str]:
    part = "" if one.estimate is None else words.amount(one.estimate, one.unit)
    return [
        words.name(one.metric, one.attributes),
        words.amount(one.value, one.unit),
        part,
        words.share(one),
        one.of,
        one.source,
    ]


def _missing(trace: Trace) -> list[str]:
    return [f"{gap.layer}: {gap.why}; {gap.do}" for gap in trace.missing]
