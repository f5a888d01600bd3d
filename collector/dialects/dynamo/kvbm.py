"""Metrics of Dynamo's KV block manager (KVBM, until Dynamo 1.6): blocks between device, host, disk and object store.

Its names say the direction in two letters of which one means two things: of what is offloaded, h2d is host to disk; of
what is brought back ("onboard"), h2d is host to device and d2d disk to device. The canonical names spell it out.
Read in Dynamo's KVBM guide and in prometheus_names.rs, never run live.
"""

from __future__ import annotations

from functools import partial

from collector.metric import Metric, Trap, row

_TRAP_BLOCKS = Trap("", "in blocks, not tokens: multiply by the engine's block size")
_TRAP_WINDOW = Trap("", "over a sliding window: neither to be averaged nor compared with counters")

_m = partial(row, "kvbm_")


def _moved(name: str, raw: str, text: str) -> Metric:
    return _m(name, "counter", "blocks", text, raw, traps=(_TRAP_BLOCKS,))


def _ratio(tier: str) -> Metric:
    text = f"Hit ratio of the {tier} tier"
    return _m(
        f"kvbm.{tier}_hit_ratio", "gauge", "ratio", text, f"{tier}_cache_hit_rate", traps=(_TRAP_WINDOW,)
    )


KVBM: tuple[Metric, ...] = (
    _m(
        "kvbm.matched_tokens",
        "counter",
        "tokens",
        "Prompt tokens that KVBM had",
        "matched_tokens",
        traps=(
            Trap("", "there is no counter of tokens asked for (dynamo issue 4840): no ratio follows from it"),
        ),
    ),
    _moved("kvbm.offload_blocks.device_to_host", "offload_blocks_d2h", "Written from device to host"),
    _moved("kvbm.offload_blocks.host_to_disk", "offload_blocks_h2d", "Written from host to disk"),
    _moved("kvbm.offload_blocks.device_to_disk", "offload_blocks_d2d", "Written from device to disk"),
    _moved("kvbm.offload_blocks.device_to_object", "offload_blocks_d2o", "Written to the object store"),
    _moved("kvbm.onboard_blocks.host_to_device", "onboard_blocks_h2d", "Loaded from host to device"),
    _moved("kvbm.onboard_blocks.disk_to_device", "onboard_blocks_d2d", "Loaded from disk to device"),
    _moved("kvbm.onboard_blocks.object_to_device", "onboard_blocks_o2d", "Loaded from the object store"),
    _m("kvbm.object_read_bytes", "counter", "bytes", "From the object store", "onboard_bytes_object"),
    _m("kvbm.object_write_bytes", "counter", "bytes", "To the object store", "offload_bytes_object"),
    _m("kvbm.object_read_failures", "counter", "blocks", "Not read", "object_read_failures"),
    _m("kvbm.object_write_failures", "counter", "blocks", "Not written", "object_write_failures"),
    _ratio("host"),
    _ratio("disk"),
    _ratio("object"),
)
