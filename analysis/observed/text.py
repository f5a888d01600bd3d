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
from analysis.observed.spans import shown
from analysis.report.paper import coloured, escaped, markdown_table, shown_text, terminal_table
from analysis.report.tables import Column, TextTable

_BAR = 32
_MOST_ROWS = 60
_DEEPEST = 8  # steps of indentation
_NONE = "Counted, and none"
_FULL, _LEFT = "\N{FULL BLOCK}", "\N{LEFT ONE EIGHTH BLOCK}"


def to_terminal(trace: Trace, explanation: Explanation | None, console: Console) -> None:
    """Print it; `console` decides width and colour. explanation: of the same prompt, None where it is not known."""
    console.print(shown_text(words.answer(trace), "bold"), Text(), sep="\n")
    for line in words.described(trace):
        console.print(shown_text(line))
    if explanation and explanation.prompt and coloured(console):
        totals: dict[str, int] = {}
        for run in explanation.runs:
            totals[run.part] = totals.get(run.part, 0) + run.end - run.start
        width = min(console.width, 100)
        console.print(Text("\nIts prompt, token by token", "bold"))
        console.print(token_map(explanation, width), legend(totals), sep="\n")
    for table, bars in ((_waterfall(trace), _bars(trace)), (_layers(trace), None)):
        if table.rows:
            console.print(Text(), terminal_table(table, detail=console.width >= 120, last=bars), sep="\n")
    none = words.told(trace)[1]
    for heading, lines in ((_NONE, none), ("Not known", words.missing(trace)), ("Note", trace.notes)):
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
    for heading, told in (
        (_NONE, words.told(trace)[1]),
        ("Not known", [*words.missing(trace), *trace.notes]),
    ):
        if told:
            lines += ["", f"## {heading}", "", *(f"* {escaped(line)}" for line in told)]
    return "\n".join(lines) + "\n"


def _shown(trace: Trace) -> Sequence[Span]:
    return shown(trace.spans, _MOST_ROWS)


def _waterfall(trace: Trace) -> TextTable:
    """Its own first span is strong, where others are above it or beside it."""
    spans = _shown(trace)
    several = len({span.service for span in spans}) > 1
    spent = any(words.spent(span) for span in spans)
    columns = [
        Column("span", number=False),
        Column("from, ms"),
        Column("ms"),
        *([Column("counted meanwhile", number=False)] if spent else []),
        Column("service", number=False, detail=not several),
    ]
    rows = [
        [
            "  " * min(span.depth, _DEEPEST)
            + (f"{span.name} (failed)" if span.status == "Error" else span.name),
            digits(span.start_us / 1000),
            digits(span.duration_us / 1000),
            *([words.spent(span)] if spent else []),
            span.service,
        ]
        for span in spans
    ]
    rest = len(trace.spans) - len(spans)
    title = "Its spans" if rest <= 0 else f"Its spans, {len(rows)} of {len(trace.spans):,}"
    first = next((span.span_id for span in spans if span.own), "")
    return TextTable(title, columns, rows, [span.span_id == first and len(spans) > 1 for span in spans])


def _bars(trace: Trace) -> list[Text]:
    """When each span ran, in the colour of its serving layer."""
    spans = _shown(trace)
    begin = min((span.start_us for span in spans), default=0.0)
    end = max((span.start_us + span.duration_us for span in spans), default=0.0)
    scale = _BAR / (end - begin) if end > begin else 0.0
    bars = []
    for span in spans:
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
    rows, before = [], None
    for one in words.told(trace)[0]:
        rows.append([one.layer if one.layer != before else "", *_row(one, trace)])
        before = one.layer
    return TextTable("Below its spans", columns, rows, [False] * len(rows))


def _row(one: Observed, trace: Trace) -> list[str]:
    return [
        words.name(one.metric, one.attributes),
        words.amount(one.value, one.unit),
        words.part(one, trace),
        words.share(one),
        one.of,
        one.source,
    ]
