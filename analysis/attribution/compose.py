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
    shares = parts_of(b.totals, np.stack(times_b), q, of_b) - parts_of(a.totals, np.stack(times_a), q, of_a)
    return split(
        a, b, q, resampling,
        kind="composition",
        names=names,
        shares=shares,
        provenance="measured",
        method="the requests at the quantile, each by its layers (Harrell-Davis weights)",
    )  # fmt: skip


def parts_of(totals: Floats, parts: Floats, q: float | None, of: Blocks) -> Floats:
    """What each of the parts (k, n) has of the q-quantile (None: the mean) of `totals` (n,), and the same of the r
    resamples: (1 + r, k). Time that nobody tells of (NaN) is none of a part's."""
    known = np.nan_to_num(parts)
    whole = compose(totals, known, [] if q is None else [q])[-1]
    if q is None:
        resampled = np.concatenate([of.resampled(part) for part in known], axis=1) / of.resampled(None)
    else:
        found = histogram(totals, q, of)
        resampled = np.stack([found.of(part, of)[1:] for part in known], axis=1)
    return np.vstack([whole, resampled])
