"""An explanation for a terminal and as Markdown. The text of a prompt is shown as text, whatever it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from analysis.misses.parts import COLOURS, HITS, UNKNOWN
from analysis.misses.report_model import Explanation
from analysis.misses.tables import shown_time
from analysis.misses.text import bullets, folded, legend, print_sentences
from analysis.report.paper import coloured, escaped, fits, markdown_table, shown_text, terminal_table
from analysis.report.tables import Column, TextTable

_CELL = "\N{FULL BLOCK}"
_TICKS = 4  # of the scale under the bar


def to_terminal(explanation: Explanation, console: Console) -> None:
    """Print it; `console` decides width and colour."""
    console.print(shown_text(answer(explanation), "bold"), Text(), sep="\n")
    for line in described(explanation):
        console.print(shown_text(line))
    if explanation.prompt and coloured(console):
        width = min(console.width, 100)
        totals = dict(_totals(explanation))
        console.print(
            Text(), token_map(explanation, width), _scale(explanation.prompt, width), legend(totals), sep="\n"
        )
    table = _table(explanation)
    swatches = [Text(_CELL * 2, COLOURS[run.part]) for run in explanation.runs] if coloured(console) else None
    shown = [terminal_table(table, detail=True, last=last) for last in (swatches, None)]
    console.print(
        Text(), next((t for t in shown if fits(t, console)), None) or folded(shown[-1], console), sep="\n"
    )
    for run in explanation.runs:
        if run.text:
            where = f"{run.start:,} to {run.end:,}, {run.part}: "
            console.print(Text(where, style="dim") + shown_text(_one_line(run.text)))
    for title, sentences in (("Note", explanation.notes), ("Next", explanation.next_steps)):
        if sentences:
            print_sentences(title, sentences, console)


def to_markdown(explanation: Explanation) -> str:
    """A self-contained Markdown page."""
    lines = [f"# {escaped(explanation.request_id)}", "", escaped(answer(explanation)), ""]
    lines += [f"* {escaped(line)}" for line in described(explanation)]
    lines += ["", *markdown_table(_table(explanation))]
    texts = [run for run in explanation.runs if run.text]
    lines += (
        ["", *(f"* {run.start:,} to {run.end:,}: {escaped(_one_line(run.text))}" for run in texts)]
        if texts
        else []
    )
    if explanation.notes:
        lines += ["", *(f"* {escaped(note)}" for note in explanation.notes)]
    if explanation.next_steps:
        lines += ["", "## Next", "", *bullets(explanation.next_steps)]
    return "\n".join(lines) + "\n"


def answer(explanation: Explanation) -> str:
    """The prompt in a sentence: what was served, and the largest of the rest."""
    totals, prompt = _totals(explanation), explanation.prompt
    if not prompt:
        return "Nothing tells how long its prompt is."
    hits = sum(totals[name] for name in HITS)
    missed = {name: tokens for name, tokens in totals.items() if name not in HITS}
    text = f"{hits:,} of {prompt:,} prompt tokens came from the cache"
    if untold := missed.pop(UNKNOWN, 0) if explanation.derived else 0:
        least = f"beyond {hits:,} " if hits else ""
        text = (
            f"How much of its {prompt:,} prompt tokens came from the cache {least}is not known: nothing tells whether"
            f" {untold:,} were served or computed"
        )
    if not missed:
        return f"{text}."
    rest = ", ".join(
        f"{tokens:,} {name}" for name, tokens in sorted(missed.items(), key=lambda item: -item[1])
    )
    return f"{text}; {sum(missed.values()):,} were computed: {rest}."


def described(explanation: Explanation) -> Iterator[str]:
    """Which request it is, and what is known of it."""
    model = f", model {explanation.model}" if explanation.model else ""
    yield f"{explanation.request_id} on {explanation.server}{model}, {shown_time(explanation.time)} UTC"
    if explanation.told_by:
        yield (
            f"prompt known by its {_TOLD_BY.get(explanation.told_by, explanation.told_by)}, in blocks of"
            + (f" {explanation.block_size} tokens; {explanation.alignment}")
        )
    if explanation.earlier:
        yield explanation.earlier
    if explanation.layers:
        yield "time, ms: " + ", ".join(f"{name} {ms:,.1f}" for name, ms in explanation.layers.items())
    if explanation.recomputed:
        yield f"{explanation.recomputed:,} tokens were computed again after a preemption, beside these"


_TOLD_BY = {
    "server": "server's own tokens",
    "tokenizer": "tokenizer",
    "approximation": "text, without its tokenizer",
    "span": "span",
    "reuse": "server's reuse report",
}


def token_map(explanation: Explanation, width: int) -> Text:
    """The prompt from its first token to its last: each cell in the colour of most of its tokens."""
    text, runs, prompt = Text(), explanation.runs, explanation.prompt
    at = 0
    for cell in range(width):
        begin, end = prompt * cell / width, prompt * (cell + 1) / width
        while at < len(runs) - 1 and runs[at].end <= begin:
            at += 1
        best, number, most = runs[at], at, 0.0
        while number < len(runs) and runs[number].start < end:
            inside = min(end, runs[number].end) - max(begin, runs[number].start)
            if inside > most:
                best, most = runs[number], inside
            number += 1
        text.append(_CELL, COLOURS[best.part])
    return text


def _scale(prompt: int, width: int) -> Text:
    marks = [f"{prompt * tick // _TICKS:,}" for tick in range(_TICKS + 1)]
    line = ""
    for tick, mark in enumerate(marks):
        place = width * tick // _TICKS
        line = line.ljust(place if tick < _TICKS else max(place - len(mark), len(line) + 1)) + mark
    return Text(line, style="dim")


def _table(explanation: Explanation) -> TextTable:
    columns = [
        Column("from token"),
        Column("to"),
        Column("tokens"),
        Column("", number=False),
        Column("evidence", number=False),
    ]
    rows = [
        [f"{run.start:,}", f"{run.end:,}", f"{run.end - run.start:,}", run.part, run.evidence]
        for run in explanation.runs
    ]
    return TextTable("Its prompt, run by run", columns, rows, [False] * len(rows))


def _totals(explanation: Explanation) -> Counter[str]:
    counts: Counter[str] = Counter()
    for run in explanation.runs:
        counts[run.part] += run.end - run.start
    return counts


def _one_line(text: str) -> str:
    return " ".join(text.split())
