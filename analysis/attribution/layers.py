"""The layers of two sides, so that they add up to the totals on both.

A time that is not told (NaN) can be one that there was none of: a tier that was not asked. Or it is missing: the total
holds it, and so does the rest. Where one side misses more than the other, a layer would seem faster there and the rest
slower, though neither changed. Such a layer is counted in the rest on both sides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.model import Side
from analysis.composition import UNATTRIBUTED
from analysis.quantiles import Floats

Mask = NDArray[np.bool_]
_NEGLIGIBLE = 1e-9  # of the totals: rounding, not time that nobody explains
_SHARE = 0.01  # of a side's requests: by so much more of them tell a layer than of the other's
_IN_REST = 0.5  # of a layer's usual time, by more than which the rest is longer where the layer is missing


def layers(a: Side, b: Side) -> tuple[tuple[str, ...], list[Floats], list[Floats]]:
    """Names and times (n,) each of the layers that any request passed, with what they leave of the totals. NaN is time
    that nobody tells of; it is in the rest, and so are the layers that are `half_told`."""
    missing = half_told(a, b)
    kept = [
        i
        for i, name in enumerate(a.layers)
        if name not in missing and any(np.nan_to_num(side.times[i]).any() for side in (a, b))
    ]
    times = [[side.times[i] for i in kept] for side in (a, b)]
    names = tuple(a.layers[i] for i in kept)
    rest = [side.totals - np.nansum(side.times[kept], axis=0) for side in (a, b)]
    sizes = [np.abs(side.totals).max() for side in (a, b)]
    if not kept or any(np.abs(r).max() > _NEGLIGIBLE * size for r, size in zip(rest, sizes, strict=True)):
        names += (UNATTRIBUTED,)
        times = [[*t, r] for t, r in zip(times, rest, strict=True)]
    return names, times[0], times[1]


def half_told(a: Side, b: Side) -> dict[str, tuple[float, float]]:
    """Layers that clearly more requests of one side tell, and whose time is in the rest where they do not: by name, the
    share of A's and of B's requests that tells them."""
    found: dict[str, tuple[float, float]] = {}
    rest: list[Floats] = []
    for i, name in enumerate(a.layers):
        told = [np.isfinite(side.times[i]) for side in (a, b)]
        shares = float(told[0].mean()), float(told[1].mean())
        if abs(shares[0] - shares[1]) <= _SHARE:
            continue
        rest = rest or [side.totals - np.nansum(side.times, axis=0) for side in (a, b)]
        left, known = np.concatenate(rest), np.concatenate(told)
        usual = np.concatenate([side.times[i][here] for side, here in zip((a, b), told, strict=True)])
        if np.median(left[~known]) - np.median(left[known]) > _IN_REST * np.median(usual) > 0:
            found[name] = shares
    return found


def passed(times: Floats, below_zero: bool) -> Mask:
    """Which requests passed the layer (n,): those that have a time there; 0 is none, unless times can be negative."""
    return np.asarray(np.isfinite(times) if below_zero else np.nan_to_num(times) > 0)


def negative(times_a: Floats, times_b: Floats) -> bool:
    """Whether times of the layer can be negative."""
    return bool(min(np.nan_to_num(t).min() for t in (times_a, times_b)) < 0)
