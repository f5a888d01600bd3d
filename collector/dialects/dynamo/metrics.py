"""Dynamo's own metrics: canonical name <- names by version, with unit and traps.

Read in the metrics catalogue of Dynamo 1.6 and in prometheus_names.rs, the older names in the guides of 0.7 to 1.0;
never run live. What a worker passes on of its engine has the engine's names and is in the engine's table.
A family with labels appears with its first sample, not before.
"""

from __future__ import annotations

from functools import partial

from collector.dialects.dynamo.kvbm import KVBM
from collector.metric import PROCESS, Alias, Metric, Trap, row

_TRAP_PREDICTED = Trap(
    "", "what the router expected when it chose a worker, not what was hit; 0 unless --router-mode kv"
)
_TRAP_LAST = Trap("", "of the last request alone")

_front = partial(row, "dynamo_frontend_")
_component = partial(row, "dynamo_component_")
_router = partial(row, "dynamo_component_router_")
_overhead = partial(row, "dynamo_router_overhead_")
_plane = partial(row, "dynamo_request_plane_")

METRICS: tuple[Metric, ...] = (
    # the front end
    _front("ttft", "histogram", "s", "Arrival to first token", "time_to_first_token_seconds"),
    _front("inter_token_latency", "histogram", "s", "Between two tokens", "inter_token_latency_seconds"),
    _front("e2e", "histogram", "s", "Arrival to last token", "request_duration_seconds"),
    _front("request.prompt_tokens", "histogram", "tokens", "By finished request", "input_sequence_tokens"),
    _front(
        "request.completion_tokens", "histogram", "tokens", "By finished request", "output_sequence_tokens"
    ),
    _front(
        "request.cached_tokens",
        "histogram",
        "tokens",
        "Cached prompt tokens by request, as the engine told them",
        "cached_tokens",
        ("cached_sequence_length", "0.7 to 0.8"),
        traps=(Trap("", "only requests whose engine tells are in it: its count may be below the requests"),),
    ),
    _front("completion_tokens", "counter", "tokens", "Generated tokens", "output_tokens"),
    _front("requests.finished", "counter", "requests", "Processed, by status", "requests"),
    _front(
        "requests.active",
        "gauge",
        "requests",
        "From the handler to the end of the answer",
        "active_requests",
        ("inflight_requests", "older; deprecated"),
    ),
    _front(
        "requests.before_first_token",
        "gauge",
        "requests",
        "No first token yet",
        "queued_requests",
        traps=(Trap("", "called queued, but those being prefilled are in it"),),
    ),
    _front("requests.by_stage", "gauge", "requests", "preprocess, route, dispatch", "stage_requests"),
    _front("requests.migrated", "counter", "requests", "Moved to another worker", "model_migration"),
    _front("clients.disconnected", "gauge", "clients", "Gone before the end", "disconnected_clients"),
    _front("stage_time", "histogram", "s", "By stage of the front end", "stage_duration_seconds"),
    _front("tokenize_time", "histogram", "s", "Tokenising", "tokenize_seconds"),
    _front("template_time", "histogram", "s", "Applying the chat template", "template_seconds"),
    _front("model.kv_blocks", "gauge", "blocks", "KV blocks of a worker", "model_total_kv_blocks"),
    _front("model.kv_block_tokens", "gauge", "tokens", "Tokens of a KV block", "model_kv_cache_block_size"),
    _front("worker.decode_blocks", "gauge", "blocks", "In use, by worker", "worker_active_decode_blocks"),
    _front("worker.prefill_tokens", "gauge", "tokens", "Queued, by worker", "worker_active_prefill_tokens"),
    _front(
        "worker.last_ttft",
        "gauge",
        "s",
        "By worker",
        "worker_last_time_to_first_token_seconds",
        traps=(_TRAP_LAST,),
    ),
    # the router
    _router(
        "router.predicted_hit_ratio",
        "histogram",
        "ratio",
        "Share of a prompt's blocks that the chosen worker was thought to hold",
        "kv_hit_rate",
        traps=(_TRAP_PREDICTED,),
    ),
    _router("router.requests", "counter", "requests", "Routed", "requests"),
    _router("router.ttft", "histogram", "s", "As the router saw it", "time_to_first_token_seconds"),
    _router("router.prompt_tokens", "histogram", "tokens", "By request", "input_sequence_tokens"),
    _front("router.waiting", "gauge", "requests", "In the router's queue", "router_queue_pending_requests"),
    _overhead("router.overhead", "histogram", "ms", "Of a routing decision", "total_ms"),
    _overhead("router.overhead.block_hashing", "histogram", "ms", "Part of it", "block_hashing_ms"),
    _overhead("router.overhead.find_matches", "histogram", "ms", "Part of it", "indexer_find_matches_ms"),
    _overhead("router.overhead.sequence_hashing", "histogram", "ms", "Part of it", "seq_hashing_ms"),
    _overhead("router.overhead.scheduling", "histogram", "ms", "Part of it", "scheduling_ms"),
    _component(
        "kv_events.applied", "counter", "events", "Taken into the router's index", "kv_cache_events_applied"
    ),
    Metric(
        "kv_events.dropped",
        "counter",
        "events",
        "Numbers that the engine left out before the publisher",
        (
            Alias("dynamo_component_kv_publisher_engines_dropped_events", ""),
            Alias("kv_publisher_engines_dropped_events", "prefix not verified"),
        ),
    ),
    # a worker
    _component("component.active", "gauge", "requests", "In a worker's handler", "inflight_requests"),
    _component("component.requests", "counter", "requests", "Processed by a worker", "requests"),
    _component("component.request_time", "histogram", "s", "In a worker", "request_duration_seconds"),
    _component("component.errors", "counter", "requests", "Failed, by error_type", "errors"),
    _component("component.request_bytes", "counter", "bytes", "Received", "request_bytes"),
    _component("component.response_bytes", "counter", "bytes", "Sent", "response_bytes"),
    _component("component.uptime", "gauge", "s", "Since its start", "uptime_seconds"),
    _component(
        "kv_cache.blocks",
        "gauge",
        "blocks",
        "KV blocks of the worker",
        "total_blocks",
        ("kvstats_total_blocks", "0.4 to 0.8"),
    ),
    _component(
        "kv_cache.active_blocks",
        "gauge",
        "blocks",
        "Held by live requests",
        ("kvstats_active_blocks", "0.4 to 0.8"),
    ),
    _component(
        "kv_cache.usage",
        "gauge",
        "ratio",
        "Share (0 to 1) of the KV blocks that live requests hold",
        "gpu_cache_usage_percent",
        ("kvstats_gpu_cache_usage_percent", "0.4 to 0.8"),
        traps=(Trap("", "0 to 1 though called a percentage"),),
    ),
    _component(
        "prefix_cache.hit_ratio_gauge",
        "gauge",
        "ratio",
        "Hit ratio over a window the server chose: never to be averaged",
        ("kvstats_gpu_prefix_cache_hit_rate", "0.4 to 0.8"),
        traps=(Trap("", "the window is unknown; read the engine's counters"),),
    ),
    # between front end and worker
    _plane("request_plane.queue_time", "histogram", "s", "Encoding a request", "queue_seconds"),
    _plane("request_plane.send_time", "histogram", "s", "Sending it", "send_seconds"),
    _plane("request_plane.ttft", "histogram", "s", "Sent to first item", "roundtrip_ttft_seconds"),
    *KVBM,
    *PROCESS,
)
