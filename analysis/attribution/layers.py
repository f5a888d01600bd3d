"""The layers of two sides, so that they add up to the totals on both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.model import Side
from analysis.composition import UNATTRIBUTED
from analysis.quantiles import Floats

Mask = NDArray[np.bool_]
_NEGLIGIBLE = 1e-9  # of the totals: rounding, not time that nobody explains


def layers(a: Side, b: Side) -> tuple[tuple[str, ...], list[Floats], list[Floats]]:
    """Names and times (n,) each of the layers that any request passed, with what they leave of the totals. NaN is time
    that nobody tells of; it is in the rest."""
    kept = [i for i in range(len(a.layers)) if any(np.nan_to_num(side.times[i]).any() for side in (a, b))]
    times = [[side.times[i] for i in kept] for side in (a, b)]
    names = tuple(a.layers[i] for i in kept)
    rest = [side.totals - np.nansum(side.times, axis=0) for side in (a, b)]
    sizes = [np.abs(side.totals).max() for side in (a, b)]
    if not kept or any(np.abs(r).max() > _NEGLIGIBLE * size for r, size in zip(rest, sizes, strict=True)):
        names += (UNATTRIBUTED,)
        times = [[*t, r] for t, r in zip(times, rest, strict=True)]
    return names, times[0], times[1]


def passed(times: Floats, below_zero: bool) -> Mask:
    """Which requests passed the layer (n,): those that have a time there; 0 is none, unless times can be negative."""
    return np.asarray(np.isfinite(times) if below_zero else np.nan_to_num(times) > 0)


def negative(times_a: Floats, times_b: Floats) -> bool:
    """Whether times of the layer can be negative."""
    return bool(min(np.nan_to_num(t).min() for t in (times_a, times_b)) < 0)
