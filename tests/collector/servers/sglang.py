"""An SGLang server made from the atlas and the source of 0.5.23, not run live.

Each request has a prompt of 1,000 tokens, of which the device held 640, the host 128 and the storage 32, and 50 tokens
of answer. Two tensor-parallel ranks show themselves where SGLang lets them.
"""

from __future__ import annotations

import json
from typing import Any

from tests.collector.support import Answer, Server, text

VERSION = "0.5.23"
MODEL = "Qwen/Qwen3-0.6B"
SOURCES = {"computed": 200, "device": 640, "host": 128, "remote": 32}
CONFIG: dict[str, Any] = {
    "version": VERSION,
    "model_path": MODEL,
    "api_key": "sk-secret",
    "page_size": 64,
    "disable_radix_cache": False,
    "kv_cache_dtype": "auto",
    "max_total_num_tokens": 131072,
    "enable_hierarchical_cache": True,
    "hicache_storage_backend": "file",
    "tp_size": 2,
    "dp_size": 1,
    "enable_metrics": True,
    "enable_cache_report": False,
    "enable_trace": True,
    "otlp_traces_endpoint": "localhost:4317",
    "kv_events_config": None,
    "kv_events": None,
}


def page(value: object) -> Answer:
    return text(json.dumps(value), content_type="application/json")


def histogram(name: str, labels: str, count: int, each: float) -> str:
    return (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{{labels},le="0.1"}} 0\n{name}_bucket{{{labels},le="+Inf"}} {count}\n'
        f"{name}_sum{{{labels}}} {each * count}\n{name}_count{{{labels}}} {count}\n"
    )


def new_metrics(n: int, prefix: str = "sglang:", ranks: int = 2) -> str:
    """After `n` requests, with --enable-metrics-for-all-schedulers: every rank tells the scheduler's families."""
    front = f'engine_type="unified",model_name="{MODEL}"'
    lines = []
    for name, each in (("prompt", 1000), ("generation", 50)):
        lines += [
            f"# TYPE {prefix}{name}_tokens_total counter",
            f'{prefix}{name}_tokens_total{{{front},is_streaming="True"}} {each * n}.0',
        ]
    lines += [f"# TYPE {prefix}cached_tokens_total counter"]
    lines += [
        f'{prefix}cached_tokens_total{{{front},cache_source="{source}"}} {each * n}.0'
        for source, each in (("device", 640), ("host", 128), ("storage", 32))
    ]
    for family in (
        (f"{prefix}prefill_effective_tokens_total", "counter", "mode"),
        (f"{prefix}load_back_bytes_total", "counter", ""),
        (f"{prefix}load_back_tokens_total", "counter", "pool"),
        (f"{prefix}prefetched_tokens_total", "counter", ""),
        (f"{prefix}num_retracted_requests_total", "counter", ""),
        (f"{prefix}cache_hit_rate", "gauge", ""),
        (f"{prefix}num_running_reqs", "gauge", "priority"),
        (f"{prefix}page_size", "gauge", ""),
    ):
        name, kind, label = family
        lines.append(f"# TYPE {name} {kind}")
        for rank in range(ranks):
            labels = f'{front},moe_ep_rank="0",pp_rank="0",tp_rank="{rank}"'
            values = {
                "mode": {"input": 200 * n, "device_hit": 640 * n, "host_hit": 128 * n, "storage_hit": 32 * n},
                "pool": {"kv": 128 * n},
                "priority": {"": 3, "1": 1, "2": 2},
            }.get(label)
            if values:
                lines += [f'{name}{{{labels},{label}="{key}"}} {value}' for key, value in values.items()]
            else:
                values = {"load_back_bytes": 4096 * n, "prefetched_tokens": 32 * n, "page_size": 64}
                values |= {"num_retracted_requests": n, "cache_hit_rate": 0.8}
                stem = name.removeprefix(prefix).removesuffix("_total")
                lines.append(f"{name}{{{labels}}} {values[stem]}")
    rank0 = f'{front},pp_rank="0",tp_rank="0"'
    return (
        "\n".join(lines)
        + "\n"
        + histogram(f"{prefix}time_to_first_token_seconds", front, n, 0.25)
        + histogram(f"{prefix}inter_token_latency_seconds", front, n, 0.02)
        + histogram(f"{prefix}queue_time_seconds", rank0, n, 0.05)
        + histogram(f"{prefix}per_stage_req_latency_seconds", f'{rank0},stage="prefill_forward"', n, 0.2)
        + histogram(f"{prefix}kv_transfer_latency_ms", rank0, n, 12.5)
    )


def old_metrics(n: int, prefix: str = "sglang:") -> str:
    """Of the first releases with metrics: no ranks, no tiers, older names."""
    labels = f'name="{MODEL}"'
    counters = "".join(
        f"# TYPE {prefix}{name}_total counter\n{prefix}{name}_total{{{labels}}} {each * n}.0\n"
        for name, each in (("prompt_tokens", 1000), ("generation_tokens", 50), ("cached_tokens", 800))
    )
    gauges = "".join(
        f"# TYPE {prefix}{name} gauge\n{prefix}{name}{{{labels}}} {value}\n"
        for name, value in (("cache_hit_rate", 0.8), ("num_used_tokens", 4096), ("token_usage", 0.03))
    )
    return (
        counters
        + gauges
        + histogram(f"{prefix}time_to_first_token_seconds", labels, n, 0.25)
        + histogram(f"{prefix}time_per_output_token_seconds", labels, n, 0.02)
    )


def _models() -> Answer:
    return page({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "sglang"}]})


def new(n: int = 1, **config: Any) -> Server:
    """0.5.23 with metrics, tracing and both tiers; config: of its /server_info, changed."""
    return Server(
        {
            "/metrics": text(new_metrics(n)),
            "/server_info": page({**CONFIG, **config}),
            "/v1/models": _models(),
        }
    )


def old(n: int = 1) -> Server:
    """An early release: /get_server_info, no tracing, KV events unknown."""
    config = {"version": "0.4.1", "disable_radix_cache": False, "enable_cache_report": True, "tp_size": 1}
    return Server(
        {"/metrics": text(old_metrics(n)), "/get_server_info": page(config), "/v1/models": _models()}
    )


def bare() -> Server:
    """Started without any flag, the radix cache off."""
    config = {
        **CONFIG,
        "enable_trace": False,
        "disable_radix_cache": True,
        "enable_hierarchical_cache": False,
    }
    return Server(
        {"/server_info": page({**config, "hicache_storage_backend": None}), "/v1/models": _models()}
    )
