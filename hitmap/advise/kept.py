"""What was verified, as findings in the store: the dashboard shows it beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from clickhouse_connect.driver.client import Client

from analysis.advisor.stored.verdicts import ONE_AT_A_TIME
from analysis.interval import Interval
from collector.canary.finding import Finding
from collector.canary.finding import store as insert
from hitmap.advise.verify import Verified
from hitmap.advise.view import VerifiedOne

ORIGIN = "advise"
SAVED_MS, SAVED_TOKENS = "advise.saved_ms", "advise.saved_tokens"


@dataclass(frozen=True)
class Saved:
    """What a request saved in the mean: ms of the time to first token, and computed prompt tokens, None where these are
    not told; by so many requests. key: of a suggestion, empty for all together; about: the same in words. inputs: by
    what it was measured, what was sent, and what was predicted."""

    key: str
    about: str
    ms: Interval
    tokens: Interval | None
    requests: int
    inputs: Mapping[str, Any]


def saved(together: Verified, each: Sequence[VerifiedOne]) -> list[Saved]:
    """What a verification says."""
    told = [("", "all suggestions together", together)]
    told += [(one.key, f"{one.cause} at {one.path} {one.where}".rstrip(), one.verified) for one in each]
    return [
        Saved(
            key,
            about,
            one.gains.ms,
            one.gains.tokens,
            one.pairs,
            {"by": ONE_AT_A_TIME, "model": one.model, "apart": one.apart, "predicted": asdict(one.gains)},
        )
        for key, about, one in told
    ]


def keep(client: Client, server: str, told: Sequence[Saved]) -> None:
    """Store it, as findings of one run."""
    findings = [found for one in told for found in _findings(one)]
    insert(client, datetime.now(UTC), uuid4().hex, server, findings, ORIGIN)


def _findings(one: Saved) -> Iterator[Finding]:
    def found(name: str, of: Interval, unit: str, what: str) -> Finding:
        detail = f"{one.about}: {what} that a request saved, by {one.requests} requests as sent and rewritten"
        return Finding(name, of.value, unit, one.requests, detail, one.key, of.low, of.high, one.inputs)

    yield found(SAVED_MS, one.ms, "ms", "milliseconds of the time to first token")
    if one.tokens:
        yield found(SAVED_TOKENS, one.tokens, "{token}", "computed prompt tokens")
