"""SGLang's metrics of what lies beyond the device: HiCache (host, storage) and KV transfer between servers.

Read in SGLang 0.5.23 (observability/metrics_collector.py), never run live. Tokens and times are told by every
tensor-parallel rank, each rank the same; bytes are each rank's own and add up. Transfers are in ms, MB and GB/s,
unlike everything else, which is in seconds and bytes: the units stay as they are said.
"""

from __future__ import annotations

from functools import partial

from collector.dialects.sglang.names import COPIES, both
from collector.metric import Metric, Trap

_TRAP_POOLS = Trap(
    "", "one series for each pool of a hybrid model (kv, swa, mamba): the same positions, not to be added"
)
_TRAP_TRANSFER = Trap("", "in ms, MB and GB/s where the other families are in seconds and bytes")

_m = both
_of_rank = partial(both, ranks=COPIES)

TIERS: tuple[Metric, ...] = (
    # host memory
    _of_rank("host_cache.used_tokens", "gauge", "tokens", "Cached on the host", "hicache_host_used_tokens"),
    _of_rank("host_cache.capacity_tokens", "gauge", "tokens", "Room there", "hicache_host_total_tokens"),
    _of_rank(
        "kv_load.tokens",
        "counter",
        "tokens",
        "Loaded from the host to the device",
        "load_back_tokens",
        traps=(_TRAP_POOLS,),
    ),
    _m("kv_load.bytes", "counter", "bytes", "Loaded from the offload tier", "load_back_bytes"),
    _of_rank(
        "kv_load.duration",
        "histogram",
        "s",
        "Of a load from the host",
        "load_back_duration_seconds",
        traps=(Trap("", "waits before the copy are not in it"),),
    ),
    _of_rank(
        "kv_store.tokens",
        "counter",
        "tokens",
        "Written from the device to the host",
        "hicache_backup_tokens",
        traps=(_TRAP_POOLS,),
    ),
    _m("kv_store.bytes", "counter", "bytes", "Written to the offload tier", "hicache_backup_bytes"),
    _of_rank(
        "kv_store.duration", "histogram", "s", "Of a write to the host", "hicache_backup_duration_seconds"
    ),
    _of_rank(
        "kv_store.dropped_tokens",
        "counter",
        "tokens",
        "Destroyed on the device without a copy, by reason",
        "hicache_dropped_tokens",
        traps=(_TRAP_POOLS,),
    ),
    # storage
    _of_rank(
        "remote_load.tokens", "counter", "tokens", "Fetched from storage to the host", "prefetched_tokens"
    ),
    _of_rank(
        "remote_load.hit_tokens",
        "counter",
        "tokens",
        "That storage said it has",
        "storage_prefetch_hit_tokens",
    ),
    _of_rank(
        "remote_load.unfulfilled_tokens",
        "counter",
        "tokens",
        "Of those, not fetched: counted once an attempt",
        "storage_prefetch_unfulfilled_tokens",
    ),
    _of_rank("remote_store.tokens", "counter", "tokens", "Written to storage", "backuped_tokens"),
    _of_rank("remote_load.pages", "histogram", "pages", "Of a batch of fetches", "prefetch_pgs"),
    _of_rank("remote_store.pages", "histogram", "pages", "Of a batch of writes", "backup_pgs"),
    _of_rank("remote_load.bandwidth", "histogram", "GB/s", "Of a fetch", "prefetch_bandwidth"),
    _of_rank("remote_store.bandwidth", "histogram", "GB/s", "Of a write", "backup_bandwidth"),
    # prefill and decode apart
    _of_rank(
        "kv_transfer.latency",
        "histogram",
        "ms",
        "KV from a prefill server to a decode server",
        "kv_transfer_latency_ms",
        traps=(_TRAP_TRANSFER,),
    ),
    _of_rank("kv_transfer.bootstrap", "histogram", "ms", "Shaking hands", "kv_transfer_bootstrap_ms"),
    _of_rank("kv_transfer.alloc_wait", "histogram", "ms", "Waiting for room", "kv_transfer_alloc_ms"),
    _of_rank(
        "kv_transfer.speed",
        "histogram",
        "GB/s",
        "Of a transfer",
        "kv_transfer_speed_gb_s",
        traps=(_TRAP_TRANSFER,),
    ),
    _of_rank(
        "kv_transfer.size",
        "histogram",
        "MB",
        "Of a transfer",
        "kv_transfer_total_mb",
        traps=(_TRAP_TRANSFER,),
    ),
    _of_rank(
        "requests.prefill_bootstrap",
        "gauge",
        "requests",
        "Prefill server: shaking hands",
        "num_prefill_bootstrap_queue_reqs",
    ),
    _of_rank(
        "requests.prefill_inflight",
        "gauge",
        "requests",
        "Prefill server: KV on its way",
        "num_prefill_inflight_queue_reqs",
    ),
    _of_rank(
        "requests.decode_prealloc",
        "gauge",
        "requests",
        "Decode server: waiting for room",
        "num_decode_prealloc_queue_reqs",
    ),
    _of_rank(
        "requests.decode_transfer",
        "gauge",
        "requests",
        "Decode server: waiting for KV",
        "num_decode_transfer_queue_reqs",
    ),
)
