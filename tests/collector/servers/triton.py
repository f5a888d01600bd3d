"""Triton with the TensorRT-LLM backend, made from the atlas and the backend's README, not run live."""

from __future__ import annotations

import json

from tests.collector.support import Server, text

MODEL = 'model="tensorrt_llm",version="1"'


def family(name: str, kind: str, label: str, **values: float) -> str:
    lines = (f'nv_trt_llm_{name}{{{label}="{v}",{MODEL}}} {number}\n' for v, number in values.items())
    return f"# TYPE nv_trt_llm_{name} {kind}\n" + "".join(lines)


def metrics(**more_blocks: float) -> str:
    """What the README shows. more_blocks: values of kv_cache_block_metrics that only some builds have."""
    return (
        family(
            "request_metrics", "gauge", "request_type", waiting=3, context=1, scheduled=2, max=512, active=5
        )
        + family("runtime_memory_metrics", "gauge", "memory_type", pinned=0, gpu=1_610_236, cpu=0)
        + family(
            "kv_cache_block_metrics",
            "gauge",
            "kv_cache_block_type",
            tokens_per=64,
            used=1,
            free=6238,
            max=6239,
            **more_blocks,
        )
        + family(
            "inflight_batcher_metrics",
            "gauge",
            "inflight_batcher_specific_metric",
            micro_batch_id=0,
            generation_requests=4,
            total_context_tokens=128,
        )
        + family("general_metrics", "gauge", "general_type", iteration_counter=77, timestamp=1_700_074_049)
        + family(
            "disaggregated_serving_metrics",
            "counter",
            "disaggregated_serving_type",
            kv_cache_transfer_ms=1500,
            request_count=30,
        )
        + "# TYPE nv_inference_request_success counter\n"
        + f"nv_inference_request_success{{{MODEL}}} 42\n"
    )


def new() -> Server:
    """The metrics port of a build that tells the used fraction and the reused blocks."""
    return Server({"/metrics": text(metrics(fraction=0.25, reused=9))})


def old() -> Server:
    """The metrics port of a build that does not."""
    return Server({"/metrics": text(metrics())})


def api() -> Server:
    """The API's port."""
    about = {"name": "triton", "version": "2.60.0", "extensions": ["classification"]}
    return Server({"/v2": text(json.dumps(about), content_type="application/json")})
