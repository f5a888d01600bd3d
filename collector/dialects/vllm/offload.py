"""vLLM's metrics of what lies beyond the device: offload tiers and KV connectors. Chunks and blocks are not tokens.

Read in vLLM 0.32.0 and its main branch, never run live: kv_connector/v1/offloading/metrics.py, v1/kv_offload/cpu and
v1/kv_offload/tiering (names by pull requests 47666 and 48798), and the metrics of the NIXL, Mooncake, SimpleCPUOffload,
HF3FS and HiSparse connectors. A connector has its families only where it is configured.
"""

from __future__ import annotations

from functools import partial

from collector.metric import Metric, Trap, row

_LOAD, _STORE = "{transfer_type=CPU_to_GPU}", "{transfer_type=GPU_to_CPU}"
_TRAP_COPY = Trap("", "the copy alone: what a request waits for it is not in it")
_TRAP_PINNED = Trap(
    "", "chunks that are cached and not being moved count as free: 0 does not mean an empty tier"
)
_TRAP_CHUNKS = Trap(
    "",
    "in chunks of the offload tier, not tokens; a tier is asked only for what those before it lack:"
    " not to be added over the label tier",
)
_TRAP_SLOW = Trap("", "only lookups that had to wait are in it: more hits on the host make it look slower")

_m = partial(row, "vllm:kv_offload_")
_tier = partial(row, "vllm:kv_offload_tiering_")
_nixl = partial(row, "vllm:nixl_")
_mooncake = partial(row, "vllm:mooncake_store_operation")
_simple = partial(row, "vllm:simple_kv_offload_")
_hf3fs = partial(row, "vllm:hf3fs_")
_hisparse = partial(row, "vllm:hisparse_")


def _moved(name: str, kind: str, unit: str, text: str, new: str, old: str, direction: str) -> Metric:
    """A metric that for a while stands there twice: under a name of its own, and as one direction of a family that is
    deprecated. Both at once are the same numbers, so that the new name alone is read."""
    return _m(
        name,
        kind,
        unit,
        text,
        (new, "newer"),
        (f"{old}{direction}", "deprecated"),
        traps=(_TRAP_COPY,) if unit == "s" else (),
    )


OFFLOAD: tuple[Metric, ...] = (
    # between the device and the host
    _moved(
        "kv_load.bytes",
        "counter",
        "bytes",
        "Loaded from the offload tier",
        "load_bytes",
        "total_bytes",
        _LOAD,
    ),
    _moved(
        "kv_load.time",
        "counter",
        "s",
        "Spent on loading from the offload tier",
        "load_time",
        "total_time",
        _LOAD,
    ),
    _moved("kv_load.size", "histogram", "bytes", "Of a load", "load_size", "size", _LOAD),
    _moved(
        "kv_store.bytes",
        "counter",
        "bytes",
        "Written to the offload tier",
        "store_bytes",
        "total_bytes",
        _STORE,
    ),
    _moved(
        "kv_store.time",
        "counter",
        "s",
        "Spent on writing to the offload tier",
        "store_time",
        "total_time",
        _STORE,
    ),
    _moved("kv_store.size", "histogram", "bytes", "Of a write", "store_size", "size", _STORE),
    _m("kv_store.failed_allocations", "counter", "writes", "No room in the tier", "allocation_failure"),
    _m("kv_store.skipped", "counter", "writes", "Left out: reused too seldom", "stores_skipped"),
    _m("kv_lookup.time", "histogram", "s", "Of a lookup in the offload tier", "lookup_sync_delay_seconds"),
    _m(
        "kv_lookup.wait_time",
        "histogram",
        "s",
        "From a lookup that was put off to its answer",
        "lookup_async_delay_seconds",
        traps=(_TRAP_SLOW,),
    ),
    _m(
        "host_cache.pinned",
        "gauge",
        "ratio",
        "Share (0 to 1) of the host tier that transfers hold",
        "cpu_cache_usage_perc",
        traps=(_TRAP_PINNED,),
    ),
    _m("host_cache.read_pinned", "gauge", "ratio", "Of that, loads", "cpu_cache_read_usage_perc"),
    _m("host_cache.write_pinned", "gauge", "ratio", "Of that, writes", "cpu_cache_write_usage_perc"),
    _m("host_cache.allocation", "histogram", "chunks", "Of an allocation", "cpu_allocation_size"),
    # tiers behind the host, by the label tier ("1:fs"; "0:primary" is the host)
    _tier(
        "tier.query_chunks",
        "counter",
        "chunks",
        "Looked up, by tier",
        "chunk_queries",
        ("block_queries", "older"),
        traps=(_TRAP_CHUNKS,),
    ),
    _tier(
        "tier.hit_chunks",
        "counter",
        "chunks",
        "Found, by tier",
        "chunk_hits",
        ("block_hits", "older"),
        traps=(_TRAP_CHUNKS,),
    ),
    _tier("remote_load.bytes", "counter", "bytes", "Read from a tier to the host", "read_bytes"),
    _tier("remote_load.time", "counter", "s", "Spent on that", "read_time"),
    _tier("remote_store.bytes", "counter", "bytes", "Written from the host to a tier", "write_bytes"),
    _tier("remote_store.time", "counter", "s", "Spent on that", "write_time"),
    _tier("remote_load.failures", "counter", "jobs", "Reads that failed", "promotion_job_failures"),
    _tier("remote_store.failures", "counter", "jobs", "Writes that failed", "cascade_job_failures"),
    _tier(
        "remote_load.failed_allocations",
        "counter",
        "jobs",
        "No room on the host for a read: what a tier held is computed again",
        "promotion_allocation_failures",
    ),
    _tier("remote_load.active", "gauge", "jobs", "Reads under way", "active_promotion_jobs"),
    _tier("remote_store.active", "gauge", "jobs", "Writes under way", "active_cascade_jobs"),
    _tier("tier.lookup_time", "histogram", "s", "Of a request's lookups", "lookup_sync_delay_seconds"),
    _tier(
        "tier.lookup_wait_time",
        "histogram",
        "s",
        "From a lookup that was put off to room for its request",
        "lookup_async_delay_seconds",
        traps=(_TRAP_SLOW,),
    ),
    _tier("tier.read_pinned", "gauge", "ratio", "Share of the host, reads", "primary_read_usage_perc"),
    _tier("tier.write_pinned", "gauge", "ratio", "Share of the host, writes", "primary_write_usage_perc"),
    # NIXL: from prefill to decode workers
    _nixl("kv_transfer.time", "histogram", "s", "Of a transfer", "xfer_time_seconds"),
    _nixl("kv_transfer.post_time", "histogram", "s", "Of posting it", "post_time_seconds"),
    _nixl("kv_transfer.bytes", "histogram", "bytes", "Of a transfer", "bytes_transferred"),
    _nixl("kv_transfer.descriptors", "histogram", "descriptors", "Of a transfer", "num_descriptors"),
    _nixl("kv_transfer.failures", "counter", "transfers", "Failed", "num_failed_transfers"),
    _nixl("kv_transfer.failed_notifications", "counter", "messages", "Lost", "num_failed_notifications"),
    _nixl(
        "kv_transfer.expired_requests",
        "counter",
        "requests",
        "Whose KV nobody fetched in time, on the prefill worker",
        "num_kv_expired_reqs",
    ),
    # Mooncake, by operation (save_put, save_exists, load_get) and status
    _mooncake("mooncake.operations", "counter", "operations", "Of the store", ""),
    _mooncake("mooncake.operation_time", "histogram", "s", "Of one", "_time_seconds"),
    _mooncake("mooncake.keys", "counter", "keys", "In them", "_keys"),
    _mooncake("mooncake.failed_keys", "counter", "keys", "Of those, failed", "_failed_keys"),
    _mooncake("mooncake.bytes", "counter", "bytes", "Moved", "_bytes"),
    # other connectors
    _simple("simple_offload.save_outcomes", "counter", "decisions", "Writes, by outcome", "save_outcomes"),
    _simple("simple_offload.load_blocks", "counter", "blocks", "Loaded, by phase", "load_blocks"),
    _simple(
        "simple_offload.pinned_blocks",
        "gauge",
        "blocks",
        "That transfers or hits hold",
        "used_blocks",
        traps=(_TRAP_PINNED,),
    ),
    _simple("simple_offload.pending_blocks", "gauge", "blocks", "Writes under way", "pending_store_blocks"),
    _simple("simple_offload.config", "gauge", "", "Static facts, as labels of a 1", "info"),
    _hf3fs("hf3fs.load_time", "histogram", "s", "Of a load", "load_duration_seconds"),
    _hf3fs("hf3fs.save_time", "histogram", "s", "Of a write", "save_duration_seconds"),
    _hf3fs("hf3fs.failed_loads", "counter", "loads", "Failed", "num_failed_load"),
    _hf3fs("hf3fs.failed_saves", "counter", "writes", "Failed", "num_failed_save"),
    _hisparse("hisparse.hits", "counter", "entries", "Found in the device's hot buffer", "cache_hits"),
    _hisparse("hisparse.misses", "counter", "entries", "Not found there", "cache_misses"),
    _hisparse("hisparse.load_bytes", "counter", "bytes", "Host to hot buffer", "host_to_device_bytes"),
)
