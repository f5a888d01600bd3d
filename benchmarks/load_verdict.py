"""What benchmarks.load promises, and which of it the processes and the store show to be broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clickhouse_connect.driver.client import Client

from benchmarks.load_senders import RETRYABLE, ROWS, signal_of
from benchmarks.load_servers import EVENTS

NAMED = 5  # of those who delivered nothing
# where the rows of each signal are, which connection sent one, and what makes it that row
ROWS_OF = {
    "traces": ("otel_traces", "toUInt16(substring(ServiceName, 6))", "SpanId"),
    "logs": ("otel_logs", "toUInt16(substring(ServiceName, 6))", "Body"),
    "metrics": ("otel_metrics_gauge", "toUInt16(substring(ServiceName, 6))", "Value"),
}


@dataclass
class Verdict:
    """What the processes told, what the store has, and every promise that was not kept."""

    report: Mapping[str, Any]
    sent: Mapping[str, Any]
    served: Mapping[str, Any]
    found: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def require(self, kept: bool, promise: str) -> None:
        if not kept:
            self.broken.append(promise)


def judge(verdict: Verdict, client: Client, *, stalled: bool) -> None:
    """Find what is broken. stalled: the store was made to stand still."""
    report = verdict.report
    verdict.require(report["drained"], "what was spooled reached the store in time")
    verdict.broken += unbounded(report["highest"], report["bounds"])
    verdict.broken += idle("connection", verdict.sent["acknowledged"])
    verdict.broken += idle("server", report["good_scrapes"])
    verdict.broken += idle("publisher", verdict.served["published"])
    verdict.broken += unfair(verdict.sent["refused"], stalled=stalled)
    for signal in ROWS_OF:
        _judge_otlp(verdict, client, signal)
    requests = int(client.command("SELECT count() FROM requests"))
    verdict.require(
        requests == verdict.found["traces"], f"`requests` has a row for each span, not {requests:,}"
    )
    _judge_scrapes(verdict, client)
    _judge_kv_events(verdict, client)


def unbounded(highest: Mapping[str, float], bounds: Mapping[str, float]) -> list[str]:
    """What the marks break: each has to be there, to have a bound and to be within it."""
    return list(_unbounded(highest, bounds))


def _unbounded(highest: Mapping[str, float], bounds: Mapping[str, float]) -> Iterator[str]:
    for name in sorted(highest.keys() | bounds.keys()):
        mark, bound = highest.get(name), bounds.get(name)
        if mark is None:
            yield f"{name} was measured"
        elif bound is None:
            yield f"{name} has a bound, as it reached {mark:,.0f}"
        elif not mark <= bound:
            yield f"{name} stayed within {bound:,.0f}, not {mark:,.0f}"


def idle(who: str, delivered: Sequence[int]) -> list[str]:
    """What is broken where one of them delivered nothing. delivered: by its number."""
    if not delivered:
        return [f"there is a {who}"]
    numbers = [number for number, count in enumerate(delivered) if not count]
    if not numbers:
        return []
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return [f"each {who} delivered something, not {', '.join(map(str, numbers[:NAMED]))}{more}"]


def unfair(refused: Mapping[str, int], *, stalled: bool) -> list[str]:
    """What is broken by how senders were refused: by anything but "again later", or not at all by either door though
    the store stood still."""
    broken = [
        f"who was refused was told to try again, not {count:,} times {answer!r}"
        for answer, count in sorted(refused.items())
        if answer not in RETRYABLE
    ]
    if stalled:
        broken += [
            f"senders were answered {answer!r} while the store stood still"
            for answer in sorted(RETRYABLE - refused.keys())
        ]
    return broken


def _judge_otlp(verdict: Verdict, client: Client, signal: str) -> None:
    table, connection, row = ROWS_OF[signal]
    sql = f"SELECT {connection}, count(), uniqExact({row}) FROM {table} GROUP BY 1"
    acknowledged = {
        number: requests * ROWS
        for number, requests in enumerate(verdict.sent["acknowledged"])
        if signal_of(number) == signal and requests
    }
    rows = {number: (count, distinct) for number, count, distinct in client.query(sql).result_rows}
    verdict.found[signal] = sum(count for count, _ in rows.values())
    verdict.require(
        rows == {number: (count, count) for number, count in acknowledged.items()},
        f"the {sum(acknowledged.values()):,} acknowledged rows of {signal} are there exactly once,"
        f" not {verdict.found[signal]:,}",
    )
    verdict.require(bool(acknowledged), f"there are acknowledged rows of {signal}")


def _judge_scrapes(verdict: Verdict, client: Client) -> None:
    accepted = verdict.report["accepted"].get("samples", 0)
    samples = int(client.command("SELECT count() FROM samples"))
    verdict.found["samples"] = samples
    verdict.require(samples == accepted, f"the {accepted:,} accepted samples are there, not {samples:,}")
    rows = client.query(
        "SELECT toUInt32(substring(server, 6)), countIf(value = 1) FROM samples INNER JOIN"
        " (SELECT DISTINCT fingerprint, server FROM series WHERE raw_name = 'up') AS up USING fingerprint GROUP BY 1"
    ).result_rows
    ups = {number: count for number, count in rows if count}
    good = {number: count for number, count in enumerate(verdict.report["good_scrapes"]) if count}
    verdict.require(
        ups == good,
        f"each of {sum(good.values()):,} good scrapes is there under its server, not {sum(ups.values()):,}",
    )


def _judge_kv_events(verdict: Verdict, client: Client) -> None:
    rows = client.query(
        "SELECT toUInt32(substring(server, 6)), count(), uniqExact(seq, pos), uniqExact(seq) FROM kv_events GROUP BY 1"
    ).result_rows
    found = {number: counts for number, *counts in rows}
    published = {number: count for number, count in enumerate(verdict.served["published"]) if count}
    verdict.found["kv_events"] = sum(count for count, _, _ in found.values())
    verdict.require(
        found == {number: [EVENTS * count, EVENTS * count, count] for number, count in published.items()},
        f"the {EVENTS * sum(published.values()):,} published KV events are there exactly once,"
        f" not {verdict.found['kv_events']:,}",
    )
