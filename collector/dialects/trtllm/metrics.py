"""TensorRT-LLM's metrics: canonical name <- names by version, with unit and traps. Blocks are not tokens.

Read, not run live: metrics/collector.py of its main branch and of the 1.4 candidates (prefix trtllm_, at
/prometheus/metrics), NVIDIA's Dynamo manual for 1.1 (five request metrics, no prefix). The second table is the JSON of
/metrics, an object for each iteration of the engine: it repeats the counters of the first, hence names of its own.
"""

from __future__ import annotations

from functools import partial

from collector.metric import PROCESS, Metric, Origin, Trap, row

_COARSE = Trap("", "lowest bucket 0.3 s: sum and count are exact, quantiles are not")
_TWICE = Trap(
    "",
    "reused and missed blocks are told by engine and by iteration: two counts of one thing, not to be added",
)
_LEVEL = Origin("cache_level", (("0", "device"), ("1", "host")))

_stat = partial(row, "stats.")


def _m(
    name: str, kind: str, unit: str, text: str, raw: str, *traps: Trap, origin: Origin | None = None
) -> Metric:
    """A metric under its name with the prefix, and as builds before 1.2 exposed it, without."""
    aliases = ((f"trtllm_{raw}", "1.2 on"), (raw, "until 1.1"))
    return row("", name, kind, unit, text, *aliases, traps=traps, origin=origin)


METRICS: tuple[Metric, ...] = (
    # the cache, in tokens
    _m("cached_tokens", "counter", "tokens", "Prompt tokens served by the KV cache", "prompt_cached_tokens"),
    _m(
        "cached_tokens_by_tier",
        "counter",
        "tokens",
        "Cached tokens by cache_level (0 device, 1 host) and cache_tier",
        "prompt_cache_hit_tokens",
        origin=_LEVEL,
    ),
    _m(
        "request.cached_tokens",
        "histogram",
        "tokens",
        "By finished request",
        "prompt_cached_tokens_per_request",
    ),
    # the cache, in blocks
    _m(
        "prefix_cache.hit_blocks",
        "counter",
        "blocks",
        "Blocks reused",
        "kv_cache_reused_blocks",
        _TWICE,
    ),
    _m("prefix_cache.miss_blocks", "counter", "blocks", "Blocks not found", "kv_cache_missed_blocks", _TWICE),
    _m(
        "iteration.hit_blocks",
        "counter",
        "blocks",
        "Blocks reused, summed over iterations",
        "kv_cache_iter_reused_blocks",
        _TWICE,
    ),
    _m(
        "iteration.full_hit_blocks",
        "counter",
        "blocks",
        "Of those, whole ones",
        "kv_cache_iter_full_reused_blocks",
    ),
    _m(
        "iteration.partial_hit_blocks",
        "counter",
        "blocks",
        "Of those, in part: not all their tokens were saved",
        "kv_cache_iter_partial_reused_blocks",
    ),
    _m(
        "iteration.miss_blocks",
        "counter",
        "blocks",
        "Blocks not found, summed over iterations",
        "kv_cache_iter_missed_blocks",
        _TWICE,
    ),
    _m(
        "kv_cache.generated_blocks",
        "counter",
        "blocks",
        "Allocated for generated tokens",
        "kv_cache_gen_alloc_blocks",
    ),
    _m(
        "prefix_cache.hit_ratio_gauge",
        "gauge",
        "ratio",
        "Reused blocks by reused and missed ones",
        "kv_cache_hit_rate",
        Trap("", "in blocks, and since the start: read the counters"),
    ),
    _m(
        "iteration.hit_ratio_gauge",
        "gauge",
        "ratio",
        "Of the last iteration that looked any block up",
        "kv_cache_iter_reuse_rate",
        Trap("", "overwritten by each iteration: read the counters"),
    ),
    _m("kv_cache.usage", "gauge", "ratio", "Share (0 to 1) of the blocks in use", "kv_cache_utilization"),
    _m("kv_cache.host_usage", "gauge", "ratio", "Share of the host blocks", "kv_cache_host_utilization"),
    _m("kv_cache.blocks", "gauge", "blocks", "In all", "kv_cache_max_blocks"),
    _m("kv_cache.free_blocks", "gauge", "blocks", "Not in use", "kv_cache_free_blocks"),
    _m("kv_cache.used_blocks", "gauge", "blocks", "In use", "kv_cache_used_blocks"),
    _m("kv_cache.tokens_per_block", "gauge", "tokens", "Size of a block", "kv_cache_tokens_per_block"),
    _m("kv_cache.config", "gauge", "", "Static facts of the cache, as labels of a 1", "kv_cache_config_info"),
    _m("kv_load.bytes", "counter", "bytes", "Loaded from the host tier", "kv_cache_onboard_bytes"),
    _m("kv_store.bytes", "counter", "bytes", "Written to the host tier", "kv_cache_offload_bytes"),
    _m("kv_copy.bytes", "counter", "bytes", "Within the device", "kv_cache_intra_device_copy_bytes"),
    _m(
        "kv_prefetch.disk_blocks",
        "counter",
        "blocks",
        "Read ahead from disk",
        "kv_cache_disk_prefetch_blocks",
    ),
    # tokens and requests
    _m("prompt_tokens", "counter", "tokens", "Prompt tokens, cached ones included", "prompt_tokens"),
    _m("completion_tokens", "counter", "tokens", "Generated tokens", "generation_tokens"),
    _m("requests.finished", "counter", "requests", "Finished, by reason", "request_success"),
    _m("requests.failed", "counter", "requests", "By HTTP code", "request_error"),
    _m("requests.running", "gauge", "requests", "In the running batch", "num_requests_running"),
    _m("requests.waiting", "gauge", "requests", "Waiting to be scheduled", "num_requests_waiting"),
    _m("requests.paused", "gauge", "requests", "Paused for want of blocks", "num_paused_requests"),
    # latency
    _m("ttft", "histogram", "s", "Arrival to first token", "time_to_first_token_seconds"),
    _m("time_per_output_token", "histogram", "s", "Mean by request", "time_per_output_token_seconds"),
    _m("e2e", "histogram", "s", "Arrival to last token", "e2e_request_latency_seconds", _COARSE),
    _m("queue_time", "histogram", "s", "Waiting to be scheduled", "request_queue_time_seconds", _COARSE),
    _m("prefill_time", "histogram", "s", "Scheduled to first token", "request_prefill_time_seconds"),
    _m("decode_time", "histogram", "s", "First to last token", "request_decode_time_seconds", _COARSE),
    _m(
        "inference_time",
        "histogram",
        "s",
        "Scheduled to last token",
        "request_inference_time_seconds",
        _COARSE,
    ),
    _m("step.latency_gauge", "gauge", "s", "Of the last iteration", "iteration_latency_seconds"),
    *PROCESS,
)

STATS: tuple[Metric, ...] = (
    _stat("stats.iteration", "gauge", "", "Number of the iteration that the others are of", "iter"),
    _stat("stats.latency", "gauge", "ms", "Of the iteration", "iterLatencyMS"),
    _stat("stats.queue_latency", "gauge", "ms", "Of requests new in it", "newActiveRequestsQueueLatencyMS"),
    _stat("stats.requests_running", "gauge", "requests", "In the batch", "numActiveRequests"),
    _stat("stats.requests_waiting", "gauge", "requests", "Queued", "numQueuedRequests"),
    _stat("stats.requests_completed", "gauge", "requests", "In the iteration", "numCompletedRequests"),
    _stat("stats.blocks", "gauge", "blocks", "In all", "kvCacheStats.maxNumBlocks"),
    _stat("stats.free_blocks", "gauge", "blocks", "Not in use", "kvCacheStats.freeNumBlocks"),
    _stat("stats.used_blocks", "gauge", "blocks", "In use", "kvCacheStats.usedNumBlocks"),
    _stat("stats.tokens_per_block", "gauge", "tokens", "Size of a block", "kvCacheStats.tokensPerBlock"),
    _stat("stats.hit_blocks", "counter", "blocks", "Reused since the start", "kvCacheStats.reusedBlocks"),
    _stat("stats.miss_blocks", "counter", "blocks", "Missed since the start", "kvCacheStats.missedBlocks"),
    _stat("stats.new_blocks", "counter", "blocks", "Allocated afresh", "kvCacheStats.allocNewBlocks"),
    _stat("stats.hit_ratio", "gauge", "ratio", "Since the start", "kvCacheStats.cacheHitRate"),
    _stat("stats.prefilling", "gauge", "requests", "Prefilling", "inflightBatchingStats.numContextRequests"),
    _stat("stats.decoding", "gauge", "requests", "Generating", "inflightBatchingStats.numGenRequests"),
    _stat("stats.paused", "gauge", "requests", "Paused", "inflightBatchingStats.numPausedRequests"),
    _stat(
        "stats.prefill_tokens",
        "gauge",
        "tokens",
        "Prompt tokens computed in the iteration",
        "inflightBatchingStats.numCtxTokens",
    ),
)
