"""A server under probes whose figures are known, and the page of an address on its store."""

from __future__ import annotations

from typing import Any

from clickhouse_connect.driver.client import Client

from tests.analysis.observed.world import (
    HOST,
    MAJOR,
    PID,
    put_gauge,
    put_points,
    put_request,
    put_span,
    watched,
)
from tests.dashboard.made import HOSTILE

DAY = {"from": "2026-11-30T12:00:00", "to": "2026-11-30T12:00:10"}
THREAD_MAJOR, THREAD_CPU = "hitmap.thread.page_faults.major", "hitmap.thread.cpu_us"
MINE = {
    "host.name": HOST,
    "process.pid": str(PID),
    "process.executable.name": "python3",
    "hitmap.server": "vllm-a",
}
GPU = {"hw.id": "GPU-1f3a0000-aaaa-bbbb-cccc-000000000000", "hw.name": "NVIDIA H200", "hitmap.source": "nvml"}


def planted(client: Client) -> None:
    """r1: 1000 to 1400 ms, 256 major faults, all of them while it was looked up; r2: slower, without spans or counters.
    Their process, another host's, and a GPU that is idle for 5 of 10 s."""
    counted: dict[str, Any] = {THREAD_MAJOR: 256.0, THREAD_CPU: 30_000.0}
    more: dict[str, Any] = {"prompt_tokens": 105, "cached_tokens": 64, "device_tokens": 64}
    put_request(
        client, "r1", 1000, 1400, "vllm-a", span_id=0xB, prefix_us=100_000, decode_us=300_000, observed=counted,
        labels={"phase": HOSTILE}, **more,
    )  # fmt: skip
    put_request(client, "r2", 2000, 4000, "vllm-a", **more)
    put_request(client, HOSTILE, 5000, 5001, HOSTILE)
    resource = {"resource": MINE, "service": "vllm-a"}
    put_span(client, f"{0xA:016x}", "", f"POST {HOSTILE}", 990, 1410, service="client", prompt=HOSTILE)
    put_span(client, f"{0xB:016x}", f"{0xA:016x}", "llm_request", 1000, 1400, **resource, **counted)
    put_span(
        client, f"{0xC:016x}", f"{0xB:016x}", "prefix_lookup", 1000, 1100, **resource,
        **{"hitmap.layer": "prefix", THREAD_MAJOR: 256.0, "kv": "<b>" + "long " * 60},
    )  # fmt: skip
    put_span(
        client, f"{0xD:016x}", f"{0xB:016x}", "decode", 1100, 1400, **resource,
        **{"hitmap.layer": "decode", THREAD_CPU: 30_000.0},
    )  # fmt: skip
    _counters(client)


def _counters(client: Client) -> None:
    named = {"hitmap.server": "vllm-a", "server.port": "8000"}
    watched(client, **named)
    put_points(client, [(t, t + 100, 300 if t == 1000 else 0) for t in range(0, 10_000, 100)], **named)
    put_points(client, [(t, t + 1000, 0) for t in range(0, 10_000, 1000)], "hitmap.futex_waits", {}, **named)
    for reason, count in (("remote_ipi_send", 50), ("task_switch", 500)):
        told = {"hitmap.tlb_flush.reason": reason}
        points = [(t, t + 1000, count) for t in range(0, 10_000, 1000)]
        put_points(client, points, "hitmap.tlb_flushes", told, source="ebpf", **named)
    put_gauge(client, [(t, 2e9) for t in range(0, 10_000, 1000)], "process.memory.usage", {}, **MINE)
    watched(client, pid=7, host="node-2", **{"process.executable.name": HOSTILE})
    put_points(
        client,
        [(0, 10_000, 50)],
        MAJOR_FAULTS,
        MAJOR,
        pid=7,
        host="node-2",
        **{"process.executable.name": HOSTILE},
    )
    busy = [(t, float(t >= 5000)) for t in range(0, 10_000, 500)]
    put_gauge(client, busy, "hw.gpu.utilization", GPU)
    put_gauge(client, [(t, 4e10) for t in range(0, 10_000, 500)], "hw.gpu.memory.usage", GPU)
    put_points(client, [(0, 10_000, 5e9)], "hw.gpu.io", {**GPU, "network.io.direction": "receive"}, pid=None)
    put_points(
        client, [(t, t + 1000, 0.004) for t in range(0, 10_000, 1000)], "hitmap.probe.cpu.time", {}, pid=None
    )
    put_points(client, [(0, 1000, 12)], "hitmap.probe.lost", {"reason": "dropped"}, pid=None)


MAJOR_FAULTS = "process.paging.faults"
