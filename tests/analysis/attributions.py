"""An attribution as it could come out, made up: for what shows it, not for what makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
from analysis.attribution.words import headline
from analysis.report.model import Report

NO_PLACEBO = Placebo(0, 0, None, None, None, 3.4, 0.0, "12 windows of 30 s before A are needed, there are 2")
PLACEBO = Placebo(120, 1, 1 / 120, 0.0002, 0.0456, 3.9, 1800.0)
ONSET = Onset(
    "changed",
    "2026-11-29T12:03:10+00:00",
    "2026-11-29T12:03:05+00:00",
    "2026-11-29T12:03:20+00:00",
    0.31,
    "of prompt tokens",
    0.99,
    "v42",
    8.0,
)
FINDING = Finding(
    "prompt-drift",
    "Prompts differ near their beginning",
    ["changed: 2 % -> 34 % of 12,900 prompt tokens"],
    "move what changes behind what stays the same",
    "hitmap misses --by template: changed falls after the move",
)


def share(name: str, value: float, half: float | None, verdict: Verdict, own: str = "") -> Share:
    low, high = (None, None) if half is None else (value - half, value + half)
    sigmas = None if half is None else 1.96 * abs(value) / half
    return Share(name, value, low, high, own, 9.5 if own else None, verdict, sigmas)


def view(kind: Kind, shares: Sequence[Share], residual: float = 0.0, half: float | None = 30.0) -> View:
    change = sum(s.value for s in shares) + residual
    ends = (None, None) if half is None else (change - half, change + half)
    simulated = kind == "caused"
    return View(
        kind,
        list(shares),
        change,
        *ends,
        residual,
        residual - 1,
        residual + 1,
        "simulated" if simulated else "derived",
        "Shapley values over a scheduler twin" if simulated else "Shapley values over mechanisms",
        ["2 % of the mass of B has no like in A"] if kind == "shows" else [],
    )


def refused(kind: Kind, reason: str) -> View:
    return View(kind, [], 0.0, None, None, 0.0, None, None, "simulated", "", [], reason)


CAUSED = view(
    "caused",
    [
        share("changed", 240.0, 25.0, Verdict.NAMED, "2 % -> 34 % of prompt tokens"),
        share("decode speed", 20.0, 8.0, Verdict.NAMED, "18.1 -> 19.0 ms a step"),
        share("workload", 9.0, 14.0, Verdict.NOISE, "4.1 -> 4.2 requests/s"),
    ],
    7.0,
)
SHOWS = view(
    "shows",
    [
        share("decode", 178.0, 20.0, Verdict.NAMED, "310 -> 480 ms"),
        share("queue", 48.0, 9.0, Verdict.NAMED, "20 -> 61 ms"),
        share("prefill", 50.0, 5.0, Verdict.UNDECIDED, "31 -> 80 ms"),
    ],
)


def made(caused: View = CAUSED, shows: View = SHOWS, placebo: Placebo = PLACEBO) -> Attribution:
    ends = ((411.0, 14_200), (687.0, 13_900))
    return Attribution(
        headline=headline("P99 end-to-end time", ends, caused, shows, placebo, [ONSET]),
        metric="e2e",
        q=0.99,
        composition=view("composition", [share("decode", 276.0, 20.0, Verdict.UNDECIDED)]),
        linear=view("linear", [share("decode", 190.0, 20.0, Verdict.UNDECIDED)], 86.0),
        shows=shows,
        caused=caused,
        placebo=placebo,
        fidelity=[Fidelity("A", "P99", 411.0, 405.0, 41.0), Fidelity("B", "P99", 687.0, 790.0, 69.0)],
        onsets=[ONSET],
        findings=[FINDING],
        paired=False,
        seed=0,
    )


def attributed(report: Report, found: Attribution) -> Report:
    """The report with an attribution, at its quantile."""
    return replace(report, attribution=replace(found, q=report.quantile), answer=found.headline)
