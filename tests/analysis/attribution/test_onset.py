"""A step of a layer is found where it is, with bounds, and tied to the deploy beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np

from analysis.attribution.certainty.onset import onsets
from analysis.attribution.model import Side
from tests.analysis.attribution.loads import arms, under_load

HOUR = 3600.0


def seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def stepped(rng: np.random.Generator, at: float, memory_s: float, decode: float) -> tuple[Side, Side]:
    """Two windows of two hours, one behind the other; decode steps at a time within the second."""
    a, b = (under_load(2000, 2 * HOUR, memory_s, rng, begin=begin) for begin in (0.0, 2 * HOUR))
    more = decode * (b.arrival >= at)
    return a, replace(b, times=b.times + np.stack([0 * more, 0 * more, more]), totals=b.totals + more)


def test_the_time_of_a_step_lies_within_its_bounds() -> None:
    rng, runs = np.random.default_rng(0), 20
    found, covered = 0, 0
    for _ in range(runs):
        at = rng.uniform(2.2 * HOUR, 3.2 * HOUR)
        names = {onset.name: onset for onset in onsets(*stepped(rng, at, 120, 40.0), [])}
        if onset := names.get("decode"):
            found += 1
            covered += seconds(onset.low) - 1 <= at <= seconds(onset.high) + 1
            assert onset.unit == "ms"
    # Three sigma of a binomial below 95 %.
    assert found >= 16, found
    assert covered / found >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / found), (covered, found)


def test_without_a_step_there_is_rarely_an_onset() -> None:
    rng, runs = np.random.default_rng(1), 40
    any_ = sum(bool(onsets(*stepped(rng, 0.0, 0.0, 0.0), [], rounds=400)) for _ in range(runs))
    # 5 % promised, for all series together.
    assert any_ <= runs * 0.05 + 3 * np.sqrt(runs * 0.05 * 0.95), any_


def test_the_nearest_deploy_is_named_with_its_distance() -> None:
    a, b = stepped(np.random.default_rng(2), 2 * HOUR, 0, 40.0)
    deploys = [(100.0, "v1"), (2 * HOUR - 60, "v2"), (3.9 * HOUR, "v3")]
    onset = next(onset for onset in onsets(a, b, deploys) if onset.name == "decode")
    assert onset.deploy == "v2"
    assert onset.deploy_s is not None
    assert abs(onset.deploy_s - (seconds(onset.at) - 2 * HOUR + 60)) < 1.5
    assert onsets(a, b, [(100.0, "v1")])[0].deploy == ""
    assert onsets(a, b, [(100.0, "v1")])[0].deploy_s is None


def test_lost_hits_are_told_as_a_share() -> None:
    rng = np.random.default_rng(3)
    a, b = under_load(2000, HOUR, 0, rng), under_load(2000, HOUR, 0, rng, begin=HOUR, hits=0.4)
    onset = next(onset for onset in onsets(a, b, []) if onset.name == "cached")
    assert onset.unit == "share of prompt tokens"
    assert -0.35 < onset.step < -0.25


def test_arms_of_one_time_constants_and_few_requests_have_none() -> None:
    rng = np.random.default_rng(4)
    assert onsets(*arms(800, HOUR, 0, rng, decode=50.0), []) == []
    a, b = stepped(rng, 2 * HOUR, 0, 40.0)
    assert onsets(a.subset(np.arange(5)), b.subset(np.arange(5)), []) == []
    assert onsets(a.subset(np.arange(0)), b, []) == []
    level = [replace(s, times=np.full((3, s.n), 0.1), totals=np.full(s.n, 0.3), sources=()) for s in (a, b)]
    assert onsets(level[0], level[1], []) == []
