"""What people decided about suggestions, in the store: one row a decision, of which the newest counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from clickhouse_connect.driver.client import Client

from analysis.interval import Interval
from cachemodel.errors import UserError

ONE_AT_A_TIME = "one request at a time"
"""How `hitmap advise --verify` measures: nobody waits for anybody, as requests do under load."""
MAX_REASON = 500  # characters
_COLUMNS = ("time", "key", "verdict", "reason")


class Verdict(StrEnum):
    """OPEN: nobody decided, or took it back."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DISMISSED = "dismissed"


@dataclass(frozen=True, slots=True)
class Decision:
    """time: UTC, None where nobody decided."""

    verdict: Verdict = Verdict.OPEN
    reason: str = ""
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """ms: of the mean time to first token that a rewrite saves a request. by: what it was measured by, such as
    ONE_AT_A_TIME, in words."""

    ms: Interval
    by: str

    @property
    def under_load(self) -> bool:
        """Whether it is what a prediction of requests that wait for each other is about."""
        return self.by != ONE_AT_A_TIME


def decisions(client: Client) -> dict[str, Decision]:
    """The newest of each suggestion, by its key (analysis/advisor/key.py). None where the store is older than they."""
    if not client.command("EXISTS TABLE advice_verdicts"):
        return {}
    rows = client.query(
        """
        SELECT key, toString((argMax((verdict, reason), decided) AS newest).1), newest.2,
               toTimeZone(max(decided), 'UTC')
        FROM (SELECT key, verdict, reason, time AS decided FROM advice_verdicts)
        GROUP BY key"""
    ).result_rows
    return {
        str(key): Decision(Verdict(verdict), str(reason), time.replace(tzinfo=UTC))
        for key, verdict, reason, time in rows
    }


def decide(writer: Client, key: str, verdict: Verdict, reason: str = "", now: datetime | None = None) -> None:
    """Write a decision. writer: a client that may insert. Raises UserError where the store is older than decisions."""
    if not writer.command("EXISTS TABLE advice_verdicts"):
        raise UserError(
            "the store is older than decisions about advice: `hitmap store migrate` makes a place for them"
        )
    row = [now or datetime.now(UTC), key, verdict.value, reason.strip()[:MAX_REASON]]
    writer.insert("advice_verdicts", [row], column_names=list(_COLUMNS))


def verified(client: Client) -> dict[str, Measured]:
    """Milliseconds of the time to first token that rewrites saved a request when they were measured, by key, newest:
    findings of origin `advise` named `advise.saved_ms`. Of all rewrites together under the empty key. None where the
    store is older than findings."""
    if not client.command("EXISTS TABLE findings"):
        return {}
    rows = client.query(
        """
        SELECT subject, argMax((value, low, high), time), argMax(JSONExtractString(inputs, 'by'), time) FROM findings
        WHERE origin = 'advise' AND name = 'advise.saved_ms' AND value IS NOT NULL
        GROUP BY subject"""
    ).result_rows
    return {str(subject): Measured(Interval(*told), str(by) or ONE_AT_A_TIME) for subject, told, by in rows}
