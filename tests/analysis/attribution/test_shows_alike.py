"""What cannot be told apart is not swapped, and what can be is not shrunk."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.binned import Blocks
from analysis.attribution.certainty.placebo import binomial
from analysis.attribution.model import Split
from analysis.attribution.shows.alike import LEVEL, Sample, told_apart
from analysis.attribution.shows.split import shows
from analysis.quantiles import Floats
from tests.analysis.attribution.generators import AS_WAS, resampled, side, truth

N, BLOCKS, ROUNDS = 4000, 100, 200


def sample(values: Floats, rng: np.random.Generator, stratum: np.ndarray | None = None) -> Sample:
    n = len(values)
    counts = rng.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), size=ROUNDS).astype(np.float64)
    strata = np.zeros(n, dtype=np.int64) if stratum is None else stratum
    return Sample(values, strata, Blocks(np.arange(n) * BLOCKS // n, counts))


@pytest.mark.parametrize("memory", [False, True])
def test_two_samples_of_one_are_told_apart_as_rarely_as_is_said(memory: bool) -> None:
    """Also where whole blocks are alike, which a test of single requests takes for a difference nearly always."""
    wrong, runs = 0, 150
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        of = []
        for _ in range(2):
            drift = np.repeat(rng.normal(0, 0.5, BLOCKS), N // BLOCKS) if memory else 0.0
            of.append(sample(rng.exponential(size=N) + drift, rng, rng.integers(0, 3, N)))
        wrong += told_apart([(of[0], of[1], 3)])
    # a spread known from a hundred blocks is itself known within 7 %, and the most extreme of many cells shows it
    low, high = binomial(wrong, runs)
    assert low <= 3 * LEVEL, f"{wrong} of {runs} told apart ({low:.1%} to {high:.1%})"


@pytest.mark.parametrize("what", ["a little everywhere", "the largest", "one stratum"])
def test_what_differs_is_told_apart(what: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        stratum, values = rng.integers(0, 8, (2, N)), rng.exponential(size=(2, N))
        if what == "a little everywhere":
            values[1] += 0.15
        elif what == "the largest":
            values[1] = np.where(values[1] > 4.0, values[1] * 2, values[1]) + np.where(
                rng.random(N) < 0.01, 12.0, 0.0
            )
        else:
            values[1] += 0.5 * (stratum[1] == 3)
        assert told_apart([(sample(values[0], rng, stratum[0]), sample(values[1], rng, stratum[1]), 8)])


def test_without_resamples_nothing_is_taken_as_unchanged() -> None:
    rng = np.random.default_rng(0)
    one = replace(sample(rng.normal(size=100), rng), blocks=Blocks(np.zeros(100, np.int64), np.zeros((0, 1))))
    assert told_apart([(one, one, 1)])
    a, b = side(AS_WAS, 2000, 1), side(AS_WAS, 2000, 2, "B")
    found = shows(a, b, 0.9, resampled(a, b, 0))
    assert isinstance(found, Split)
    assert found.values.all()


def test_few_blocks_must_differ_by_more() -> None:
    """A spread known from so few is often too small."""
    rng = np.random.default_rng(3)
    a, b = (sample(rng.normal(shift, 1, N), rng) for shift in (0.0, 0.13))
    assert told_apart([(a, b, 1)])
    assert not told_apart([(a, b, 1)], degrees=3.0)


def test_nothing_happened_and_every_share_is_nothing_with_its_noise() -> None:
    zeros, inside, runs = [], [], 8
    for seed in range(runs):
        a, b = side(AS_WAS, 6000, [seed, 11]), side(AS_WAS, 6000, [seed, 12], "B")
        split = shows(a, b, 0.95, resampled(a, b, 100, blocks=100, seed=seed))
        assert isinstance(split, Split)
        zeros.append(split.values == 0.0)
        sigma = split.replicates.std(axis=0)
        inside.append(np.abs(split.values) <= 1.96 * sigma)
        assert (sigma > 0).all()
        assert split.residual == pytest.approx(split.change - split.values.sum())
    assert np.mean(zeros) > 0.85
    assert np.mean(inside) > 0.9
    assert "no more different than in two samples of the same traffic" in split.method


@pytest.mark.parametrize(("name", "value"), [("decode", 2.0), ("hits", 0.77), ("workload", 1.04)])
def test_a_small_change_is_not_shrunk(name: str, value: float) -> None:
    """No larger than what two samples of this size differ by in the quantile, and still told apart."""
    world, runs = replace(AS_WAS, **{name: value}), 8
    true = truth(AS_WAS, world, 0.95)[name]
    found = []
    for seed in range(runs):
        a, b = side(AS_WAS, 10_000, [seed, 21]), side(world, 10_000, [seed, 22], "B")
        split = shows(a, b, 0.95, resampled(a, b, 100, blocks=100, seed=seed))
        assert isinstance(split, Split)
        found.append(split.values[split.names.index(name)])
    error = float(np.std(found, ddof=1)) / math.sqrt(runs)
    print(f"{name}: {true:.2f} ms, found {np.mean(found):.2f} +- {error:.2f}")
    assert np.count_nonzero(found) == runs
    assert abs(float(np.mean(found)) - true) < 3 * error + 0.1 * true
