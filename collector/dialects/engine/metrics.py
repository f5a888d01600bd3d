"""The engine's metrics: canonical name <- its name, with unit and traps. Tokens are counted when their request ends."""

from __future__ import annotations

from functools import partial

from collector.metric import Metric, Origin, Trap, row

_TRAP_ENDED = Trap("", "counted when a request ends, so that a long one shows late and all at once")
_SOURCE = Origin(
    "source", (("device", "device"), ("host", "host"), ("remote", "remote"), ("computed", "computed"))
)

_m = partial(row, "hitmap_engine_")

METRICS: tuple[Metric, ...] = (
    # tokens
    _m(
        "prompt_tokens",
        "counter",
        "tokens",
        "Prompt tokens, cached ones included",
        "prompt_tokens",
        traps=(_TRAP_ENDED,),
    ),
    _m(
        "prompt_tokens_by_source",
        "counter",
        "tokens",
        "Prompt tokens by source",
        "prompt_tokens_by_source",
        traps=(_TRAP_ENDED,),
        origin=_SOURCE,
    ),
    _m(
        "completion_tokens",
        "counter",
        "tokens",
        "Generated tokens",
        "generation_tokens",
        traps=(_TRAP_ENDED,),
    ),
    _m("recomputed_tokens", "counter", "tokens", "Computed again after a preemption", "recomputed_tokens"),
    _m(
        "prefix_cache.query_tokens",
        "counter",
        "tokens",
        "Prompt tokens looked up on the device, once a request",
        "prefix_cache_queries",
    ),
    _m("prefix_cache.hit_tokens", "counter", "tokens", "Of those, found there", "prefix_cache_hits"),
    _m(
        "external_cache.query_tokens",
        "counter",
        "tokens",
        "Prompt tokens left after the device, looked up in the other tiers",
        "external_prefix_cache_queries",
    ),
    _m(
        "external_cache.hit_tokens",
        "counter",
        "tokens",
        "Of those, found there",
        "external_prefix_cache_hits",
    ),
    # requests
    _m("requests.received", "counter", "requests", "Taken into the queue", "requests_received"),
    _m("requests.finished", "counter", "requests", "Ended, by reason", "requests_finished"),
    _m("requests.running", "gauge", "requests", "In the running batch", "num_requests_running"),
    _m("requests.waiting", "gauge", "requests", "Waiting to be scheduled", "num_requests_waiting"),
    _m("preemptions", "counter", "preemptions", "Requests put back to wait, their KV dropped", "preemptions"),
    _m("requests.loading", "gauge", "requests", "Running, their KV on its way", "num_requests_loading"),
    # latency
    _m("ttft", "histogram", "s", "Arrival to first token", "time_to_first_token_seconds"),
    _m("e2e", "histogram", "s", "Arrival to the last byte", "e2e_request_latency_seconds"),
    _m("layer_time", "histogram", "s", "A request's time in a serving layer", "request_layer_seconds"),
    # steps
    _m("steps", "counter", "steps", "Passes over the device", "steps"),
    _m("steps.failed", "counter", "steps", "Ended in an error", "failed_steps"),
    _m("step.tokens_by_phase", "counter", "tokens", "Computed, by phase", "step_tokens"),
    _m("step.time", "histogram", "s", "Of a step", "step_seconds"),
    _m("step.model_time", "histogram", "s", "Of a step, in the decoder", "model_seconds"),
    # the cache
    _m("kv_load.blocks", "counter", "blocks", "Loaded to the device, by tier", "kv_loaded_blocks"),
    _m("kv_load.bytes", "counter", "bytes", "Loaded to the device, by tier", "kv_loaded_bytes"),
    _m("kv_load.failed_blocks", "counter", "blocks", "Could not be loaded", "kv_load_failures"),
    _m("kv_load.lost_tokens", "counter", "tokens", "Found in a tier, and not loaded", "kv_lost_tokens"),
    _m(
        "kv_disk.failures", "counter", "calls", "Reads and writes of the disk that failed", "kv_disk_failures"
    ),
    _m("kv_move.bytes", "counter", "bytes", "Came to a tier from another", "kv_moved_bytes"),
    _m("kv_gather.bytes", "counter", "bytes", "Copied to be read: scattered blocks", "kv_gathered_bytes"),
    _m("kv_cache.evicted_blocks", "counter", "blocks", "Left a tier for want of room", "kv_evicted_blocks"),
    _m("kv_cache.dropped_blocks", "counter", "blocks", "Evicted, and kept nowhere", "kv_dropped_blocks"),
    _m("kv_cache.blocks", "gauge", "blocks", "In all, by tier", "kv_blocks"),
    _m("kv_cache.used_blocks", "gauge", "blocks", "Held by requests", "kv_used_blocks"),
    _m("kv_cache.cached_blocks", "gauge", "blocks", "That can be found, held or not", "kv_cached_blocks"),
    _m(
        "kv_cache.usage",
        "gauge",
        "ratio",
        "Share (0 to 1) of the blocks that requests hold, by tier",
        "kv_cache_usage_perc",
        traps=(Trap("", "cached blocks that nobody uses count as free: 0 does not mean an empty cache"),),
    ),
    _m("kv_cache.config", "gauge", "", "Static facts, as labels of a 1", "info"),
    # telemetry itself, and what goes wrong on purpose
    _m("kv_events.batches", "counter", "batches", "Published, or lost on purpose", "kv_event_batches"),
    _m("traces", "counter", "traces", "Sent, not taken by the receiver, or dropped", "traces"),
    _m("faults", "gauge", "faults", "Faults that are on, by kind", "faults_active"),
)
