"""Puts windows with a known value into a real store, for each rule in the form in which its figure comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from clickhouse_connect.driver.client import Client

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
LATER = START + timedelta(hours=12)  # when all of it is in the store
VALUES = Sequence[float | None]
"""A value a window, None for one in which nothing is told."""


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def requests(client: Client, server: str, values: VALUES, *, window: int = 1, tokens: int = 2000) -> None:
    """Hit ratios: two requests a window, of which the whole has `tokens`."""
    rows: list[list[Any]] = []
    for number, value in enumerate(values):
        if value is not None:
            for half, cached in enumerate((round(value * tokens), 0)):
                at = second(number * window + window * (0.2 + half / 2))
                whole = tokens if half == 0 else 0
                rows.append(
                    [
                        at,
                        server,
                        f"{server}-{number}-{half}",
                        number * 2 + half + 1,
                        whole,
                        cached,
                        1000 + number - half,
                    ]
                )
    _insert(
        client,
        "requests",
        ["time", "server", "request_id", "span_id", "prompt_tokens", "cached_tokens", "e2e_us"],
        rows,
    )


def scrapes(
    client: Client, server: str, metric: str, at: Mapping[float, tuple[float, float | None]], **labels: str
) -> None:
    """Samples of one series: (value, delta) by second."""
    fingerprint = abs(hash((server, metric, tuple(sorted(labels.items()))))) % (1 << 63)
    kind = "gauge" if all(delta is None for _, delta in at.values()) else "counter"
    names = ["fingerprint", "server", "metric", "raw_name", "kind", "labels"]
    _insert(client, "series", names, [[fingerprint, server, metric, f"x:{metric}", kind, labels]] * 2)
    rows = [[second(when), fingerprint, value, delta] for when, (value, delta) in at.items()]
    _insert(client, "samples", ["time", "fingerprint", "value", "delta"], rows)


def counted_hits(client: Client, server: str, values: VALUES) -> None:
    """Hit ratios by counters of the server, 2,000 prompt tokens a window of a second."""
    told = {n + 0.5: v for n, v in enumerate(values) if v is not None}
    scrapes(client, server, "prompt_tokens", {when: (2000 * (when + 1), 2000) for when in told})
    scrapes(client, server, "cached_tokens", {when: (0, value * 2000) for when, value in told.items()})


def usage(client: Client, server: str, values: VALUES) -> None:
    """KV usage: of two engines, the other one at 0.1, two scrapes a window of 10 s."""
    told = {10 * n + offset: v for n, v in enumerate(values) if v is not None for offset in (1, 6)}
    scrapes(
        client, server, "kv_cache.usage", {when: (value, None) for when, value in told.items()}, engine="0"
    )
    scrapes(client, server, "kv_cache.usage", dict.fromkeys(told, (0.1, None)), engine="1")


def queue(client: Client, server: str, values: VALUES) -> None:
    """The growth of a queue over windows of a minute, seen at three scrapes."""
    told: dict[float, tuple[float, float | None]] = {}
    for number, value in enumerate(values):
        if value is not None:
            told |= {
                60 * number + 1.0: (10, None),
                60 * number + 30.0: (99, None),
                60 * number + 59.0: (10 + value, None),
            }
    scrapes(client, server, "requests.waiting", told)


def preemptions(client: Client, server: str, values: VALUES) -> None:
    """Preemptions a second over windows of a minute, by a counter."""
    told = {60.0 * n + 30 * half: v * 30 for n, v in enumerate(values) if v is not None for half in (0, 1)}
    scrapes(client, server, "preemptions", {when: (1, grown) for when, grown in told.items()})


def thrash(client: Client, server: str, values: VALUES) -> None:
    """Of 200 blocks stored a minute, the share that had been evicted a second before."""
    rows: list[list[Any]] = []
    seq = 0

    def event(when: float, action: str, block: int) -> None:
        nonlocal seq
        seq += 1
        rows.append([second(when), server, "kv", 0, START, seq, 1, action, block, "GPU", "device"])

    for number, value in enumerate(values):
        if value is not None:
            again = round(value * 200)
            for block in range(again):
                event(60 * number + 10, "removed", block)
            for block in range(200):
                event(
                    60 * number + 11, "stored", block if block < again else 1_000_000 + number * 200 + block
                )
    names = ["time", "server", "source", "rank", "epoch", "seq", "pos", "action", "block", "medium", "tier"]
    _insert(client, "kv_events", names, rows)


def publisher(client: Client, server: str, values: VALUES) -> None:
    """KV events a window of a minute, in which a prompt of 20,000 tokens is computed."""
    signals = [("KV-cache events", True, "endpoint tcp://*:5557", "")]
    _insert(client, "servers", ["time", "server", "kind", "signals"], [[START, server, "vllm", signals]])
    requests(client, server, [None if v is None else 0.0 for v in values], window=60, tokens=20_000)
    rows = [
        [second(60 * number + 30), server, "kv", 0, START, 1000 * number + i, 1, "stored", i]
        for number, value in enumerate(values)
        for i in range(int(value or 0))
    ]
    _insert(
        client,
        "kv_events",
        ["time", "server", "source", "rank", "epoch", "seq", "pos", "action", "block"],
        rows,
    )


def process(metric: str, *attributes: Mapping[str, str]) -> Callable[[Client, str, VALUES], None]:
    """Events a second of a process, in windows of 5 s: a point a second, shared by the series of these attributes."""

    def plant(client: Client, server: str, values: VALUES) -> None:
        for number, value in enumerate(values):
            if value is not None:
                for one in attributes:
                    for tick in range(5):
                        end = 5 * number + tick + 0.999999
                        points(client, server, metric, one, [(end - 1, end, value / len(attributes))])

    return plant


def points(
    client: Client,
    server: str,
    metric: str,
    attributes: Mapping[str, str],
    told: Sequence[tuple[float, float, float]],
    *,
    temporality: int = 1,
    service: str = "hitmap-probe",
    pid: str = "42",
) -> None:
    """Points of one series of a probe: (begin, end, value)."""
    resource = {
        "host.name": "node-1",
        "process.pid": pid,
        "process.executable.name": "python3",
        "hitmap.server": server,
    }
    rows = [
        [resource, service, metric, dict(attributes), second(begin), second(end), value, temporality, True]
        for begin, end, value in told
    ]
    names = [
        "ResourceAttributes",
        "ServiceName",
        "MetricName",
        "Attributes",
        "StartTimeUnix",
        "TimeUnix",
        "Value",
    ]
    _insert(client, "otel_metrics_sum", [*names, "AggregationTemporality", "IsMonotonic"], rows)


def kernels(client: Client, server: str, values: VALUES) -> None:
    """Miss ratios of one tensor kernel, three bursts a window of 10 s; the host is called as the server."""
    rows = [
        [{"host.name": server}, "hitmap-probe", "hitmap.gpu.tensor.miss_ratio",
         {"hw.id": "GPU-7", "hw.name": "H200", "hitmap.gpu.kernel": "gemm"}, second(10 * number + burst), one]
        for number, value in enumerate(values)
        if value is not None
        for burst, one in ((1, 0.0), (3, value), (5, 1.0))
    ]  # fmt: skip
    names = ["ResourceAttributes", "ServiceName", "MetricName", "Attributes", "TimeUnix", "Value"]
    _insert(client, "otel_metrics_gauge", names, rows)


def _insert(client: Client, table: str, names: list[str], rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        client.insert(table, [list(row) for row in rows], column_names=names)
