"""Triton's metrics with the TensorRT-LLM backend (port 8002): canonical name <- family and label. Blocks, not tokens.

The backend keeps unlike numbers in one family, told apart by a label. Read, not run live: README of
triton-inference-server/tensorrtllm_backend; its issue 537 for the missing reuse counters.
"""

from __future__ import annotations

from functools import partial

from collector.metric import Metric, Trap, row

_m = partial(row, "nv_trt_llm_")
_KV = "kv_cache_block_metrics{kv_cache_block_type="
_REQUESTS = "request_metrics{request_type="
_BATCHER = "inflight_batcher_metrics{inflight_batcher_specific_metric="
_DISAGGREGATED = "disaggregated_serving_metrics{disaggregated_serving_type="
_MEMORY = "runtime_memory_metrics{memory_type="
_GENERAL = "general_metrics{general_type="

_SAMPLED = Trap("", "a gauge of the moment: what happens between two scrapes does not show")

METRICS: tuple[Metric, ...] = (
    _m("kv_cache.blocks", "gauge", "blocks", "In all", f"{_KV}max}}"),
    _m("kv_cache.free_blocks", "gauge", "blocks", "Not in use", f"{_KV}free}}"),
    _m("kv_cache.used_blocks", "gauge", "blocks", "In use", f"{_KV}used}}", traps=(_SAMPLED,)),
    _m("kv_cache.usage", "gauge", "ratio", "Share (0 to 1) of the blocks in use", f"{_KV}fraction}}"),
    _m("kv_cache.tokens_per_block", "gauge", "tokens", "Size of a block", f"{_KV}tokens_per}}"),
    _m(
        "kv_cache.reused_blocks_gauge",
        "gauge",
        "blocks",
        "Reused, where the build tells",
        f"{_KV}reused}}",
        traps=(Trap("", "no count of what was looked up goes with it: it makes no hit rate"),),
    ),
    _m("requests.running", "gauge", "requests", "Active", f"{_REQUESTS}active}}"),
    _m("requests.waiting", "gauge", "requests", "Waiting", f"{_REQUESTS}waiting}}"),
    _m("requests.scheduled", "gauge", "requests", "In the last iteration", f"{_REQUESTS}scheduled}}"),
    _m("requests.prefilling", "gauge", "requests", "In their prompt", f"{_REQUESTS}context}}"),
    _m("requests.max", "gauge", "requests", "How many it takes at once", f"{_REQUESTS}max}}"),
    _m("requests.decoding", "gauge", "requests", "Generating", f"{_BATCHER}generation_requests}}"),
    _m("requests.paused", "gauge", "requests", "Paused for want of blocks", f"{_BATCHER}paused_requests}}"),
    _m(
        "step.prefill_tokens_gauge",
        "gauge",
        "tokens",
        "In the last iteration",
        f"{_BATCHER}total_context_tokens}}",
    ),
    _m("steps", "counter", "steps", "Iterations of the engine", f"{_GENERAL}iteration_counter}}"),
    _m(
        "kv_transfer.time_ms",
        "counter",
        "ms",
        "Spent on moving KV from prefill to decode workers",
        f"{_DISAGGREGATED}kv_cache_transfer_ms}}",
        traps=(Trap("", "milliseconds, in one family with a count of requests"),),
    ),
    _m(
        "kv_transfer.requests",
        "counter",
        "requests",
        "Whose KV was moved",
        f"{_DISAGGREGATED}request_count}}",
    ),
    _m("memory.device_bytes", "gauge", "bytes", "Of the runtime", f"{_MEMORY}gpu}}"),
    _m("memory.host_bytes", "gauge", "bytes", "Of the runtime", f"{_MEMORY}cpu}}"),
    _m("memory.pinned_bytes", "gauge", "bytes", "Of the runtime", f"{_MEMORY}pinned}}"),
    # the server itself, any backend
    row(
        "",
        "requests.finished",
        "counter",
        "requests",
        "Inference requests that succeeded",
        "nv_inference_request_success",
    ),
    row(
        "",
        "requests.failed",
        "counter",
        "requests",
        "Inference requests that failed",
        "nv_inference_request_failure",
    ),
    row(
        "",
        "request_time_us",
        "counter",
        "us",
        "Spent on requests, waiting included",
        "nv_inference_request_duration_us",
    ),
    row(
        "",
        "queue_time_us",
        "counter",
        "us",
        "Spent waiting in Triton, before the backend",
        "nv_inference_queue_duration_us",
    ),
    row(
        "",
        "requests.pending",
        "gauge",
        "requests",
        "Waiting in Triton, before the backend",
        "nv_inference_pending_request_count",
    ),
)
