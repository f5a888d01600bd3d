"""What a quantile is made of: its exact split over the layers of a request.

Harrell-Davis is a weighted sum over requests, and each request's time is the sum of its layers, so the same weights
split the quantile with nothing left over (Euler's rule for a function homogeneous of degree one; Tasche 1999 for risk
contributions). It says what the requests around the quantile spend their time on. It is not a cause: when a change
makes other requests the slow ones, a layer that did not change gets a share of the difference.
"""

from __future__ import annotations

import numpy as np

from analysis.quantiles import Floats, hd_observation_weights

UNATTRIBUTED = "unattributed"


def compose(totals: Floats, layers: Floats, q: float) -> Floats:
    """Contributions (k + 1,) of k layers to the q-quantile of `totals`, in their unit; the last is unattributed.

    totals: (n,). layers: (k, n), NaN where a server does not tell; what the known layers of a request leave of its
    total is unattributed, so the contributions always sum to the quantile.
    """
    return with_rest(totals, layers) @ hd_observation_weights(totals, q)


def with_rest(totals: Floats, layers: Floats) -> Floats:
    """`layers` (k, n) with unknown as 0 and a last row: what they leave of the total, signed; sums to `totals`."""
    known = np.nan_to_num(layers, nan=0.0)
    return np.vstack([known, totals - known.sum(axis=0)])
