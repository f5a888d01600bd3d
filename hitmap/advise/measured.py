"""What pairs of requests say of a rewrite: gains with intervals, beside those that a replay predicts of the same pairs.

A pair is one request of a log, sent as it was and rewritten. Neighbours resemble each other (the first ones find an
empty cache, a machine slows down for a while), so blocks of pairs are drawn, as long as the autocorrelation of their
gains asks for. All figures come from the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.certainty.student import TWO_SIDED_95, student
from analysis.bootstrap import block_length
from analysis.interval import Interval

Floats = NDArray[np.float64]

DRAWS = 2000
FEWEST_BLOCKS = 5
_SEED = 20260


@dataclass(frozen=True)
class Pairs:
    """n pairs in the order in which they were sent; column 0 as sent, column 1 rewritten: (n, 2).

    computed: prompt tokens that the server computed, None where it does not tell. predicted: the same by replay.
    ttft_ms: time to the first token.
    """

    computed: Floats | None
    predicted: Floats
    ttft_ms: Floats


@dataclass(frozen=True)
class Gains:
    """What a rewrite saves of a request in the mean. tokens: computed ones, measured (None: the server does not tell)
    and predicted. ms: of the time to first token, measured, and as predicted by `ms_per_token`, which the same pairs
    tell; both None where they tell of no tokens, or all have the same. blocks: of pairs that were drawn."""

    tokens: Interval | None
    tokens_predicted: Interval
    ms: Interval
    ms_predicted: Interval | None
    ms_per_token: float | None
    ttft_as_sent_ms: float
    ttft_rewritten_ms: float
    blocks: int


def gains(pairs: Pairs, unit: float = 0.0) -> Gains:
    """unit: tokens by which a prediction for one request can be off, because its tokens are not the server's own."""
    n = len(pairs.ttft_ms)
    predicted, ms = _saved(pairs.predicted), _saved(pairs.ttft_ms)
    tokens = None if pairs.computed is None else _saved(pairs.computed)
    series = [ms, predicted if tokens is None else tokens]
    length = max(block_length(one) for one in series) if n > 1 else 1
    blocks = max(1, n // max(1, length))
    drawn = _draws(n, length)

    def interval(value: float, replicates: Floats, wider: float = 0.0) -> Interval:
        if blocks < FEWEST_BLOCKS:
            return Interval(value, None, None)
        spread = float(replicates.std(ddof=1)) * (blocks / (blocks - 1)) ** 0.5
        half = student(TWO_SIDED_95, blocks - 1) * spread + wider
        return Interval(value, value - half, value + half)

    def mean(saved: Floats, wider: float = 0.0) -> Interval:
        return interval(float(saved.mean()), saved[drawn].mean(axis=1), wider)

    slope = None if pairs.computed is None else _slope(pairs.computed, pairs.ttft_ms)
    by_slope = None
    if pairs.computed is not None and slope is not None:
        slopes = _slopes(pairs.computed[drawn], pairs.ttft_ms[drawn], slope)
        value = slope * float(predicted.mean())
        by_slope = interval(value, slopes * predicted[drawn].mean(axis=1), abs(slope) * unit)
    return Gains(
        tokens=None if tokens is None else mean(tokens),
        tokens_predicted=mean(predicted, unit),
        ms=mean(ms),
        ms_predicted=by_slope,
        ms_per_token=slope,
        ttft_as_sent_ms=float(pairs.ttft_ms[:, 0].mean()),
        ttft_rewritten_ms=float(pairs.ttft_ms[:, 1].mean()),
        blocks=blocks,
    )


def _saved(of: Floats) -> Floats:
    """(n,)"""
    return np.asarray(of[:, 0] - of[:, 1])


def _draws(n: int, length: int) -> NDArray[np.int64]:
    """(DRAWS, n) indices: circular blocks of consecutive pairs."""
    starts = np.random.default_rng(_SEED).integers(0, n, (DRAWS, -(-n // length)))
    drawn = (starts[:, :, None] + np.arange(length)) % n
    return np.asarray(drawn.reshape(DRAWS, -1)[:, :n])


def _slope(tokens: Floats, ms: Floats) -> float | None:
    """Of least squares, over both arms; None where all have the same tokens."""
    x, y = tokens.ravel(), ms.ravel()
    spread = float(((x - x.mean()) ** 2).sum())
    return float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else None


def _slopes(tokens: Floats, ms: Floats, otherwise: float) -> Floats:
    """(draws,) The same for each draw, (draws, n, 2); `otherwise` where one has the same tokens throughout."""
    x, y = tokens.reshape(len(tokens), -1), ms.reshape(len(ms), -1)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    spread = (x**2).sum(axis=1)
    return np.where(spread > 0, (x * y).sum(axis=1) / np.where(spread > 0, spread, 1.0), otherwise)
