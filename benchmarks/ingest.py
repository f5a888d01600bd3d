"""Spans per CPU-second, from OTLP/gRPC bytes to rows a query returns; and what each stage costs.

    python -m benchmarks.ingest [--runs 3] [--requests 600]

Counted: collector and store process together, spool, HTTP, indexes, finaliser. Not counted: the sender, a process of
its own that made its requests before. "settled" adds the background merges until the store has nothing more to do.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.running import Running, rss_of, settle
from benchmarks.spans import SPANS_A_REQUEST
from benchmarks.stages import stage_costs

GOAL = 50_000


def one_run(requests: int, seed: int) -> dict[str, float]:
    """Figures of one ingest into a fresh store."""
    spans = requests * SPANS_A_REQUEST
    home = Path(tempfile.mkdtemp(prefix="hitmap-ingest-"))
    try:
        with Running(home) as running:
            running.start_collector()
            assert running.collector
            client = running.client()
            idle = rss_of(running.collector.pid)
            sender = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.spans", running.endpoint, str(requests), str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert sender.stdin
            assert sender.stdout
            sender.stdout.readline()
            cpu, began = running.cpu_s(), time.monotonic()
            sender.stdin.write("go\n")
            sender.stdin.close()
            while int(client.command("SELECT count() FROM requests")) < spans:
                time.sleep(0.1)
            wall, done = time.monotonic() - began, running.cpu_s()
            acknowledged = int(sender.stdout.read())
            sender.wait()
            settle(running.store_pid)
            settled = running.cpu_s()
            assert acknowledged == spans == int(client.command("SELECT uniqExact(SpanId) FROM otel_traces"))
            sizes = dict(
                client.query(
                    "SELECT table, sum(bytes_on_disk) / sum(rows) FROM system.parts"
                    " WHERE active AND database = currentDatabase() AND rows > 0 GROUP BY table"
                ).result_rows
            )
            client.close()
            return {
                "spans per CPU-second": spans / (sum(done) - sum(cpu)),
                "spans per CPU-second, settled": spans / (sum(settled) - sum(cpu)),
                "spans per second (wall)": spans / wall,
                "collector, CPU us a span": (done[0] - cpu[0]) / spans * 1e6,
                "store, CPU us a span": (done[1] - cpu[1]) / spans * 1e6,
                "merges afterwards, CPU us a span": (settled[1] - done[1]) / spans * 1e6,
                "collector idle, MB": idle / 1e6,
                "collector peak, MB": rss_of(running.collector.pid, peak=True) / 1e6,
                "otel_traces, bytes a span": sizes["otel_traces"],
                "otel_traces_trace_id_ts, bytes a span": sizes["otel_traces_trace_id_ts"],
                "requests, bytes a row": sizes["requests"],
            }
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--requests", type=int, default=600, help=f"of {SPANS_A_REQUEST} spans, a run")
    arguments = parser.parse_args()
    runs = []
    for i in range(arguments.runs):
        print(f"run {i + 1} of {arguments.runs} ...", file=sys.stderr, flush=True)
        runs.append(one_run(arguments.requests, seed=i * arguments.requests))
    print(
        f"{arguments.requests * SPANS_A_REQUEST:,} spans a run; median (lowest to highest) of {len(runs)} runs"
    )
    for name in runs[0]:
        values = [run[name] for run in runs]
        digits = 0 if statistics.median(values) >= 1000 else 1
        median, low, high = (
            f"{v:,.{digits}f}" for v in (statistics.median(values), min(values), max(values))
        )
        print(f"  {name:<40} {median:>10}  ({low} to {high})")
    print("stages one by one, CPU us a span")
    for name, cost in stage_costs(arguments.requests):
        print(f"  {name:<40} {cost:>10.2f}")
    reached = statistics.median(run["spans per CPU-second"] for run in runs)
    print(
        f"goal of {GOAL:,} spans per CPU-second: {'reached' if reached >= GOAL else 'missed'} ({reached:,.0f})"
    )


if __name__ == "__main__":
    main()
