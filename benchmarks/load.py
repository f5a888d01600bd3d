"""Everything at once for a while: is what was acknowledged there exactly once, and did every queue stay bounded?

    python -m benchmarks.load [--seconds 120] [--connections 200] [--servers 200] [--publishers 50]

OTLP connections (gRPC and HTTP, protobuf and JSON), scraped stub servers and publishers of KV events, each group a
process of its own, against what `hitmap attach` runs and a fresh embedded store. Prints the highest mark of every
queue, memory, what was refused, and the verdict of the store.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from benchmarks.load_senders import ROWS, signal_of
from benchmarks.load_servers import EVENTS
from store.client import connect
from store.embedded import ensure

SETTLE_S = 3.0  # for the last KV events, which nobody acknowledges
# where the rows of each signal are, which connection sent one, and what makes it that row
ROWS_OF = {
    "traces": ("otel_traces", "toUInt16(substring(ServiceName, 6))", "SpanId"),
    "logs": ("otel_logs", "toUInt16(substring(ServiceName, 6))", "Body"),
    "metrics": ("otel_metrics_gauge", "toUInt16(substring(ServiceName, 6))", "Value"),
}


@dataclass
class Verdict:
    """What the processes told, and every promise that was not kept."""

    report: Mapping[str, Any]
    sent: Mapping[str, Any]
    served: Mapping[str, Any]
    found: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def require(self, kept: bool, promise: str) -> None:
        if not kept:
            self.broken.append(promise)


@contextmanager
def child(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of ours that is told and tells by lines; its end is ours."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.stdin and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tell(process: subprocess.Popen[str], line: object = "") -> None:
    assert process.stdin
    process.stdin.write((json.dumps(line) if line else "") + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended without a word")
    return json.loads(line)


def run(
    home: Path,
    *,
    seconds: float,
    connections: int,
    servers: int,
    publishers: int,
    every_s: float = 1.0,
    interval_s: float = 5.0,
    spool_mb: int = 1024,
) -> Verdict:
    """The whole load with a fresh store below `home`. every_s: between two requests of a connection; interval_s: of
    scrapes."""
    with (
        ensure(home / "store") as store,
        child("load_servers", servers, publishers) as stubs,
        child("load_pipeline", store.dsn, home / "spool", spool_mb, interval_s) as pipeline,
        child("load_senders") as senders,
    ):
        tell(pipeline, hear(stubs))
        plan = hear(pipeline) | {"connections": connections, "seconds": seconds, "every_s": every_s}
        tell(senders, plan)
        sent = hear(senders)
        tell(stubs)
        served = hear(stubs)
        time.sleep(SETTLE_S)
        tell(pipeline)
        verdict = Verdict(hear(pipeline), sent, served)
        client = connect(store.dsn)
        _judge(verdict, client)
        client.close()
    return verdict


def _judge(verdict: Verdict, client: Client) -> None:
    report, require = verdict.report, verdict.require
    require(report["drained"], "what was spooled reached the store in time")
    for name, bound in report["bounds"].items():
        require(report["highest"].get(name, 0) <= bound, f"{name} stayed below {bound:,}")
    for signal, (table, connection, row) in ROWS_OF.items():
        _judge_otlp(
            verdict, client, signal, f"SELECT {connection}, count(), uniqExact({row}) FROM {table} GROUP BY 1"
        )
    requests = int(client.command("SELECT count() FROM requests"))
    require(requests == verdict.found["traces"], f"`requests` has a row for each span, not {requests:,}")
    _judge_scrapes(verdict, client)
    _judge_kv_events(verdict, client)


def _judge_otlp(verdict: Verdict, client: Client, signal: str, sql: str) -> None:
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


def _judge_scrapes(verdict: Verdict, client: Client) -> None:
    scrapes, accepted = verdict.report["sources"]["metrics"], verdict.report["accepted"].get("samples", 0)
    samples = int(client.command("SELECT count() FROM samples"))
    verdict.found["samples"] = samples
    verdict.require(samples == accepted, f"the {accepted:,} accepted samples are there, not {samples:,}")
    good = scrapes["scrapes"] - scrapes.get("failed", 0) - scrapes.get("refused", 0)
    ups = int(
        client.command(
            "SELECT countIf(value = 1) FROM samples"
            " WHERE fingerprint IN (SELECT fingerprint FROM series WHERE raw_name = 'up')"
        )
    )
    verdict.require(ups == good, f"each of {good:,} good scrapes is there, not {ups:,}")


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


def show(verdict: Verdict) -> None:
    """Print what was seen."""
    report = verdict.report
    print("highest marks (bound)")
    for name, value in sorted(report["highest"].items()):
        bound = report["bounds"].get(name)
        print(f"  {name:<32} {value:>15,.0f}" + (f"  ({bound:,})" if bound else ""))
    print("senders were refused, to be tried again: ", verdict.sent["refused"] or "never")
    for name in ("accepted", "duplicates", "rejected", "retries", "sources"):
        print(f"{name}: {report[name] or 'none'}")
    print(f"in the store: {verdict.found}")
    for promise in verdict.broken:
        print(f"BROKEN: {promise}")
    if not verdict.broken:
        print("everything acknowledged is there exactly once, and every queue stayed bounded")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--publishers", type=int, default=50)
    parser.add_argument(
        "--every", type=float, default=1.0, help="seconds between two requests of a connection"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hitmap-load-", ignore_cleanup_errors=True) as home:
        verdict = run(
            Path(home),
            seconds=arguments.seconds,
            connections=arguments.connections,
            servers=arguments.servers,
            publishers=arguments.publishers,
            every_s=arguments.every,
        )
    show(verdict)
    sys.exit(bool(verdict.broken))


if __name__ == "__main__":
    main()
