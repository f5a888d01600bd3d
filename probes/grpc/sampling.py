"""Which calls become spans: decided when a call begins, by its parent's flag, or by its trace id where it has none.

The rule for trace ids is that of the SDK's TraceIdRatioBased sampler, so that services that sample alike keep the same
traces. The SDK's sampler itself is not asked for each call (that takes microseconds): its rate is read once.
"""

from __future__ import annotations

import re
from typing import Any

ALL = 1 << 64
_ROOT = re.compile(
    r"(?:ParentBased\{root:)?(AlwaysOnSampler|AlwaysOffSampler|TraceIdRatioBased\{([0-9.eE+-]+)\})"
)


def bound_of(rate: float) -> int:
    """Trace ids whose low 64 bits are below it are sampled. ValueError for a rate outside 0 to 1."""
    if not 0 <= rate <= 1:
        raise ValueError(f"sample={rate}: give a share between 0 and 1")
    return round(rate * ALL)


def rate_of(provider: Any) -> float | None:
    """The share of roots that the provider's sampler keeps. None where it is a sampler of the user's own."""
    sampler = getattr(provider, "sampler", None)
    found = _ROOT.match(sampler.get_description()) if sampler is not None else None
    if found is None:
        return None
    name, ratio = found.groups()
    return {"AlwaysOnSampler": 1.0, "AlwaysOffSampler": 0.0}.get(name) if ratio is None else float(ratio)
