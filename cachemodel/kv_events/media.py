"""Names that servers give to the media of their blocks, as tiers; and what stands in rows for a private text."""

from __future__ import annotations

import hashlib
import re

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

_DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}")


def tier_of(medium: str | None) -> Tier | None:
    """The tier of a medium as a server names it; None for a name that is not known."""
    return TIERS.get(medium.lower()) if medium else None


def pseudonym(value: str | bytes) -> str:
    """What stands for a salt or session id, which can name a tenant: equal where those are equal.

    Not a secret: who knows a name can make its pseudonym. What is a digest already, as an image's key is, stays.
    """
    if isinstance(value, str):
        if _DIGEST.fullmatch(value):
            return value
        value = value.encode("utf-8", "surrogatepass")
    return "~" + hashlib.blake2b(value, digest_size=8).hexdigest()
