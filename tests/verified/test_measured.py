"""Intervals hold what they promise, and a prediction is as sure as the requests that it is of."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.interval import Interval
from hitmap.advise.measured import Pairs, gains

SAVED, MS_A_TOKEN = 200.0, 0.1


def pairs(seed: int, n: int = 60, memory: float = 0.0, noise: float = 4.0) -> Pairs:
    """n pairs that save SAVED tokens in the mean, times with noise that remembers."""
    rng = np.random.default_rng(seed)
    saved = rng.normal(SAVED, 60, n)
    before = rng.normal(600, 100, n)
    computed = np.stack([before, before - saved], axis=1)
    drift = np.zeros(2 * n)
    for at in range(2 * n):
        drift[at] = memory * drift[at - 1] + rng.normal(0, noise)
    return Pairs(computed, computed.copy(), 8 + MS_A_TOKEN * computed + drift.reshape(n, 2))


@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_the_truth_lies_in_nineteen_of_twenty_intervals(memory: float) -> None:
    rounds = 200
    told = [gains(pairs(seed, memory=memory)) for seed in range(rounds)]
    tokens = sum(bool(one.tokens and one.tokens.holds(SAVED)) for one in told)
    ms = sum(bool(one.ms.holds(MS_A_TOKEN * SAVED)) for one in told)
    by_slope = sum(bool(one.ms_predicted and one.ms_predicted.holds(MS_A_TOKEN * SAVED)) for one in told)
    assert min(tokens, ms, by_slope) >= 0.91 * rounds, (tokens, ms, by_slope)


def test_the_slope_is_that_of_the_server() -> None:
    told = gains(pairs(1, noise=0.0))
    assert told.ms_per_token == pytest.approx(MS_A_TOKEN)
    assert told.ms_predicted
    assert told.ms_predicted.value == pytest.approx(told.ms.value)


def test_what_tokens_of_another_tokenizer_leave_open_widens_the_prediction_alone() -> None:
    told, wider = gains(pairs(1)), gains(pairs(1), unit=16.0)
    assert told.tokens_predicted.low is not None
    assert wider.tokens_predicted.low == pytest.approx(told.tokens_predicted.low - 16)
    assert wider.tokens == told.tokens


def test_a_few_pairs_have_no_interval() -> None:
    told = gains(pairs(1, n=4))
    assert (told.tokens_predicted.low, told.ms.high) == (None, None)
    assert told.tokens_predicted.holds(SAVED) is None


def test_requests_of_one_length_tell_no_slope() -> None:
    told = gains(Pairs(np.full((20, 2), 100.0), np.full((20, 2), 100.0), np.full((20, 2), 10.0)))
    assert (told.ms_per_token, told.ms_predicted) == (None, None)
    assert told.tokens == Interval(0.0, 0.0, 0.0)
