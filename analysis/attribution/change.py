"""The change that every split is of, and a split from its shares."""

from __future__ import annotations

import numpy as np

from analysis.attribution.binned import Blocks, resampled
from analysis.attribution.model import Kind, Provenance, Resampling, Side, Split
from analysis.quantiles import Floats, hd_quantile


def blocks(resampling: Resampling) -> tuple[Blocks, Blocks]:
    """Of A and of B."""
    return (
        Blocks(resampling.block_a, resampling.counts_a),
        Blocks(resampling.block_b, resampling.counts_b),
    )


def change(a: Side, b: Side, q: float | None, resampling: Resampling) -> tuple[float, Floats]:
    """B's q-quantile (None: mean) less A's, ms, and its replicates (r,)."""
    of_a, of_b = blocks(resampling)
    replicates = resampled(b.totals, q, of_b).replicates - resampled(a.totals, q, of_a).replicates
    return _estimate(b.totals, q) - _estimate(a.totals, q), replicates


def split(
    a: Side,
    b: Side,
    q: float | None,
    resampling: Resampling,
    *,
    kind: Kind,
    names: tuple[str, ...],
    shares: Floats,
    provenance: Provenance,
    method: str,
    notes: tuple[str, ...] = (),
) -> Split:
    """The change with its shares (1 + r, m), the replicates behind the estimate; what they leave is the residual."""
    whole, replicates = change(a, b, q, resampling)
    return Split(
        kind=kind,
        q=q,
        names=names,
        values=shares[0],
        replicates=shares[1:],
        change=whole,
        change_replicates=replicates,
        residual=whole - float(shares[0].sum()),
        residual_replicates=replicates - shares[1:].sum(axis=1),
        provenance=provenance,
        method=method,
        notes=notes,
    )


def _estimate(totals: Floats, q: float | None) -> float:
    return float(totals.mean()) if q is None else hd_quantile(totals, q)


def refusal(a: Side, b: Side) -> str:
    """Why nothing can be split, with what would help; empty where it can."""
    for side in (a, b):
        if not side.n:
            return f"{side.name} has no requests: choose a window or labels that have some"
        if not np.isfinite(side.totals).all():
            return f"{side.name} has requests whose time is not known: leave them out"
    if a.layers != b.layers or a.sources != b.sources:
        return "the two sides tell of different layers or token sources: read both by one metric"
    return ""
