"""How long all alert rules take over an hour of a day full of rows.

    python -m benchmarks.alerts --requests 10000000 --points 50000000

Rows are made inside a store of its own, spread evenly over a day: requests of eight servers; points of ten probe
metrics of eight processes with seven threads each; as many KV events as requests, of which every tenth block comes back
after its removal; scrapes of nine series a server every 5 s; bursts of 20 tensor kernels on eight GPUs. Each figure is
the median, with the least and the most, of so many rounds over different hours.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from clickhouse_connect.driver.client import Client

from analysis.alerts.evaluate import evaluate
from analysis.alerts.table import rules
from store.client import connect
from store.embedded import ensure
from store.migrate import migrate

BATCH = 5_000_000
_BEGIN = 1_795_910_400  # 2026-11-29T00:00
_SECOND = "{begin:UInt64} + (number + {base:UInt64}) * 86400 / {all:UInt64}"
_AT = f"fromUnixTimestamp64Micro(toInt64(({_SECOND}) * 1e6), 'UTC')"
_PROBED = (
    *(
        "hitmap.page_faults",
        "hitmap.tlb_flushes",
        "process.paging.faults",
        "process.cpu.time",
        "hitmap.futex_waits",
    ),
    *("hitmap.off_cpu_time", "process.context_switches", "hitmap.pmu.llc.loads", "hitmap.pmu.llc.misses"),
    "hitmap.pmu.cycles",
)
_SCRAPED = (
    *("cached_tokens", "prompt_tokens", "prompt_tokens_by_source", "prefix_cache.hit_tokens"),
    *("prefix_cache.query_tokens", "kv_cache.usage", "requests.waiting", "preemptions", "requests.running"),
)
_REQUESTS = f"""
    INSERT INTO requests (time, server, model, request_id, span_id, e2e_us, prompt_tokens, cached_tokens, preemptions)
    SELECT {_AT}, concat('s', toString(number % 8)), 'm', toString(number), number + 1, 100000, 2000,
           1900 - sipHash64(number) % 200, 0
    FROM numbers({{batch:UInt64}})"""
_POINTS = f"""
    INSERT INTO otel_metrics_sum (ResourceAttributes, ServiceName, ScopeName, MetricName, Attributes, StartTimeUnix,
                                  TimeUnix, Value, AggregationTemporality, IsMonotonic)
    SELECT map('host.name', concat('node-', toString(p % 4)), 'process.pid', toString(1000 + p),
               'process.executable.name', 'python3', 'server.port', '8000', 'hitmap.server', concat('s', toString(p))),
           'hitmap-probe', 'hitmap.probes', {list(_PROBED)}[m + 1],
           mapConcat(
               map('hitmap.source', 'ebpf', 'thread.id', toString(2000 + t), 'thread.name', concat('w', toString(t))),
               multiIf(m = 0, map('hitmap.fault.mode', 'user', 'hitmap.fault.access', ['read', 'write'][t % 2 + 1]),
                       m = 1, map('hitmap.tlb_flush.reason', ['task_switch', 'remote_shootdown'][t % 2 + 1]),
                       m = 2, map('system.paging.fault.type', ['minor', 'major'][t % 2 + 1]), map())),
           at - INTERVAL 1 SECOND, at, number % 100, 1, true
    FROM (SELECT number, number % 10 AS m, intDiv(number, 10) % 8 AS p, intDiv(number, 80) % 7 AS t, {_AT} AS at
          FROM numbers({{batch:UInt64}}))"""
_EVENTS = f"""
    INSERT INTO kv_events (time, server, source, epoch, seq, pos, action, block, medium, tier)
    SELECT {_AT}, concat('s', toString(number % 8)), 'kv', toDateTime64({{begin:UInt64}}, 6), n, 1,
           ['stored', 'removed'][n % 2 + 1],
           sipHash64(number % 8, if(intDiv(n, 2) % 10 = 9, intDiv(n, 2) % 1000, intDiv(n, 2))), 'GPU', 'device'
    FROM (SELECT number, intDiv(number + {{base:UInt64}}, 8) AS n FROM numbers({{batch:UInt64}}))"""
_SERIES = f"""
    INSERT INTO series (fingerprint, server, metric, raw_name, kind)
    SELECT number + 1, concat('s', toString(number % 8)), {list(_SCRAPED)}[intDiv(number, 8) + 1], 'x', 'counter'
    FROM numbers(72)"""
_SAMPLES = """
    INSERT INTO samples (time, fingerprint, value, delta)
    SELECT toDateTime64({begin:UInt64} + intDiv(number, 72) * 5, 6), number % 72 + 1, 0.5, 1
    FROM numbers(72 * 17280)"""
_BURSTS = f"""
    INSERT INTO otel_metrics_gauge (ResourceAttributes, ServiceName, MetricName, Attributes, TimeUnix, Value)
    SELECT map('host.name', 'node-0'), 'hitmap-probe', 'hitmap.gpu.tensor.miss_ratio',
           map('hw.id', concat('GPU-', toString(number % 8)), 'hitmap.gpu.kernel', concat('k', toString(number % 20))),
           {_AT}, 0.1
    FROM numbers({{batch:UInt64}})"""


def fill(client: Client, sql: str, rows: int) -> None:
    """Insert that many rows over the day."""
    for base in range(0, rows, BATCH):
        parameters = {"begin": _BEGIN, "base": base, "batch": min(BATCH, rows - base), "all": rows}
        client.command(sql, parameters=parameters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ensure(Path(folder)) as embedded,
        connect(embedded.dsn) as client,
    ):
        migrate(client)
        for sql, rows in ((_REQUESTS, asked.requests), (_POINTS, asked.points), (_EVENTS, asked.requests)):
            fill(client, sql, rows)
        fill(client, _BURSTS, asked.points // 25)
        client.command(_SERIES)
        client.command(_SAMPLES, parameters={"begin": _BEGIN})
        table = rules()
        hours = [
            datetime.fromtimestamp(_BEGIN, UTC) + timedelta(hours=2 + n) for n in range(asked.rounds + 1)
        ]
        evaluate(
            client, hours[-1], hours[-1] + timedelta(hours=1)
        )  # what is done once in the life of a store
        for name, some in [("all rules", table), *((rule.id, (rule,)) for rule in table)]:
            taken = []
            for hour in hours[:-1]:
                began = time.perf_counter()
                report = evaluate(client, hour, hour + timedelta(hours=1), some)
                taken.append(time.perf_counter() - began)
                if errors := [verdict.error for verdict in report.verdicts if verdict.error]:
                    raise SystemExit(f"{name}: {errors[0]}")
            windows = sum(subject.windows for verdict in report.verdicts for subject in verdict.subjects)
            least, most = min(taken), max(taken)
            print(
                f"{name:24} {statistics.median(taken):6.2f} s ({least:.2f} to {most:.2f}), {windows:,} windows"
            )


if __name__ == "__main__":
    main()
