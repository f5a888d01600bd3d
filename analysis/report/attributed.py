"""An attribution as tables of text: what caused the change, where it shows, the linear rule, since when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.attribution.certainty.gate import LEAST_OF_CHANGE, LEAST_OF_LEVEL
from analysis.attribution.model import (
    Attribution,
    Fidelity,
    Finding,
    Kind,
    Onset,
    Placebo,
    Share,
    Verdict,
    View,
)
from analysis.attribution.words import near
from analysis.numbers import digits, quantile_name, signed
from analysis.report.tables import Column, TextTable

TITLES: dict[Kind, str] = {
    "caused": "What caused it",
    "shows": "Where it shows",
    "composition": "What it is made of; not a cause",
    "linear": "By the linear rule",
}
_HEADING = {"caused": "cause", "shows": "mechanism", "composition": "layer", "linear": "layer"}
_BLAMES = ("caused", "shows")  # the others describe
RESIDUAL, CHANGE = "not explained", "change"


def view_table(view: View, q: float | None) -> TextTable:
    """A row a name, then what the method leaves and the whole change, so that the column adds up. Without rows where
    the view could not be made: its note says why."""
    title = f"{TITLES[view.kind]}: change of {quantile_name(q)}, ms"
    if view.refused:
        return TextTable(title, [], [], [], [view.refused])
    columns = [Column(_HEADING[view.kind], number=False), Column("ms"), Column("95%")]
    shares = sorted(view.shares, key=lambda share: -abs(share.value)) if view.kind in _BLAMES else view.shares
    rows = [[share.name, digits(share.value, "+"), between(share.low, share.high)] for share in shares]
    rows.append([RESIDUAL, digits(view.residual, "+"), between(view.residual_low, view.residual_high)])
    rows.append([CHANGE, digits(view.change, "+"), between(view.change_low, view.change_high)])
    if view.kind in _BLAMES:
        columns += [
            Column("sigmas"),
            Column("verdict", number=False),
            Column("what changed there", number=False, detail=True),
            Column("by sigmas", detail=True),
        ]
        told = [*map(_judged, shares), [""] * 4, [""] * 4]
        rows = [[*row, *more] for row, more in zip(rows, told, strict=True)]
    strong = [share.verdict is Verdict.NAMED for share in shares]
    return TextTable(title, columns, rows, [*strong, False, False], [provenance(view), *view.notes])


def _judged(share: Share) -> list[str]:
    own, sigmas = ("" if one is None else f"{one:.1f}" for one in (share.own_sigmas, share.sigmas))
    return [sigmas, share.verdict.value, share.own, own]


def provenance(view: View) -> str:
    """How the figures of a view came about."""
    return f"{view.provenance.capitalize()}: {view.method}"


def fidelity_table(found: Sequence[Fidelity]) -> Iterator[TextTable]:
    """The twin beside what it stands for, a row a figure; nothing where there is none."""
    if not found:
        return
    sides = list(dict.fromkeys(f.side for f in found))
    by_figure: dict[str, dict[str, Fidelity]] = {}
    for f in found:
        by_figure.setdefault(f.figure, {})[f.side] = f
    columns = [Column("", number=False)]
    for side in sides:
        columns += [Column(side), Column("twin"), Column("may differ by", detail=True)]
    rows, strong = [], []
    for figure, told in by_figure.items():
        cells = [_fidelity_cells(told.get(side)) for side in sides]
        rows.append([figure, *(cell for three in cells for cell in three)])
        strong.append(not all(f.ok for f in told.values() if f.held))
    notes = ["Bold or marked: the twin is farther off than it may be."] if any(strong) else []
    if beside := [figure for figure, told in by_figure.items() if not any(f.held for f in told.values())]:
        notes.append(f"Told and not asked of the twin for this figure: {', '.join(beside)}.")
    yield TextTable("How well the twin does as the servers did, ms", columns, rows, strong, notes)


def _fidelity_cells(f: Fidelity | None) -> list[str]:
    return ["", "", ""] if f is None else [digits(f.real), digits(f.twin), digits(f.bound)]


def onset_table(found: Sequence[Onset]) -> Iterator[TextTable]:
    """Since when each name differs; nothing where no change-point was found."""
    if not found:
        return
    columns = [Column("", number=False), Column("since, UTC", number=False), Column("95%", number=False)]
    columns += [Column("step"), Column("unit", number=False), Column("confidence", detail=True)]
    columns += [Column("nearest deployment", number=False)]
    rows = [
        [
            onset.name,
            moment(onset.at),
            f"{moment(onset.low)} to {moment(onset.high)}",
            f"{onset.step:+.2f}" if onset.unit != "ms" else digits(onset.step, "+"),
            onset.unit,
            f"{100 * onset.confidence:.0f} %",
            near(onset),
        ]
        for onset in found
    ]
    yield TextTable("Since when", columns, rows, [bool(onset.deploy) for onset in found])


def finding_lines(finding: Finding) -> list[str]:
    """A diagnosis: on what it rests, what to do, what would confirm it."""
    evidence = "; ".join(finding.evidence)
    return [f"Seen: {evidence}", f"Do: {finding.remedy}", f"To be sure: {finding.confirm}"]


def false_blame_line(placebo: Placebo) -> str:
    """How often "where it shows" names somebody where nothing happened, or why that is not known."""
    if placebo.rate is None or placebo.low is None or placebo.high is None:
        return f"False blame on your fleet: not known; {placebo.why}."
    few = f"; {placebo.why}" if placebo.why else ""
    return (
        f"False blame on your fleet: {100 * placebo.rate:.2g} %, {placebo.blamed} of {placebo.pairs} pairs of windows"
        f" of {placebo.window_s:,.0f} s in which nothing was deployed (95%: {100 * placebo.low:.2g} to"
        f" {100 * placebo.high:.2g} %){few}."
    )


def method_lines(found: Attribution) -> list[str]:
    """What holds for all of it."""
    lines = [
        "Named: past the gate that any name passes by chance in 1% of comparisons, its own input changed by more than 3"
        f" sigmas, and no less than {LEAST_OF_CHANGE:.0%} of what moved and {LEAST_OF_LEVEL:.0%} of the figure itself."
        " Slight: the same, but smaller. Noise: the interval holds zero. Undecided: none of these; more requests tell.",
        false_blame_line(found.placebo),
    ]
    if found.paired:
        lines.append("The two sets ran side by side: windows that both have were compared.")
    return lines


def between(low: float | None, high: float | None) -> str:
    """An interval, or that there is none."""
    if low is None or high is None:
        return "too few"
    return f"{signed(low).removesuffix(' ms')} to {signed(high).removesuffix(' ms')}"


def moment(iso: str) -> str:
    """The time of an ISO time, to the second."""
    return iso[11:19] or iso
