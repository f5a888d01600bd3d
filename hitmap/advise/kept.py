"""What was verified, as findings in the store: the dashboard shows it beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.interval import Interval
from collector.canary.finding import Finding
from collector.canary.finding import store as insert
from hitmap.advise.verify import Verified
from hitmap.advise.view import VerifiedOne

ORIGIN = "advise"
SAVED_MS, SAVED_TOKENS = "advise.saved_ms", "advise.saved_tokens"


def keep(client: Client, run: str, together: Verified, each: Sequence[VerifiedOne]) -> None:
    """The subject is the key of a suggestion, empty for all of them together."""
    told = [("", "all suggestions together", together)]
    told += [(one.key, f"{one.cause} at {one.path}", one.verified) for one in each]
    findings = [found for one in told for found in _findings(*one)]
    insert(client, datetime.now(UTC), run, together.url, findings, ORIGIN)


def _findings(key: str, about: str, verified: Verified) -> Iterator[Finding]:
    gains = verified.gains
    inputs = {"model": verified.model, "apart": verified.apart, "predicted": asdict(gains)}

    def found(name: str, saved: Interval, unit: str, what: str) -> Finding:
        return Finding(
            name,
            saved.value,
            unit,
            verified.pairs,
            f"{about}: {what} that a request saved, by {verified.pairs} requests in both arms",
            subject=key,
            low=saved.low,
            high=saved.high,
            inputs=inputs,
        )

    yield found(SAVED_MS, gains.ms, "ms", "milliseconds of the time to first token")
    if gains.tokens:
        yield found(SAVED_TOKENS, gains.tokens, "{token}", "computed prompt tokens")
