"""What a rule is and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEVERITIES = ("wrong", "beware", "blind", "note")
"""wrong: the figure cannot be true. beware: it is easily read as something else. blind: a figure is missing that should
be there. note: true, and good to know before two figures are compared."""
UNITS = ("ratio", "tokens", "blocks", "requests", "s", "")

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Cause:
    """A known reason for what a rule finds.

    dialect: whose; before, since: versions that have it (before: that one no longer), empty where unknown; source:
    where it is told, such as a pull request.
    """

    dialect: str
    text: str
    source: str = ""
    before: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table; `rules/README.md` says what each field is."""

    id: str
    means: str
    severity: str
    sql: str
    finding: str
    do: str
    unit: str = ""
    said: str = ""
    corrected: str = ""
    metrics: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    before: str = ""
    since: str = ""
    causes: tuple[Cause, ...] = ()
    answers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A rule that the store could not answer, such as for want of memory, and what it said."""

    rule: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found about one server.

    said: the figure as the server tells it, in the rule's unit; corrected: the right one; None: unknown. evidence: the
    numbers it was concluded from, by the names that the rule's sentence uses. causes: those known for the server's
    version.
    """

    rule: Rule
    server: str
    said: float | None
    corrected: float | None
    evidence: Mapping[str, Value]
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Examination:
    """What came of the rules. findings: by server, the gravest first."""

    findings: tuple[Finding, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()
