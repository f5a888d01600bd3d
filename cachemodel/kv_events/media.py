"""Names that servers give to the media of their blocks, as tiers."""

from __future__ import annotations

from cachemodel.layers import Tier

# By the lower-case name. vLLM: GPU (its CPU backend too), CPU, STORAGE; LMCache and Mooncake through vLLM: cpu, disk,
# remote; SGLang: GPU, CPU_PINNED, DISK, EXTERNAL; Dynamo: device, host_pinned, disk, external; TensorRT-LLM: levels.
TIERS = {
    "gpu": Tier.DEVICE,
    "device": Tier.DEVICE,
    "cache_level=0": Tier.DEVICE,
    "cpu": Tier.HOST,
    "cpu_pinned": Tier.HOST,
    "host": Tier.HOST,
    "host_pinned": Tier.HOST,
    "cache_level=1": Tier.HOST,
    "storage": Tier.REMOTE,
    "disk": Tier.REMOTE,
    "external": Tier.REMOTE,
    "remote": Tier.REMOTE,
}


def tier_of(medium: str | None) -> Tier | None:
    """The tier of a medium as a server names it; None for a name that is not known."""
    return TIERS.get(medium.lower()) if medium else None
