"""What a quantile is made of: its exact split over the layers of a request.

Harrell-Davis is a weighted sum over requests, and each request's time is the sum of its layers, so the same weights
split the quantile with nothing left over (Euler's rule for a function homogeneous of degree one; Tasche 1999 for risk
contributions). It says what the requests around the quantile spend their time on. It is not a cause: when a change
makes other requests the slow ones, a layer that did not change gets a share of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.quantiles import Floats, hd_observation_weights

UNATTRIBUTED = "unattributed"


def with_rest(totals: Floats, layers: Floats) -> Floats:
    """Parts (k + 1, n) that sum to `totals` (n,): the layers (k, n), and what they leave, signed.

    NaN in a layer is time that nobody tells of; it falls to the rest.
    """
    known = np.nan_to_num(layers, nan=0.0)
    return np.vstack([known, totals - known.sum(axis=0)])


def compose(totals: Floats, parts: Floats, qs: Sequence[float]) -> Floats:
    """The mean and each q-quantile of `totals` (n,), split over parts (k, n) that sum to them: (1 + len(qs), k).

    In their unit; each row sums to the mean or quantile.
    """
    rows = [parts.mean(axis=1), *(parts @ hd_observation_weights(totals, q) for q in qs)]
    return np.stack(rows)
