"""Milliseconds of a rewrite beside what a server really does with the same requests, more of it in its cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.advisor.pricing.gains import Change, Outcome
from analysis.advisor.pricing.price import NOT_KNOWN, Price, Q, Traffic, given, prices
from analysis.quantiles import hd_quantile
from analysis.twin.fit import fit
from analysis.twin.model import Workload
from analysis.twin.workload import known
from tests.analysis.attribution.contention import BLOCK, Draws, World, side, told

SENT, REWRITTEN = World(hits=0.3), World(hits=0.8)


def outcome(world: World, draws: Draws, scale: float = 1.0) -> Outcome:
    """What a replay says that serves what this world's cache does, in tokens of another tokenizer."""
    prefix = np.floor(0.85 * (draws.prompt - 1) / BLOCK) * BLOCK
    found = np.where(draws.hit < world.hits, prefix, 0.0)
    return Outcome(*(np.rint(of * scale).astype(np.int64) for of in (draws.prompt, found)))


def traffic(world: World, draws: Draws) -> Traffic:
    served = known(side(world, draws), told(world))
    assert served.n == len(draws.gap)
    return Traffic(served, fit(served, told(world)), np.arange(served.n))


def priced(world: World, draws: Draws, *changes: Change, of: Traffic | None = None) -> list[Price]:
    server = of or traffic(world, draws)
    return prices([server], changes[0].before, changes, np.random.default_rng(0))


@pytest.mark.parametrize("seed", range(4))
def test_what_it_says_is_what_the_server_does(seed: int) -> None:
    """The same requests, served again by the server itself; its pass times bend and jitter as no twin's do."""
    draws = Draws.of(4000, seed)
    change = Change(outcome(SENT, draws), outcome(REWRITTEN, draws))
    (price,) = priced(SENT, draws, change)
    before, after = (np.asarray(side(world, draws).time("ttft")) for world in (SENT, REWRITTEN))
    saved = hd_quantile(before, Q) - hd_quantile(after, Q)
    print(
        f"P95 {saved:.1f} ms, by the twin {price.p95}; mean {before.mean() - after.mean():.1f}, {price.mean}"
    )
    assert price.p95.holds(saved)
    assert price.mean.holds(float(before.mean() - after.mean()))
    assert price.p95_before == pytest.approx(hd_quantile(before, Q), rel=0.1)
    assert price.share == price.p95.value / price.p95_before


def test_what_saves_nothing_is_worth_nothing_and_steps_add_up() -> None:
    draws = Draws.of(1500, 9)
    sent, half, whole = (outcome(World(hits=hits), draws) for hits in (0.3, 0.5, 0.8))
    changes = [Change(sent, sent), Change(sent, half), Change(half, whole), Change(sent, whole)]
    nothing, first, second, both = priced(SENT, draws, *changes)
    assert (nothing.p95.value, nothing.p95.low, nothing.p95.high) == (0, 0, 0)
    assert first.mean.value > 0
    assert second.mean.value > 0
    assert first.mean.value + second.mean.value == pytest.approx(both.mean.value)
    assert first.p95.value + second.p95.value == pytest.approx(both.p95.value)
    assert second.p95_before == pytest.approx(first.p95_before - first.p95.value)


@pytest.fixture
def work() -> Workload:
    of = np.array([100.0, 200.0, 400.0])
    nothing = np.zeros(3)
    return Workload(
        arrival=nothing,
        prompt=of,
        completion=nothing + 5,
        host=nothing,
        remote=nothing,
        computed=np.array([20.0, 200.0, 400.0]),
        before=nothing,
        after=nothing,
    )


def known_as(*prompt: int) -> Traffic:
    return Traffic(side=None, fit=None, prompt=np.array(prompt))  # type: ignore[arg-type]


def test_savings_are_of_the_requests_that_had_the_prompts(work: Workload) -> None:
    """The replay has them in another order, and not all of them."""
    sent = Outcome(np.array([200, 100]), np.array([0, 80]))
    after = Outcome(np.array([200, 100]), np.array([160, 80]))
    new = given(known_as(1, 0, NOT_KNOWN), work, sent, after)
    assert new.computed.tolist() == [20, 40, 400]
    assert new.prompt.tolist() == work.prompt.tolist()
    assert given(known_as(1, 0, NOT_KNOWN), work, sent, sent).computed.tolist() == work.computed.tolist()


def test_tokens_are_the_servers(work: Workload) -> None:
    """Of a tokenizer that cuts in half as many; a text that gets longer is computed."""
    sent = Outcome(np.array([50, 100, 200]), np.array([40, 0, 0]))
    after = Outcome(np.array([50, 110, 190]), np.array([40, 90, 0]))
    new = given(known_as(0, 1, 2), work, sent, after)
    assert new.prompt.tolist() == [100, 220, 380]
    assert new.computed.tolist() == [20, 40, 380]


def test_a_cache_that_holds_half_of_it_saves_half(work: Workload) -> None:
    """It served 80 of the 160 that the replay's did."""
    sent = Outcome(np.array([100, 200, 400]), np.array([80, 80, 0]))
    after = Outcome(np.array([100, 200, 400]), np.array([80, 80, 200]))
    assert given(known_as(0, 1, 2), work, sent, after).computed.tolist() == [20, 200, 300]
    cold = replace(work, computed=work.prompt)
    assert given(known_as(0, 1, 2), cold, sent, after).computed.tolist() == [100, 200, 400]


def test_something_is_always_computed(work: Workload) -> None:
    sent = Outcome(np.array([100, 200, 400]), np.array([80, 0, 0]))
    after = Outcome(np.array([100, 200, 400]), np.array([100, 200, 400]))
    assert given(known_as(0, 1, 2), work, sent, after).computed.tolist() == [1, 1, 1]
