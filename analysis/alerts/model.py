"""What an alert rule is, and what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

SEVERITIES = ("critical", "warning", "info")
"""critical: somebody waits for it now. warning: look today. info: good to know."""
BREACHES = ("above", "below")

State = Literal["firing", "resolved", "no data"]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """The rule over what servers expose and what an OTLP pipeline makes of probes.

    expr: PromQL with `$threshold` in it, empty where it cannot be said; reason: why not, or what differs.
    """

    expr: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table; `rules/README.md` says what each field is. Seconds are whole."""

    id: str
    means: str
    value: str
    unit: str
    severity: str
    breach: str
    threshold: float
    window_s: int
    hold_s: int
    by: tuple[str, ...]
    of: str
    minimum: float
    needs: str
    sql: str
    gap_s: int = 0
    delay_s: int = 0
    metrics: tuple[str, ...] = ()
    look: tuple[str, ...] = ()
    prometheus: Prometheus = Prometheus()
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a rule judged. labels: names as in the rule's `by`, those that are known; windows: how many were judged;
    last: end of the newest one."""

    labels: Mapping[str, str]
    windows: int
    last: datetime


@dataclass(frozen=True, slots=True)
class Alert:
    """Consecutive breached windows of one subject.

    start, end: of its first and last window, UTC. worst: the value furthest from the threshold, of the window that
    begins at `worst_at`. windows: breached ones. samples: what they rest on, counted in the rule's `of`. state: firing
    at the end of the range; resolved by a window that was judged and did not breach; or no data since. look: commands
    that tell more.
    """

    rule: Rule
    labels: Mapping[str, str]
    start: datetime
    end: datetime
    worst: float
    worst_at: datetime
    windows: int
    samples: float
    state: State
    look: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits: the same for every alert of this rule about this subject."""
        told = "\0".join([self.rule.id, *(f"{name}\0{self.labels[name]}" for name in sorted(self.labels))])
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one rule. thin: windows with less in them than the rule's minimum, which were not judged. no_data:
    why nothing could be judged, empty where something was. error: what the store said where it could not answer."""

    rule: Rule
    alerts: tuple[Alert, ...] = ()
    subjects: tuple[Subject, ...] = ()
    thin: int = 0
    no_data: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of all rules from `begin` to `end`, UTC."""

    begin: datetime
    end: datetime
    verdicts: tuple[Verdict, ...]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All of them, the gravest first, then the newest."""
        found = [alert for verdict in self.verdicts for alert in verdict.alerts]
        return tuple(sorted(found, key=lambda a: (SEVERITIES.index(a.rule.severity), -a.start.timestamp())))

    @property
    def judged(self) -> bool:
        """Whether every rule could be asked, and at least one had data."""
        answered = not any(verdict.error for verdict in self.verdicts)
        return answered and any(verdict.subjects for verdict in self.verdicts)
