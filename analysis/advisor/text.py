"""An advice report for a terminal and as Markdown. Prompts may hold anything: what is shown of them is made safe."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.advisor.learning.model import Slot
from analysis.advisor.report import AdviceReport, Told
from analysis.interval import Interval
from analysis.report.paper import escaped, shown_text
from cachemodel.printable import printable

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
WORTH_A_WORD = 0.9  # of what a rewrite saves: how far what it saves by itself is below that
LINE = 140  # characters of a line of a diff that are shown


def to_terminal(report: AdviceReport, console: Console) -> None:
    """Print the report; `console` decides width and colour."""
    console.print(shown_text(report.answer, "bold"))
    for number, one in enumerate(report.suggestions, start=1):
        console.print(Text(), shown_text(f"{number}. {_title(one)}", "bold"), sep="\n")
        for sentence in _sentences(one):
            console.print(Padding(shown_text(sentence), (0, 0, 0, 3), expand=False))
        for line in printable(one.diff).splitlines():
            shown = Text(_cut(line), _STYLES.get(line[:1], "dim"))
            console.print(Padding(shown, (0, 0, 0, 3), expand=False))
        for line in one.template.splitlines():
            console.print(Padding(Text(line, "cyan"), (0, 0, 0, 3), expand=False))
    for title, sentences in _lists(report):
        console.print(Text(), Text(title, style="bold"), sep="\n")
        for sentence in sentences:
            console.print(Padding(shown_text(sentence), (0, 0, 0, 2), expand=False))


def to_markdown(report: AdviceReport) -> str:
    """A self-contained Markdown page."""
    lines = ["# Advice", "", escaped(report.answer), ""]
    for number, one in enumerate(report.suggestions, start=1):
        lines += [f"## {number}. {escaped(_title(one))}", ""]
        lines += [f"* {escaped(sentence)}" for sentence in _sentences(one)]
        if one.diff:
            shown = printable(one.diff)
            fence = "`" * max(3, 1 + max(map(len, _runs(shown)), default=0))
            lines += ["", f"{fence}diff", *map(_cut, shown.splitlines()), fence]
        if one.template:
            lines += ["", "```", *one.template.splitlines(), "```"]
        lines.append("")
    for title, sentences in _lists(report):
        lines += [f"## {title}", "", *(f"* {escaped(sentence)}" for sentence in sentences), ""]
    return "\n".join(lines)


def _cut(line: str) -> str:
    return line if len(line) <= LINE else f"{line[:LINE]} \N{HORIZONTAL ELLIPSIS}"


def _runs(text: str) -> list[str]:
    """Runs of backticks."""
    return [run for run in "".join(c if c == "`" else " " for c in text).split() if run]


def _title(one: Told) -> str:
    much = f"up to {one.at_most:,} tokens"
    if one.saves is not None:
        much = f"{max(one.saves, one.needed or 0, one.alone or 0):,} tokens"
    return f"{one.cause} at {one.path}: {much}, {one.share:.0%} of what is computed"


def with_interval(of: Interval, unit: str) -> str:
    """`76.2 ms (95 %: 60.1 to 92.3)`."""
    value = f"{of.value:.1f} {unit}"
    if of.low is None or of.high is None:
        return f"{value} (too few requests for an interval)"
    return f"{value} (95 %: {of.low:.1f} to {of.high:.1f})"


def where(one: Told | Slot) -> str:
    """The words around a slot, in quotes; empty where there are none that all have."""
    before, after = (
        f"\N{LEFT DOUBLE QUOTATION MARK}{words}\N{RIGHT DOUBLE QUOTATION MARK}" if words else ""
        for words in (" ".join(one.before.split()), " ".join(one.after.split()))
    )
    if before and after:
        return f"between {before} and {after}"
    return f"after {before}" if before else f"before {after}" if after else ""


def _sentences(one: Told) -> list[str]:
    told = [place] if (place := where(one)) else []
    told.append(one.evidence)
    if one.p95_ms and one.mean_ms and one.p95_share is not None:
        time = f"time to first token: P95 {with_interval(one.p95_ms, 'ms')} less, {one.p95_share:.0%} of it"
        told.insert(0, f"{time}; mean {with_interval(one.mean_ms, 'ms')} less")
    if one.values:
        told.append("such as " + " \N{MIDDLE DOT} ".join(one.values))
    if hangs := hangs_on(one):
        told.append(hangs)
    told.append(f"{one.safety}: {one.what} ({one.why})")
    return told


def hangs_on(one: Told) -> str:
    """That other rewrites have to come first, or with it; empty where it saves as good as all of it by itself."""
    if one.saves is None or one.alone is None or one.needed is None:
        return ""
    if one.alone < WORTH_A_WORD * one.saves:
        alone = f"saves {one.alone:,}" if one.alone >= 0 else f"costs {-one.alone:,}"
        return f"alone it {alone}: what stands before it has to go first"
    if one.saves < WORTH_A_WORD * one.needed:
        alone = f"saves {one.saves:,}" if one.saves >= 0 else f"costs {-one.saves:,}"
        return f"by itself it {alone}: what stands behind it has to go, too"
    return ""


def _lists(report: AdviceReport) -> list[tuple[str, list[str]]]:
    beside = [
        f"{one.cause}: {one.tokens:,} tokens ({one.share:.0%} of what is computed) in {one.requests:,} requests;"
        f" {one.detail}"
        for one in report.beside
    ]
    titled = [
        ("In time", _in_time(report)),
        ("Not a fault of the prompts", beside),
        ("Where prompts part, by their hashes alone", report.partings),
        ("How this was worked out", report.notes),
        ("Left out", report.left_out),
    ]
    return [(title, sentences) for title, sentences in titled if sentences]


def _in_time(report: AdviceReport) -> list[str]:
    """What all of it saves together, and how far that can be trusted."""
    if (price := report.price) is None:
        return [f"no milliseconds: {report.no_price}"] if report.no_price else []
    p95, mean = with_interval(price.p95_ms, "ms"), with_interval(price.mean_ms, "ms")
    of = ", ".join(price.servers)
    return [
        f"with everything above, P95 of the time to first token falls by {p95} of {price.p95_before_ms:,.0f} ms,"
        f" its mean by {mean} of {price.mean_before_ms:,.0f} ms",
        f"simulated: {price.requests:,} requests of {of}, served again by a twin of its scheduler, fitted to them",
        *price.notes,
    ]
