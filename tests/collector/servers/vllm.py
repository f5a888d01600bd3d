"""A vLLM 0.32: the answers of the recorded server (tests/data/vllm-0.32/run1).

Its offload tier and the V0 engine (0.6, 0.7) are made from the atlas, not run live.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.collector.servers.sglang import histogram
from tests.collector.support import Answer, Server, text

RUN1 = Path(__file__).parents[2] / "data/vllm-0.32/run1"
METRICS = (RUN1 / "metrics/r1_10_after_mixed.txt").read_text()
_LABELS = 'engine="0",model_name="tiny-llama"'


def page(value: object) -> Answer:
    return text(json.dumps(value), content_type="application/json")


def recorded() -> Server:
    """As it was after the mixed phase."""
    server = _engine("0.32.0", METRICS)
    server.answers["/kv_event_sources"] = page(json.loads((RUN1 / "kv_event_sources.json").read_text()))
    return server


def _single(kind: str, name: str, value: float, labels: str = _LABELS) -> str:
    raw = f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}"
    return f"# TYPE {raw} {kind}\n{raw}{{{labels}}} {value}\n"


def offload_metrics(n: int, names: str = "new old") -> str:
    """What an offload tier on the host, and one on disk behind it, add after `n` loads of 4,096 bytes in half a second
    and as many writes of twice that in half the time. names: as 0.32 says it (new), by direction (old), or both."""
    told = []
    for direction, moves, size, seconds in (
        ("load", "CPU_to_GPU", 4096, 0.5),
        ("store", "GPU_to_CPU", 8192, 0.25),
    ):
        by_direction = f'{_LABELS},transfer_type="{moves}"'
        if "new" in names.split():
            told += [
                _single("counter", f"kv_offload_{direction}_bytes", size * n),
                _single("counter", f"kv_offload_{direction}_time", seconds * n),
                histogram(f"vllm:kv_offload_{direction}_size", _LABELS, n, size),
            ]
        if "old" in names.split():
            told += [
                _single("counter", "kv_offload_total_bytes", size * n, by_direction),
                _single("counter", "kv_offload_total_time", seconds * n, by_direction),
                histogram("vllm:kv_offload_size", by_direction, n, size),
            ]
    for tier, asked, found in (("0:primary", 10, 6), ("1:fs", 4, 3)):
        of_tier = f'{_LABELS},tier="{tier}"'
        told += [
            _single("counter", "kv_offload_tiering_chunk_queries", asked * n, of_tier),
            _single("counter", "kv_offload_tiering_chunk_hits", found * n, of_tier),
        ]
    told += [
        _single("counter", "kv_offload_tiering_read_bytes", 2048 * n, f'{_LABELS},tier="1:fs"'),
        _single("gauge", "kv_offload_cpu_cache_usage_perc", 0.125),
    ]
    return "".join(told)


def v0_metrics(n: int) -> str:
    """The V0 engine after `n` requests of 1,000 prompt tokens: ratios and gauges, no counters of its cache."""
    name = 'model_name="tiny-llama"'
    gauges = {
        **{"gpu_prefix_cache_hit_rate": 0.8, "gpu_cache_usage_perc": 0.5, "cpu_cache_usage_perc": 0.25},
        **{"num_requests_running": 3, "num_requests_swapped": 2, "num_requests_waiting": 1},
    }
    counters = {"prompt_tokens": 1000 * n, "generation_tokens": 50 * n, "num_preemptions": n}
    times = {
        **{"time_to_first_token_seconds": 0.25, "time_per_output_token_seconds": 0.02},
        **{"e2e_request_latency_seconds": 1.25, "time_in_queue_requests": 0.05},
    }
    return "".join(
        [
            *(_single("gauge", gauge, value, name) for gauge, value in gauges.items()),
            *(_single("counter", counter, value, name) for counter, value in counters.items()),
            *(histogram(f"vllm:{time}", name, n, each) for time, each in times.items()),
        ]
    )


def _engine(version: str, metrics: str) -> Server:
    models = {"object": "list", "data": [{"id": "tiny-llama", "object": "model", "owned_by": "vllm"}]}
    return Server(
        {"/metrics": text(metrics), "/version": page({"version": version}), "/v1/models": page(models)}
    )


def v0(n: int = 1) -> Server:
    """0.6.6: the V0 engine, which publishes no KV events."""
    return _engine("0.6.6", v0_metrics(n))


def offloading(n: int = 1) -> Server:
    """0.32 with an offload tier on the host and one on disk."""
    return _engine("0.32.0", METRICS + offload_metrics(n))
