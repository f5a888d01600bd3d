"""trtllm-serve, made from the atlas and NVIDIA's documentation, not run live: /metrics and /kv_cache_events drain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.collector.support import Server, text

LABELS = 'engine_type="undefined",model_name="llama"'


def histogram(name: str, total: float, count: int) -> str:
    return (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{{LABELS},le="0.3"}} {count}\n{name}_bucket{{{LABELS},le="+Inf"}} {count}\n'
        f"{name}_count{{{LABELS}}} {count}\n{name}_sum{{{LABELS}}} {total}\n"
    )


def counter(name: str, *values: tuple[str, float]) -> str:
    """Values by further labels."""
    lines = (f"{name}_total{{{LABELS}{more}}} {value}\n" for more, value in values)
    return f"# TYPE {name}_total counter\n" + "".join(lines)


def gauge(name: str, value: float, more: str = "") -> str:
    return f"# TYPE {name} gauge\n{name}{{{LABELS}{more}}} {value}\n"


def five_metrics(prefix: str = "") -> str:
    """All that builds of the 1.1 era have."""
    return (
        counter(f"{prefix}request_success", (',finished_reason="stop"', 12))
        + histogram(f"{prefix}time_to_first_token_seconds", 3.5, 12)
        + histogram(f"{prefix}time_per_output_token_seconds", 0.25, 12)
        + histogram(f"{prefix}e2e_request_latency_seconds", 24.0, 12)
        + histogram(f"{prefix}request_queue_time_seconds", 1.5, 12)
    )


def all_metrics(prefix: str = "trtllm_", reuse: str = "True") -> str:
    """What a 1.4 has with return_perf_metrics and enable_iter_perf_stats."""
    info = f',enable_block_reuse="{reuse}",page_size="64",cache_dtype="auto"'
    return (
        five_metrics(prefix)
        + histogram(f"{prefix}request_prefill_time_seconds", 2.0, 12)
        + histogram(f"{prefix}request_decode_time_seconds", 20.5, 12)
        + counter(f"{prefix}prompt_tokens", ("", 4800))
        + counter(f"{prefix}prompt_cached_tokens", ("", 3200))
        + counter(
            f"{prefix}prompt_cache_hit_tokens",
            (',cache_level="0",cache_tier="gpu"', 2560),
            (',cache_level="1",cache_tier="host"', 640),
        )
        + counter(f"{prefix}kv_cache_reused_blocks", ("", 50))
        + counter(f"{prefix}kv_cache_missed_blocks", ("", 25))
        + counter(f"{prefix}kv_cache_onboard_bytes", ("", 1_048_576))
        + gauge(f"{prefix}kv_cache_hit_rate", 0.667)
        + gauge(f"{prefix}kv_cache_tokens_per_block", 64)
        + gauge(f"{prefix}kv_cache_config_info", 1, info)
    )


def iteration(number: int, latency_ms: float, reused: int, missed: int) -> dict[str, Any]:
    return {
        "timestamp": "",
        "iter": number,
        "iterLatencyMS": latency_ms,
        "numActiveRequests": 2,
        "numQueuedRequests": 1,
        "kvCacheStats": {
            "maxNumBlocks": 1000,
            "freeNumBlocks": 900,
            "usedNumBlocks": 100,
            "tokensPerBlock": 64,
            "reusedBlocks": reused,
            "missedBlocks": missed,
            "cacheHitRate": reused / (reused + missed),
        },
        "inflightBatchingStats": {"numContextRequests": 1, "numGenRequests": 1, "numCtxTokens": 256},
    }


class TrtllmServer(Server):
    """iterations, events: what the next reading of /metrics and of /kv_cache_events takes away; the readings are
    counted in drained and events_drained."""

    def __init__(self, metrics: str | None, version: str, iterations: Sequence[dict[str, Any]] = ()) -> None:
        models = {"object": "list", "data": [{"id": "llama", "object": "model", "owned_by": "tensorrt_llm"}]}
        super().__init__(
            {
                "/v1/models": text(json.dumps(models), content_type="application/json"),
                "/version": text(json.dumps({"version": version}), content_type="application/json"),
                "/metrics": self._drain,
                "POST /kv_cache_events": self._drain_events,
            }
        )
        if metrics is not None:
            self.answers["/prometheus/metrics"] = text(metrics)
        self.iterations = list(iterations)
        self.events: list[dict[str, Any]] = []
        self.drained = self.events_drained = 0

    def _drain(self, handler: BaseHTTPRequestHandler) -> None:
        taken, self.iterations = self.iterations, []
        self.drained += 1
        text(json.dumps(taken), content_type="application/json")(handler)

    def _drain_events(self, handler: BaseHTTPRequestHandler) -> None:
        taken, self.events = self.events, []
        self.events_drained += 1
        text(json.dumps(taken), content_type="application/json")(handler)


ITERATIONS = (iteration(7, 10.0, 4, 4), iteration(8, 20.0, 6, 4), iteration(9, 30.0, 12, 4))


def new() -> TrtllmServer:
    """1.4 with all it can tell."""
    return TrtllmServer(all_metrics(), "1.4.0rc2", ITERATIONS)


def old() -> TrtllmServer:
    """1.1: five request metrics without a prefix."""
    return TrtllmServer(five_metrics(), "1.1.0")


def bare() -> TrtllmServer:
    """Started without return_perf_metrics: no Prometheus endpoint."""
    return TrtllmServer(None, "1.2.0")
