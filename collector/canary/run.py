"""One run of a canary: introduces itself, takes the measurements one by one, and stops where the budget does."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from cachemodel.errors import UserError
from collector.canary.budget import Budget, Clock, Ledger, Part, Spent, WallClock
from collector.canary.finding import Finding
from collector.canary.measures import MEASURES, Options
from collector.canary.prober import GaveUp, Prober
from collector.canary.rehearsal import RehearsalClock, RehearsalRandom, RehearsalServer
from collector.canary.wire import Transport

INTRODUCTION = "introduction"


@dataclass(frozen=True, slots=True)
class Course:
    """What one measurement sent. stopped: why it did not come to its end, empty where it did. spent: which part of the
    budget was too small for it, None where that was not why."""

    measure: str
    requests: int
    tokens: int
    seconds: float
    stopped: str = ""
    spent: Part | None = None


@dataclass(slots=True)
class Report:
    """A run. time: when it began. findings: of all measurements. courses: what each sent, the introduction first.

    cost: None where no price was given. failures: requests that failed, in the server's words. dropped: what of a
    request the server refused, so that it was left out. notes: what the server did that weakens the figures or costs
    more than was asked for. interrupted: by the person who ran it.
    """

    run: str
    time: datetime
    model: str = ""
    findings: list[Finding] = field(default_factory=list)
    courses: list[Course] = field(default_factory=list)
    requests: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost: float | None = None
    failures: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False


Progress = Callable[[str, Ledger], None]
"""Told after every request: the measurement and the books."""


def run(
    transport: Transport,
    url: str,
    measures: Sequence[str],
    options: Options,
    budget: Budget,
    *,
    model: str = "",
    clock: Clock | None = None,
    progress: Progress = lambda measure, ledger: None,
    random: Random | None = None,
) -> Report:
    """Measure the server behind `transport`; url: what messages call it. model: the server's first where empty.
    random: what prompts are drawn with; the system's where there is none.

    Ctrl-C ends it with what is known by then. Raises UserError where the server answers nothing at all, and where the
    budget does not even let it be asked.
    """
    report = Report(secrets.token_hex(4), datetime.now(UTC))
    ledger = Ledger(budget, clock or WallClock())
    current = INTRODUCTION
    prober = Prober(transport, ledger, url, report.run, lambda: progress(current, ledger), random)
    try:
        with _Entry(report, ledger, INTRODUCTION):
            prober.introduce(model)
        for current in measures:
            _take(current, prober, options, report)
            if report.interrupted:
                break
    except Spent as spent:
        raise UserError(
            f"{spent}, before anything could be measured: allow more --max-{spent.part}"
        ) from None
    except KeyboardInterrupt:
        report.interrupted = True
    report.model, report.failures, report.dropped = (
        prober.dialect.model,
        prober.failures,
        prober.dialect.dropped,
    )
    report.notes = _notes(prober)
    report.requests, report.tokens, report.seconds = ledger.requests, ledger.tokens, ledger.elapsed_s
    report.cost = ledger.cost
    return report


def rehearse(measures: Sequence[str], options: Options, budget: Budget, model: str = "") -> Report:
    """What `run` would send at most, without sending anything. Its findings mean nothing, and its seconds are those
    that the rate and the waits take alone."""
    clock, random = RehearsalClock(), RehearsalRandom()
    server = RehearsalServer(model)
    report = run(server, "the server", measures, options, budget, model=model, clock=clock, random=random)
    report.findings = []
    return report


def _notes(prober: Prober) -> list[str]:
    """What a server did that a person has to know of, in sentences."""
    notes = []
    if prober.over:
        notes.append(
            f"the server ignores {prober.dialect.limit}: of {prober.over:,} requests for one token each the longest"
            f" answer had {prober.answers:,}; all of it is charged"
        )
    if prober.disbelieved:
        notes.append(
            f"counts that cannot be true came {len(prober.disbelieved):,} times and were not used; the last was"
            f" {prober.disbelieved[-1]}"
        )
    return notes


def _take(name: str, prober: Prober, options: Options, report: Report) -> None:
    """One measurement, with what it found however it ended."""
    measure = MEASURES[name](options)
    with _Entry(report, prober.ledger, name) as entry:
        try:
            measure.collect(prober)
        except Spent as spent:
            entry.stopped, entry.spent = str(spent), spent.part
        except GaveUp as stopped:
            entry.stopped = str(stopped)
        except KeyboardInterrupt:
            entry.stopped, report.interrupted = "interrupted", True
    report.findings += measure.findings(entry.stopped)


class _Entry:
    """Books what is sent within it as a Course."""

    def __init__(self, report: Report, ledger: Ledger, name: str) -> None:
        self._report, self._ledger, self._name = report, ledger, name
        self.stopped = ""
        self.spent: Part | None = None

    def __enter__(self) -> _Entry:
        ledger = self._ledger
        self._before = (ledger.requests, ledger.tokens, ledger.elapsed_s)
        return self

    def __exit__(self, *_: object) -> None:
        ledger, (requests, tokens, seconds) = self._ledger, self._before
        self._report.courses.append(
            Course(
                self._name,
                ledger.requests - requests,
                ledger.tokens - tokens,
                ledger.elapsed_s - seconds,
                self.stopped,
                self.spent,
            )
        )
