"""Parts of a Dynamo made from its metrics catalogue (1.6), its older guides and its examples, not run live.

Each request has a prompt of 1,000 tokens, of which the engine had 800 cached, and 50 tokens of answer; the router
thought that the worker had 90% of it.
"""

from __future__ import annotations

from tests.collector.servers import sglang, vllm
from tests.collector.servers.sglang import histogram, page
from tests.collector.support import Answer, Server, text

MODEL = "qwen/qwen3-0.6b"


def _models() -> Answer:
    return page({"object": "list", "data": [{"id": MODEL, "object": "object", "owned_by": "nvidia"}]})


def _counter(name: str, labels: str, value: float) -> str:
    return f"# TYPE {name} counter\n{name}{{{labels}}} {value}\n"


def _gauge(name: str, labels: str, value: float) -> str:
    return f"# TYPE {name} gauge\n{name}{{{labels}}} {value}\n"


def frontend_metrics(n: int, *, old: bool = False) -> str:
    """After `n` requests. old: as 0.7 called things, and without a KV router."""
    front, model = "dynamo_frontend_", f'model="{MODEL}"'
    told = [
        histogram(f"{front}{name}", model, n, each)
        for name, each in (
            ("time_to_first_token_seconds", 0.25),
            ("request_duration_seconds", 1.25),
            ("input_sequence_tokens", 1000),
            ("cached_sequence_length" if old else "cached_tokens", 800),
        )
    ]
    told += [
        _counter(f"{front}output_tokens_total", model, 50 * n),
        _counter(f"{front}requests_total", f'{model},request_type="unary",status="success"', n),
        _gauge(f"{front}model_kv_cache_block_size", model, 16),
        _gauge(f"{front}model_total_kv_blocks", model, 92962),
        _gauge(f"{front}inflight_requests", model, 3),
    ]
    if not old:
        router = 'dynamo_component="router",dynamo_namespace="dynamo"'
        told += [
            _gauge(f"{front}active_requests", model, 3),
            histogram("dynamo_component_router_kv_hit_rate", router, n, 0.9),
            histogram("dynamo_router_overhead_total_ms", 'router_id="7"', n, 1.5),
            _counter("dynamo_component_kv_cache_events_applied", 'event_type="stored",status="ok"', 40 * n),
        ]
    return "".join(told)


def worker_metrics(n: int, engine: str = "", *, old: bool = False) -> str:
    """A worker's system port after `n` requests, with what it passes on of its engine."""
    labels = 'dynamo_component="backend",dynamo_endpoint="generate",dynamo_namespace="dynamo"'
    stats = "dynamo_component_kvstats_" if old else "dynamo_component_"
    told = [
        _counter("dynamo_component_requests_total", labels, n),
        histogram("dynamo_component_request_duration_seconds", labels, n, 1.2),
        _gauge(f"{stats}total_blocks", labels, 2048),
        _gauge(f"{stats}gpu_cache_usage_percent", labels, 0.25),
    ]
    if old:
        told.append(_gauge(f"{stats}gpu_prefix_cache_hit_rate", labels, 0.5))
    return "".join(told) + engine


def kvbm_metrics(n: int) -> str:
    """KVBM's port after `n` requests: one block each way."""
    counters = (
        ("matched_tokens", 64 * n),
        ("offload_blocks_d2h", 5 * n),
        ("offload_blocks_h2d", 3 * n),
        ("onboard_blocks_h2d", 2 * n),
        ("onboard_blocks_d2d", n),
    )
    told = "".join(f"# TYPE kvbm_{name} counter\nkvbm_{name} {value}\n" for name, value in counters)
    return told + "# TYPE kvbm_host_cache_hit_rate gauge\nkvbm_host_cache_hit_rate 0.75\n"


def frontend() -> Server:
    """1.6 with a KV router."""
    return Server({"/metrics": text(frontend_metrics(1)), "/v1/models": _models()})


def frontend_old() -> Server:
    """0.7, no KV router."""
    return Server({"/metrics": text(frontend_metrics(1, old=True)), "/v1/models": _models()})


def worker() -> Server:
    """With a vLLM inside: what the recorded one exposed."""
    return Server({"/metrics": text(worker_metrics(1, vllm.METRICS))})


def worker_sglang() -> Server:
    """Of 2025: with an SGLang inside, whose names then began with sglang_."""
    engine = sglang.new_metrics(1, prefix="sglang_")
    return Server({"/metrics": text(worker_metrics(1, engine, old=True))})


def kvbm() -> Server:
    """The metrics port of KVBM."""
    return Server({"/metrics": text(kvbm_metrics(1))})
