"""LMCache's metrics in both of its modes: canonical name <- names by mode, with unit and traps.

In the engine's process they are `lmcache:` families on the engine's /metrics. A server of its own (MP) has
OpenTelemetry instruments `lmcache_mp.*`: on its /metrics they are called by name and unit, as in
`lmcache_mp_lookup_hit_tokens_total`; sent over OTLP they keep their names and go to the tables `otel_metrics_*`, where
these aliases say what they are. Read in LMCache 0.5.6 (observability.py, mp_observability/), never run live; the names
were checked by putting its instruments through opentelemetry-exporter-prometheus.
"""

from __future__ import annotations

from collector.metric import Alias, Metric, Trap

_TRAP_RESET = Trap(
    "",
    "in the engine's process an admin call can set it back to 0 (reset_counters): a fall is not always a restart",
)
_TRAP_WORKERS = Trap(
    "",
    "told by each worker_id: tensor-parallel workers load and store the same tokens (inferred, not verified)",
)
_TRAP_LOOKUP = Trap(
    "",
    "found is not loaded: lookups may rise while nothing is retrieved (production-stack issue 818);"
    " compare with lmcache.retrieve.hit_tokens",
)
_TRAP_WINDOW = Trap("", "since the last line of its log: a hidden window, never to be averaged")
_UNITS = {"s": "seconds", "GB/s": "GB_per_second"}


def _m(
    name: str,
    kind: str,
    unit: str,
    text: str,
    *traps: Trap,
    engine: str = "",
    mp: str = "",
) -> Metric:
    """A row. engine: the family's name in the engine's process; mp: the instrument's in the MP server."""
    aliases = [Alias(f"lmcache:{engine}", "in the engine's process")] if engine else []
    if mp:
        suffix = _UNITS.get(unit, unit)
        whole = mp if mp.endswith(suffix) else f"{mp}_{suffix}"
        aliases.append(Alias(f"lmcache_mp_{whole}", "MP server"))
        if whole != mp:
            aliases.append(Alias(f"lmcache_mp_{mp}", "MP server, where the unit is left out"))
        aliases.append(Alias(f"lmcache_mp.{mp}", "MP server, over OTLP"))
    return Metric(name, kind, unit, text, tuple(aliases), traps)


_LOOKUP = (_TRAP_LOOKUP, _TRAP_RESET)
_WORKER = (_TRAP_WORKERS, _TRAP_RESET)

METRICS: tuple[Metric, ...] = (
    # looked up: when a request is scheduled
    _m(
        "lmcache.lookup.query_tokens",
        "counter",
        "tokens",
        "Prompt tokens looked up; in the MP server whole chunks only",
        *_LOOKUP,
        engine="num_lookup_tokens",
        mp="lookup_requested",
    ),
    _m(
        "lmcache.lookup.hit_tokens",
        "counter",
        "tokens",
        "Prompt tokens found, on any tier",
        *_LOOKUP,
        engine="num_lookup_hits",
        mp="lookup_hit",
    ),
    _m("lmcache.lookup.host_tokens", "counter", "tokens", "Of those, found in L1 (host)", mp="lookup_hit_l1"),
    _m(
        "lmcache.lookup.remote_tokens",
        "counter",
        "tokens",
        "Of those, found in L2 (storage) beyond L1",
        mp="lookup_hit_l2",
    ),
    _m(
        "lmcache.lookup.requests",
        "counter",
        "requests",
        "Lookups",
        _TRAP_RESET,
        engine="num_lookup_requests",
        mp="lookups",
    ),
    _m(
        "lmcache.lookup.missed_requests",
        "counter",
        "requests",
        "Lookups that found nothing",
        _TRAP_RESET,
        engine="lookup_0_hit_requests",
    ),
    _m(
        "lmcache.lookup.engine_hit_tokens",
        "counter",
        "tokens",
        "Prompt tokens that the engine's own cache had at the lookup",
        _TRAP_RESET,
        engine="num_vllm_hit_tokens",
    ),
    _m(
        "lmcache.lookup.prompt_tokens",
        "counter",
        "tokens",
        "Prompt tokens seen",
        _TRAP_RESET,
        engine="num_prompt_tokens",
    ),
    _m("lmcache.lookup.time", "histogram", "s", "Of a lookup", engine="time_to_lookup"),
    # loaded into the engine
    _m(
        "lmcache.retrieve.query_tokens",
        "counter",
        "tokens",
        "Tokens that were to be loaded",
        *_WORKER,
        engine="num_requested_tokens",
    ),
    _m(
        "lmcache.retrieve.hit_tokens",
        "counter",
        "tokens",
        "Tokens loaded",
        *_WORKER,
        engine="num_hit_tokens",
    ),
    _m(
        "lmcache.retrieve.requests",
        "counter",
        "requests",
        "Loads",
        *_WORKER,
        engine="num_retrieve_requests",
        mp="num_finished_retrieves",
    ),
    _m("lmcache.retrieve.chunks", "counter", "chunks", "Chunks loaded", mp="num_chunks_loaded"),
    _m("lmcache.retrieve.time", "histogram", "s", "Of a load", engine="time_to_retrieve"),
    _m("lmcache.retrieve.copy_time", "histogram", "s", "Its copy to the GPU", engine="retrieve_to_gpu_time"),
    _m("lmcache.retrieve.speed", "histogram", "tokens/s", "Of a load", engine="retrieve_speed"),
    # written
    _m("lmcache.store.tokens", "counter", "tokens", "Written", *_WORKER, engine="num_stored_tokens"),
    _m(
        "lmcache.store.requests",
        "counter",
        "requests",
        "Writes",
        *_WORKER,
        engine="num_store_requests",
        mp="num_finished_stores",
    ),
    _m("lmcache.store.time", "histogram", "s", "Of a write", engine="time_to_store"),
    _m("lmcache.store.copy_time", "histogram", "s", "Its copy from the GPU", engine="store_from_gpu_time"),
    _m("lmcache.store.speed", "histogram", "tokens/s", "Of a write", engine="store_speed"),
    # L1, host memory
    _m("lmcache.host.used_bytes", "gauge", "bytes", "In host memory", engine="local_cache_usage"),
    _m("lmcache.disk.used_bytes", "gauge", "bytes", "On the local disk", engine="local_storage_usage"),
    _m("lmcache.host.read_chunks", "counter", "chunks", "Read from L1", mp="l1_read"),
    _m("lmcache.host.written_chunks", "counter", "chunks", "Written to L1", mp="l1_write"),
    _m("lmcache.host.evicted_chunks", "counter", "chunks", "Evicted from L1", mp="l1_evicted"),
    _m(
        "lmcache.host.evictions",
        "counter",
        "evictions",
        "Rounds of eviction",
        _TRAP_RESET,
        engine="local_cpu_evict_count",
    ),
    _m(
        "lmcache.host.evicted_keys",
        "counter",
        "keys",
        "Evicted in them",
        _TRAP_RESET,
        engine="local_cpu_evict_keys_count",
    ),
    _m("lmcache.host.lifetime", "histogram", "s", "Of a chunk in L1, sampled", mp="l1_chunk_lifetime"),
    _m("lmcache.host.idle", "histogram", "s", "Last use to eviction", mp="l1_chunk_idle_before_evict"),
    _m("lmcache.host.reuse_gap", "histogram", "s", "Between two uses, sampled", mp="l1_chunk_reuse_gap"),
    _m("lmcache.host.failed_chunks", "counter", "chunks", "No room in L1", mp="l1_allocation_failure"),
    # the engine's blocks, as the MP server sees them
    _m("kv_block.lifetime", "histogram", "s", "Allocation to eviction, sampled", mp="l0_block_lifetime"),
    _m("kv_block.idle", "histogram", "s", "Last use to eviction, sampled", mp="l0_block_idle_before_evict"),
    _m("kv_block.reuse_gap", "histogram", "s", "Between two uses, sampled", mp="l0_block_reuse_gap"),
    # L2, disk and remote
    _m("lmcache.remote.used_bytes", "gauge", "bytes", "In the remote store", engine="remote_cache_usage"),
    _m(
        "lmcache.remote.read_bytes",
        "counter",
        "bytes",
        "Read from the remote store",
        _TRAP_RESET,
        engine="num_remote_read_bytes",
    ),
    _m(
        "lmcache.remote.written_bytes",
        "counter",
        "bytes",
        "Written to it",
        _TRAP_RESET,
        engine="num_remote_write_bytes",
    ),
    _m(
        "lmcache.remote.read_requests",
        "counter",
        "requests",
        "Reads of it",
        _TRAP_RESET,
        engine="num_remote_read_requests",
    ),
    _m(
        "lmcache.remote.written_requests",
        "counter",
        "requests",
        "Writes to it",
        _TRAP_RESET,
        engine="num_remote_write_requests",
    ),
    _m(
        "lmcache.remote.read_time",
        "histogram",
        "ms",
        "Of a read",
        Trap("", "in ms, where the times beside it are in seconds"),
        engine="remote_time_to_get",
    ),
    _m("lmcache.remote.write_time", "histogram", "ms", "Of a write", engine="remote_time_to_put"),
    _m("lmcache.remote.ping", "gauge", "ms", "Of the last ping", engine="remote_ping_latency"),
    _m("lmcache.remote.read_chunks", "counter", "chunks", "Read from L2", mp="l2_prefetch_load_completed"),
    _m("lmcache.remote.written_chunks", "counter", "chunks", "To L2", mp="l2_store_completed_objects"),
    _m("lmcache.remote.evicted_chunks", "counter", "chunks", "Evicted from L2", mp="l2_evicted_objects"),
    _m("lmcache.remote.failed_chunks", "counter", "chunks", "Not read from L2", mp="l2_prefetch_failure"),
    _m("lmcache.remote.read_speed", "histogram", "GB/s", "Of reads of L2", mp="l2_load_throughput"),
    _m("lmcache.remote.write_speed", "histogram", "GB/s", "Of writes to L2", mp="l2_store_throughput"),
    # what it works out itself
    _m(
        "lmcache.retrieve.hit_ratio_gauge",
        "gauge",
        "ratio",
        "Loaded of what was to be",
        _TRAP_WINDOW,
        engine="retrieve_hit_rate",
    ),
    _m(
        "lmcache.lookup.hit_ratio_gauge",
        "gauge",
        "ratio",
        "Found of what was looked up",
        _TRAP_WINDOW,
        engine="lookup_hit_rate",
    ),
    _m(
        "lmcache.request.hit_ratio",
        "histogram",
        "ratio",
        "By request",
        Trap("", "a mean of it weighs a short prompt like a long one"),
        engine="request_cache_hit_rate",
    ),
    _m(
        "lmcache.request.lifespan",
        "histogram",
        "min",
        "Of what a request found",
        Trap("", "in minutes"),
        engine="request_cache_lifespan",
    ),
    _m("lmcache.healthy", "gauge", "", "1 where it is", engine="lmcache_is_healthy"),
)
