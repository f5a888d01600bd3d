"""Kill -9 at random moments of an ingest, then count: is every acknowledged span there exactly once?

    python -m benchmarks.kill [--collector 20] [--store 10] [--seed N]

Each round sends requests over OTLP/gRPC, kills the collector or the store somewhere in between, and goes on; what was
not acknowledged is sent again with the same bytes, as an exporter does.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from benchmarks.running import Running
from benchmarks.spans import export_request, send

SPANS = 64  # a request: small ones, so that many moments differ
REQUESTS_A_ROUND = 60
LONGEST_WAIT_S = 1.6  # a batch is sealed after one second: kills fall before, during and after its insert
ARRIVAL_S = 90.0


@dataclass(frozen=True)
class Verdict:
    """acknowledged: spans the senders hold a receipt for. found, distinct: rows in otel_traces. requests, traces: rows
    in `requests` and trace ids whose time range is known. One span has one trace and one request here."""

    acknowledged: int
    found: int
    distinct: int
    requests: int
    traces: int

    @property
    def good(self) -> bool:
        """Nothing lost, nothing doubled, everything derived as well."""
        return self.acknowledged == self.found == self.distinct == self.requests == self.traces


def run(home: Path, *, collector_kills: int, store_kills: int, seed: int) -> Verdict:
    """Ingest into a fresh store below `home` through that many kills, in random order."""
    rnd = random.Random(seed)
    victims = ["collector"] * collector_kills + ["store"] * store_kills
    rnd.shuffle(victims)
    requests = [export_request(seed * 1_000_003 + i, SPANS) for i in range(REQUESTS_A_ROUND * len(victims))]
    acknowledged: set[int] = set()
    with Running(home) as running:
        for number, victim in enumerate([*victims, ""], 1):
            if running.collector is None:
                running.start_collector()
            offered = range(min(number, len(victims)) * REQUESTS_A_ROUND)
            sender = Thread(
                target=_send,
                args=(
                    running.endpoint,
                    requests,
                    [i for i in offered if i not in acknowledged],
                    acknowledged,
                ),
            )
            sender.start()
            time.sleep(rnd.uniform(0.0, LONGEST_WAIT_S))
            if victim == "collector":
                running.stop_collector(signal.SIGKILL)
            elif victim == "store":
                os.kill(running.store_pid, signal.SIGKILL)
            sender.join()
            print(
                f"{number}: killed {victim or 'nobody'}; {len(acknowledged) * SPANS:,} spans acknowledged",
                file=sys.stderr,
            )
        return _count(running, len(acknowledged) * SPANS)


def _send(endpoint: str, requests: list[bytes], which: list[int], acknowledged: set[int]) -> None:
    for at in send(endpoint, [requests[i] for i in which]):
        acknowledged.add(which[at])
        time.sleep(0.01)  # spread over the time in which the kill may fall


def _count(running: Running, acknowledged: int) -> Verdict:
    """Wait until as many rows are there as were acknowledged, then a little for rows too many, and count."""
    client = running.client()
    end = time.monotonic() + ARRIVAL_S
    while time.monotonic() < end and int(client.command("SELECT count() FROM requests")) < acknowledged:
        time.sleep(0.5)
    time.sleep(2)
    found, distinct = client.query("SELECT count(), uniqExact(SpanId) FROM otel_traces").result_rows[0]
    requests = int(client.command("SELECT count() FROM requests"))
    traces = int(client.command("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts"))
    client.close()
    return Verdict(acknowledged, found, distinct, requests, traces)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--collector", type=int, default=20, help="how often to kill the collector")
    parser.add_argument("--store", type=int, default=10, help="how often to kill the store")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hitmap-kill-", ignore_cleanup_errors=True) as home:
        verdict = run(
            Path(home), collector_kills=arguments.collector, store_kills=arguments.store, seed=arguments.seed
        )
    print(verdict)
    kills = f"{arguments.collector} kills of the collector and {arguments.store} of the store (seed {arguments.seed})"
    print(f"{kills}: {'every acknowledged span is there exactly once' if verdict.good else 'FAILED'}")
    sys.exit(not verdict.good)


if __name__ == "__main__":
    main()
