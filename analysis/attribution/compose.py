"""What the quantile is made of, on both sides: the change of its exact split over the layers (analysis.composition)."""

from __future__ import annotations

import numpy as np

from analysis.attribution.binned import Blocks, histogram
from analysis.attribution.change import blocks, refusal, split
from analysis.attribution.layers import layers
from analysis.attribution.model import Refused, Resampling, Side, Split
from analysis.composition import compose
from analysis.quantiles import Floats


def composition(a: Side, b: Side, q: float | None, resampling: Resampling) -> Split | Refused:
    """What each layer has of the q-quantile (None: the mean), B less A, ms. Not a cause: where other requests are the
    slow ones, a layer that did not change has a share, too."""
    reason = refusal(a, b)
    if reason:
        return Refused("composition", reason)
    names, times_a, times_b = layers(a, b)
    of_a, of_b = blocks(resampling)
    shares = _parts(b.totals, times_b, q, of_b) - _parts(a.totals, times_a, q, of_a)
    return split(
        a, b, q, resampling,
        kind="composition",
        names=names,
        shares=shares,
        provenance="measured",
        method="the requests at the quantile, each by its layers (Harrell-Davis weights)",
    )  # fmt: skip


def _parts(totals: Floats, times: list[Floats], q: float | None, of: Blocks) -> Floats:
    """(1 + r, k) ms."""
    parts = np.nan_to_num(np.stack(times))
    if q is None:
        size = of.resampled(None)
        resampled = np.concatenate([of.resampled(part) / size for part in parts], axis=1)
        return np.vstack([parts.mean(axis=1), resampled])
    found = histogram(totals, q, of)
    binned = np.stack([found.of(part, of) for part in parts], axis=1)
    binned[0] = compose(totals, parts, [q])[1]
    return binned
