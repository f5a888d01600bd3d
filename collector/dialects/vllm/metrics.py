"""vLLM's metrics, 0.6 to 0.32: canonical name <- names by version, with unit and traps. Counters are in tokens.

Sources: the metric definitions of vLLM 0.32.0 (v1/metrics/loggers.py); renames from its pull requests 15458 (V0 gauges
go), 18354 (gpu_ prefix goes), 24110 (inter-token latency).
"""

from __future__ import annotations

from functools import partial

from collector.dialects.vllm.offload import OFFLOAD
from collector.metric import PROCESS, Metric, Trap, row

_TRAP_REQUEUED = Trap(
    "0.11", "preempted requests asked again and were counted again: hit rates read too high"
)
_TRAP_COARSE = Trap(
    "", "lowest bucket 0.3 s unless --custom-histogram-buckets: sum and count are exact, quantiles are not"
)


_m = partial(row, "vllm:")

METRICS: tuple[Metric, ...] = (
    # the cache
    _m(
        "prefix_cache.query_tokens",
        "counter",
        "tokens",
        "Prompt tokens looked up in the device cache, once a request, at admission",
        ("prefix_cache_queries", "0.9 on"),
        ("gpu_prefix_cache_queries", "0.8 to 0.10"),
        traps=(_TRAP_REQUEUED,),
    ),
    _m(
        "prefix_cache.hit_tokens",
        "counter",
        "tokens",
        "Prompt tokens found in the device cache",
        ("prefix_cache_hits", "0.9 on"),
        ("gpu_prefix_cache_hits", "0.8 to 0.10"),
        traps=(_TRAP_REQUEUED,),
    ),
    _m(
        "external_cache.query_tokens",
        "counter",
        "tokens",
        "Prompt tokens left after the device cache, asked of the KV connector",
        "external_prefix_cache_queries",
        traps=(
            Trap("0.13", "tokens that the device cache held were counted too"),
            Trap(
                "0.32",
                "builds before July 2026 counted a request again at every step it waited for its connector",
            ),
        ),
    ),
    _m(
        "external_cache.hit_tokens",
        "counter",
        "tokens",
        "Prompt tokens that the KV connector had",
        "external_prefix_cache_hits",
    ),
    _m(
        "prefix_cache.hit_ratio_gauge",
        "gauge",
        "ratio",
        "Hit ratio over a window the server chose: never to be averaged",
        ("gpu_prefix_cache_hit_rate", "0.6 to 0.8"),
        traps=(Trap("", "the window is unknown; read the counters where there are any"),),
    ),
    _m(
        "kv_cache.usage",
        "gauge",
        "ratio",
        "Share (0 to 1) of the KV blocks that live requests hold",
        ("kv_cache_usage_perc", "0.10 on"),
        ("gpu_cache_usage_perc", "0.6 to 0.11"),
        traps=(Trap("", "cached blocks that nobody uses count as free: 0 does not mean an empty cache"),),
    ),
    _m(
        "kv_cache.host_usage",
        "gauge",
        "ratio",
        "Share of the swap space in use",
        ("cpu_cache_usage_perc", "0.6 to 0.8"),
    ),
    _m("kv_cache.config", "gauge", "", "Static facts of the cache, as labels of a 1", "cache_config_info"),
    _m("kv_block.lifetime", "histogram", "s", "Allocation to eviction, sampled", "kv_block_lifetime_seconds"),
    _m(
        "kv_block.idle",
        "histogram",
        "s",
        "Last use to eviction, sampled",
        "kv_block_idle_before_evict_seconds",
    ),
    _m("kv_block.reuse_gap", "histogram", "s", "Between two uses, sampled", "kv_block_reuse_gap_seconds"),
    _m("mm_cache.query_items", "counter", "items", "Images and the like looked up", "mm_cache_queries"),
    _m("mm_cache.hit_items", "counter", "items", "Images and the like found", "mm_cache_hits"),
    *OFFLOAD,
    # tokens
    _m("prompt_tokens", "counter", "tokens", "Prompt tokens, cached ones included", "prompt_tokens"),
    _m(
        "prompt_tokens_by_source",
        "counter",
        "tokens",
        "Prompt tokens by source: local_compute, local_cache_hit, external_kv_transfer",
        ("prompt_tokens_by_source", "0.16 on"),
    ),
    _m(
        "cached_tokens",
        "counter",
        "tokens",
        "Prompt tokens served by any tier",
        ("prompt_tokens_cached", "0.16 on"),
    ),
    _m(
        "cached_tokens_by_tier",
        "counter",
        "tokens",
        "Cached tokens by tier: device, host, disk, p2p, external_unspecified",
        ("prompt_tokens_cached_by_source", "0.32 on"),
    ),
    _m(
        "prefill.computed_tokens",
        "histogram",
        "tokens",
        "Prompt minus cached tokens, by finished request",
        "request_prefill_kv_computed_tokens",
    ),
    _m("completion_tokens", "counter", "tokens", "Generated tokens", "generation_tokens"),
    _m("request.prompt_tokens", "histogram", "tokens", "By finished request", "request_prompt_tokens"),
    _m(
        "request.completion_tokens", "histogram", "tokens", "By finished request", "request_generation_tokens"
    ),
    _m("step.tokens", "histogram", "tokens", "By engine step", "iteration_tokens_total"),
    # requests
    _m("requests.running", "gauge", "requests", "In the running batch", "num_requests_running"),
    _m("requests.waiting", "gauge", "requests", "Waiting to be scheduled", "num_requests_waiting"),
    _m(
        "requests.waiting_by_reason",
        "gauge",
        "requests",
        "Waiting: capacity, deferred",
        "num_requests_waiting_by_reason",
    ),
    _m(
        "requests.kv_fetch",
        "gauge",
        "requests",
        "Waiting for a KV load, by stage",
        "num_requests_kv_fetch_by_stage",
    ),
    _m(
        "requests.swapped",
        "gauge",
        "requests",
        "Swapped to host memory",
        ("num_requests_swapped", "0.6 to 0.8"),
    ),
    _m(
        "requests.finished",
        "counter",
        "requests",
        "Finished, by reason",
        "request_success",
        traps=(Trap("", "requests that the client gave up are not counted, under no reason"),),
    ),
    _m("requests.rejected", "counter", "requests", "Refused at admission, by reason", "admission_rejections"),
    _m(
        "preemptions",
        "counter",
        "preemptions",
        "Requests put back to wait, their KV dropped",
        "num_preemptions",
    ),
    _m("request.preemptions", "histogram", "preemptions", "By finished request", "request_num_preemptions"),
    _m(
        "sleep_state",
        "gauge",
        "",
        "1 for the state it is in; from level 1 on the cache is dropped",
        "engine_sleep_state",
    ),
    # latency
    _m("ttft", "histogram", "s", "Arrival to first token", "time_to_first_token_seconds"),
    _m(
        "inter_token_latency",
        "histogram",
        "s",
        "Between two tokens",
        ("inter_token_latency_seconds", "0.11 on"),
        ("time_per_output_token_seconds", "0.6 to 0.12"),
    ),
    _m("time_per_output_token", "histogram", "s", "Mean by request", "request_time_per_output_token_seconds"),
    _m(
        "e2e", "histogram", "s", "Arrival to last token", "e2e_request_latency_seconds", traps=(_TRAP_COARSE,)
    ),
    _m(
        "queue_time",
        "histogram",
        "s",
        "Waiting to be scheduled",
        "request_queue_time_seconds",
        ("time_in_queue_requests", "0.6 to 0.8"),
        traps=(_TRAP_COARSE,),
    ),
    _m(
        "prefill_time",
        "histogram",
        "s",
        "Scheduled to first token",
        "request_prefill_time_seconds",
        traps=(_TRAP_COARSE,),
    ),
    _m(
        "decode_time",
        "histogram",
        "s",
        "First to last token, waits after a preemption included",
        "request_decode_time_seconds",
        traps=(_TRAP_COARSE,),
    ),
    _m(
        "inference_time",
        "histogram",
        "s",
        "Scheduled to last token",
        "request_inference_time_seconds",
        traps=(_TRAP_COARSE,),
    ),
    *PROCESS,
)
