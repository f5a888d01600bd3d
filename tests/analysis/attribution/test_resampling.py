"""Blocks are as long as the load remembers, in time; two arms are drawn together; too little data is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.certainty.pairing import interleaved
from analysis.attribution.certainty.resampling import (
    FEWEST_BLOCKS,
    MOST_BLOCKS,
    memory_length,
    resampling,
    widening,
)
from analysis.attribution.certainty.student import MOST_SIGMAS, ratio, sigmas, student
from analysis.attribution.model import Resampling, Side
from cachemodel.errors import UserError
from tests.analysis.attribution.loads import arms, under_load

HOUR = 3600.0


def blocks_of(seed: int, memory_s: float, seconds: float = 2 * HOUR) -> Resampling:
    rng = np.random.default_rng(seed)
    a, b = (under_load(2000, seconds, memory_s, rng, begin=at) for at in (0.0, 2 * seconds))
    return resampling(a, b, rng)


def test_blocks_are_runs_of_requests_and_every_resample_draws_as_many() -> None:
    rng = np.random.default_rng(0)
    a, b = (under_load(500, HOUR, 0, rng, begin=at) for at in (0.0, 2 * HOUR))
    drawn = resampling(a, b, rng, rounds=50)
    for block, counts, side in ((drawn.block_a, drawn.counts_a, a), (drawn.block_b, drawn.counts_b, b)):
        assert (np.diff(block) >= 0).all()
        assert len(block) == side.n
        assert set(block) == set(range(counts.shape[1]))
        assert counts.shape[0] == 50
        assert (counts.sum(axis=1) == counts.shape[1]).all()


def test_load_memory_makes_blocks_long_and_observations_few() -> None:
    free, remembering = ([blocks_of(seed, memory) for seed in range(8)] for memory in (0.0, 600.0))
    assert np.median([one.counts_a.shape[1] for one in free]) == MOST_BLOCKS
    assert np.median([one.length_s for one in remembering]) >= 600
    assert np.median([one.degrees for one in remembering]) < np.median([one.degrees for one in free]) / 3
    assert (
        np.median([one.effective_a for one in remembering]) < np.median([one.effective_a for one in free]) / 4
    )


def test_what_remembers_nothing_is_rarely_taken_to_remember() -> None:
    rng = np.random.default_rng(2)
    lengths = [memory_length(rng.standard_normal(60)) for _ in range(1000)]
    wrong = sum(length > 1 for length in lengths)
    assert wrong <= 30, wrong


def test_a_spread_over_few_blocks_is_widened_by_what_theory_says() -> None:
    assert widening(60, 30, 1) == pytest.approx(np.sqrt(30 / 29))
    # Against the truth: an autoregression with a memory for which 12 of 60 is the best length, 5 blocks.
    phi, rng = np.exp(-1 / (1.5 * np.sqrt(12**3 / 90))), np.random.default_rng(3)
    series = rng.standard_normal((20_000, 60)) * np.sqrt(1 - phi**2)
    series[:, 0] = rng.standard_normal(20_000)
    for at in range(1, 60):
        series[:, at] += phi * series[:, at - 1]
    means = series.reshape(-1, 5, 12).mean(axis=2)
    assert widening(60, 5, 12) == pytest.approx(
        np.sqrt(means.mean(axis=1).var() / (means.var(axis=1).mean() / 5)), rel=0.03
    )


def test_arms_of_one_time_are_found_and_drawn_together() -> None:
    rng = np.random.default_rng(4)
    a, b = arms(800, HOUR, 600, rng)
    assert interleaved(a, b)
    drawn = resampling(a, b, rng)
    assert drawn.paired
    assert drawn.counts_a is drawn.counts_b
    early, late = a.subset(a.arrival < HOUR / 2), b.subset(b.arrival > HOUR / 3)
    assert not interleaved(early, late)
    assert not interleaved(under_load(800, HOUR, 0, rng), under_load(800, HOUR, 0, rng, begin=HOUR))
    assert not resampling(a, b, rng, paired=False).paired


def mean_change(a: Side, b: Side, drawn: Resampling) -> tuple[float, float]:
    """The change of the mean and half its interval, ms."""
    of = []
    for side, block, counts in ((a, drawn.block_a, drawn.counts_a), (b, drawn.block_b, drawn.counts_b)):
        sums, n = (
            np.bincount(block, side.totals, counts.shape[1]),
            np.bincount(block, minlength=counts.shape[1]),
        )
        of.append((counts @ sums) / (counts @ n))
    half = student(1.96, drawn.degrees) * drawn.widen * (of[1] - of[0]).std(ddof=1)
    return b.totals.mean() - a.totals.mean(), half


def test_pairing_takes_out_the_drift_that_hits_both_and_still_covers() -> None:
    rng, runs = np.random.default_rng(5), 80
    covered, together, apart = 0, [], []
    for _ in range(runs):
        a, b = arms(600, HOUR, 600, rng, decode=5.0)
        change, half = mean_change(a, b, resampling(a, b, rng))
        covered += abs(change - 5.0) <= half
        together.append(half)
        apart.append(mean_change(a, b, resampling(a, b, rng, paired=False))[1])
    assert np.median(together) < np.median(apart) / 3, (np.median(together), np.median(apart))
    # 95 % promised, 90 % asked for: three sigma of a binomial below that.
    assert covered / runs >= 0.9 - 3 * np.sqrt(0.9 * 0.1 / runs), covered / runs


def test_what_cannot_be_resampled_is_refused_in_words() -> None:
    rng = np.random.default_rng(6)
    a = under_load(300, HOUR, 0, rng)
    empty, one = a.subset(np.arange(0)), a.subset(np.arange(1))
    assert "A has no requests" in resampling(empty, a, rng).refused
    assert "(n = 1) arrive at one time" in resampling(one, a, rng).refused
    assert str(FEWEST_BLOCKS) in resampling(a, one, rng).refused
    assert "at one time" in resampling(replace(a, arrival=np.full(300, 7.0)), a, rng).refused
    with pytest.raises(UserError, match="share too little time"):
        resampling(a, under_load(300, HOUR, 0, rng, begin=9 * HOUR), rng, paired=True)


def test_unknown_and_constant_columns_do_no_harm() -> None:
    rng = np.random.default_rng(7)
    a = under_load(300, HOUR, 0, rng)
    nothing = replace(
        a, times=np.full((3, 300), np.nan), tokens=np.full((2, 300), np.nan), totals=np.full(300, 5.0)
    )
    drawn = resampling(nothing, nothing, rng, paired=False)
    assert not drawn.refused
    assert drawn.effective_a == 300


def test_students_t_is_close_to_the_tables() -> None:
    for degrees, tabled in ((3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042)):
        assert tabled <= student(1.959964, degrees) * 1.0005 <= tabled * 1.013
        assert sigmas(np.array([tabled]), degrees)[0] == pytest.approx(1.96, rel=0.01)
    assert student(3.0, np.inf) == 3.0
    assert sigmas(ratio(np.array([2.0, 0.0]), np.zeros(2)), 5).tolist() == [MOST_SIGMAS, 0.0]


def test_arms_that_meet_in_two_bursts_have_figures_and_no_intervals() -> None:
    """Nobody asked for pairs, so there is nothing to leave to anybody."""
    rng = np.random.default_rng(0)
    a, b = arms(400, HOUR, 0, rng)
    burst = np.sort(np.concatenate([rng.uniform(0, 30, 200), rng.uniform(HOUR, HOUR + 30, 200)]))
    a, b = (replace(side, arrival=burst[: side.n]) for side in (a, b))
    drawn = resampling(a, b, rng)
    assert (
        drawn.refused
        == "the requests of both meet in 2 stretches of time, 5 are needed: send them over longer"
    )
    with pytest.raises(UserError, match="share too little time to be paired"):
        resampling(a, b, rng, paired=True)


def test_bursts_of_one_side_are_cut_where_requests_come() -> None:
    """A load that takes turns with others: blocks of the whole time would be four, whatever it remembers."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        a, b = (
            turns.subset(turns.arrival % 50 < 16)
            for turns in (under_load(500, 66, 15, rng, begin=at) for at in (0.0, 100.0))
        )
        drawn = resampling(a, b, rng, paired=False)
        assert not drawn.refused
        assert min(len(np.unique(drawn.block_a)), len(np.unique(drawn.block_b))) >= FEWEST_BLOCKS
        assert drawn.length_s < 33 / FEWEST_BLOCKS
