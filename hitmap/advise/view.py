"""An advice report with what a live server said of it, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.advisor import text
from analysis.advisor.report import AdviceReport
from analysis.report.paper import escaped, shown_text
from hitmap.advise.verify import Verified

TITLE = "Verified"


@dataclass(frozen=True)
class VerifiedOne:
    """What one suggestion saves beside all others, which are in place in both arms. key: as analysis/advisor/key.py
    makes it. where: the words around it, empty where there are none."""

    key: str
    cause: str
    path: str
    verified: Verified
    where: str = ""


@dataclass(frozen=True)
class VerifiedReport(AdviceReport):
    """The report and what was measured: of all rewrites together, and of single ones where that was asked for."""

    verified: Verified
    verified_each: list[VerifiedOne]


def with_verified(
    report: AdviceReport, verified: Verified, each: Sequence[VerifiedOne] = ()
) -> VerifiedReport:
    """All in one."""
    told = {one.name: getattr(report, one.name) for one in fields(report)}
    return VerifiedReport(**told, verified=verified, verified_each=list(each))


def to_terminal(report: AdviceReport, console: Console) -> None:
    """Print the report; `console` decides width and colour."""
    text.to_terminal(report, console)
    if isinstance(report, VerifiedReport):
        console.print(Text(), Text(TITLE, style="bold"), sep="\n")
        for sentence in _all_sentences(report):
            console.print(Padding(shown_text(sentence), (0, 0, 0, 2), expand=False))


def to_markdown(report: AdviceReport) -> str:
    """A self-contained Markdown page."""
    page = text.to_markdown(report)
    if not isinstance(report, VerifiedReport):
        return page
    told = "\n".join(f"* {escaped(sentence)}" for sentence in _all_sentences(report))
    return f"{page.rstrip()}\n\n## {TITLE}\n\n{told}\n"


def _all_sentences(report: VerifiedReport) -> list[str]:
    each = report.verified_each if len(report.verified_each) > 1 else []
    return [*sentences(report.verified), *map(_of_one, each)]


def _of_one(one: VerifiedOne) -> str:
    gains = one.verified.gains
    tokens = f"{text.with_interval(gains.tokens, 'tokens')} and " if gains.tokens else ""
    place = f" {one.where}" if one.where else ""
    return (
        f"{one.cause} at {one.path}{place}, beside all others: saved a request {tokens}"
        f"{text.with_interval(gains.ms, 'ms')}; predicted {text.with_interval(gains.tokens_predicted, 'tokens')}"
    )


def sentences(verified: Verified) -> list[str]:
    """What was sent, what it gained in tokens and in time, and what to know of it."""
    gains = verified.gains
    told = [
        f"{verified.pairs} requests, each as sent and rewritten, in turn, to {verified.model} at {verified.url};"
        f" the two kept apart by {verified.apart}"
        + (f"; {verified.failed} more failed" if verified.failed else "")
    ]
    predicted = f"predicted {text.with_interval(gains.tokens_predicted, 'tokens')}"
    if gains.tokens:
        place = {True: ", which holds that", False: ", which does not hold that", None: ""}[verified.inside]
        told.append(f"saved a request: {text.with_interval(gains.tokens, 'tokens')}; {predicted}{place}")
    else:
        told.append(f"saved a request: not told by the server; {predicted}")
    before, after = gains.ttft_as_sent_ms, gains.ttft_rewritten_ms
    share = f", {gains.ms.value / before:.0%} of what it was" if before else ""
    time = f"time to first token {before:.1f} ms as sent, {after:.1f} ms rewritten; saved"
    told.append(f"{time} {text.with_interval(gains.ms, 'ms')}{share}")
    if gains.ms_predicted and gains.ms_per_token is not None:
        by = f"at {gains.ms_per_token:.3g} ms a computed token, as these requests took"
        told.append(f"predicted {text.with_interval(gains.ms_predicted, 'ms')}, {by}")
    told.append(
        "both began with an empty cache, one request at a time: where the server is warm, each saves less"
    )
    return [*told, *verified.notes]
