"""What the twin is given for a coalition: tokens, times, laws and limits of one side with parts of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.attribution.caused.borrowed import Strata, borrowed, strata
from analysis.attribution.caused.causes import CAPACITY, OTHER, OTHER_ARM, WORKLOAD, Half, Pair
from analysis.attribution.caused.split import caused
from analysis.attribution.caused.step_laws import apart, laws
from analysis.attribution.caused.sticks import OF_TIERS, sticks
from analysis.attribution.caused.told import ToldSide
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import NOT_TOLD, Refused, Side
from analysis.attribution.tokens import COMPUTED
from analysis.quantiles import Floats
from analysis.report.metrics import METRICS
from analysis.twin.model import Fit, Law, Limits
from analysis.twin.workload import workload

SOURCES = ("device", "host", "unaligned", "evicted", "changed", "cold")
LAW = Law(step=6, prefill=0.06, attention=0.001, decode=0.2, context=0.01, host=0.01, host_fixed=1)
LIMITS = Limits(16, 512, 10_000)


def side(n: int, seed: int, shares: dict[str, float], name: str = "a") -> Side:
    """n requests whose tokens come from SOURCES in about these shares, the rest from the device."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(100, 2000, n).astype(float)
    tokens = np.zeros((len(SOURCES), n))
    left = prompt.copy()
    for source, share in shares.items():
        took = (
            np.floor(left * np.clip(rng.normal(share, 0.1, n), 0, 1))
            if 0 < share < 1
            else np.floor(left * share)
        )
        tokens[SOURCES.index(source)] = took
        left -= took
    tokens[0] = left
    times = np.stack([rng.exponential(10, n) for _ in range(4)])
    return Side(
        name=name,
        arrival=np.cumsum(rng.exponential(0.1, n)),
        totals=times.sum(axis=0),
        layers=("frontend", "queue", "prefill", "decode"),
        times=times,
        prompt=prompt,
        completion=rng.integers(2, 40, n).astype(float),
        sources=SOURCES,
        tokens=tokens,
        template=np.full(n, NOT_TOLD),
        server=np.zeros(n, np.int64),
        servers=("s",),
        begin=0.0,
        end=n / 10,
    )


HITS = side(400, 1, {"cold": 0.1, "host": 0.2})
LOST = side(300, 2, {"cold": 0.1, "changed": 0.8, "host": 0.2}, "b")


def half(of: Side, law: Law = LAW, limits: Limits = LIMITS) -> Half:
    return Half(of, workload(of), law, limits, np.zeros(of.n), np.ones(of.n))


def test_all_as_it_was_is_what_it_was_and_all_as_it_is_what_it_is() -> None:
    pair = Pair(half(HITS), half(LOST, replace(LAW, decode=0.4), replace(LIMITS, max_num_seqs=8)))
    for inside, of in (((), pair.a), (pair.names, pair.b)):
        (work, law, limits), beyond = pair.case(inside)
        for name in ("arrival", "prompt", "completion", "host", "remote", "computed", "before", "after"):
            np.testing.assert_allclose(getattr(work, name), getattr(of.workload, name), err_msg=name)
        assert (law, limits) == (of.law, of.limits)
        assert not beyond.any()


def test_arms_are_each_others_load() -> None:
    """As it was, A's with B's beside them; as it is, the other way round; the neighbours' hits by themselves."""
    pair = Pair(half(HITS), half(LOST), arms=True)
    assert pair.names == (WORKLOAD, "cold", "changed", "evicted", OTHER, OTHER_ARM)
    for inside, of, beside in (((), pair.a, pair.b), (pair.names, pair.b, pair.a)):
        (work, _, _), beyond = pair.case(inside)
        assert len(beyond) == of.side.n
        for name in ("arrival", "prompt", "computed", "host"):
            parts = [getattr(of.workload, name), getattr(beside.workload, name)]
            np.testing.assert_allclose(getattr(work, name), np.concatenate(parts), err_msg=name)
    (work, _, _), _ = pair.case({OTHER_ARM})
    np.testing.assert_allclose(work.computed[: HITS.n], pair.a.workload.computed)
    assert work.computed[HITS.n :].sum() < 0.5 * pair.b.workload.computed.sum()


@pytest.mark.parametrize("base", [HITS, LOST])
def test_a_cause_moves_its_own_share_of_the_tokens_and_no_other(base: Side) -> None:
    """With `changed` as on the other side, computed tokens are as many a prompt token as there, about."""
    pair = Pair(half(HITS), half(LOST))
    inside = {"changed"} if base is HITS else {*pair.names} - {"changed"}
    (work, _, _), _ = pair.case(inside)
    other = LOST if base is HITS else HITS
    expected = 1 - (other.tokens[0].sum() + other.tokens[1].sum()) / other.prompt.sum()
    assert len(work.arrival) == base.n
    assert work.computed.sum() / work.prompt.sum() == pytest.approx(expected, abs=0.03)


def test_names_are_those_that_can_have_changed_anything() -> None:
    nothing = side(200, 3, {"cold": 0.2})
    assert Pair(half(nothing), half(nothing)).names == (
        WORKLOAD,
        "cold",
        "prefill speed",
        "decode speed",
        OTHER,
    )
    named = Pair(half(HITS), half(LOST)).names
    assert named == (
        WORKLOAD,
        "cold",
        "changed",
        "evicted",
        "prefill speed",
        "decode speed",
        "tier speed",
        OTHER,
    )
    roomy = Pair(half(HITS), half(LOST), another_room=True).names
    assert CAPACITY in roomy
    assert "evicted" not in roomy  # what a lower tier held made room, too


def test_a_speed_never_measured_on_a_side_is_the_others() -> None:
    never = replace(LAW, host=0.0, host_fixed=0.0)
    pair = Pair(half(HITS, never), half(LOST))
    assert pair.case(())[0][1].host == LAW.host


@given(st.sets(st.sampled_from(["changed", "cold", "evicted", "unaligned", "host"])), st.booleans())
def test_tokens_add_up_whatever_is_borrowed(over: set[str], flipped: bool) -> None:
    a, b = (LOST, HITS) if flipped else (HITS, LOST)
    broken = sticks(a, b, strata(a, b), np.ones(b.n)).broken(over)
    assert all((tokens >= -1e-9).all() for tokens in broken.values())
    total = broken[COMPUTED] + sum((broken[tier] for tier in OF_TIERS), np.zeros(a.n))
    assert (total <= a.prompt + 1e-6).all()


@given(st.integers(0, 10_000))
def test_a_side_that_equals_the_other_keeps_what_it_has(seed: int) -> None:
    values = np.random.default_rng(seed).choice([0.0, 0.2, 0.7, 1.0], 120)
    alike, every = Strata(np.zeros(120, np.int64), np.zeros(120, np.int64)), np.ones(120)
    np.testing.assert_array_equal(borrowed(values, values, alike, every, every), values)


def test_misses_that_came_in_a_burst_come_in_a_burst() -> None:
    """Nothing was lost on A; on B all was, in the sixth tenth of the window."""
    never, burst = np.zeros(200), np.zeros(100)
    burst[50:60] = 1.0
    alike = Strata(np.zeros(200, np.int64), np.zeros(100, np.int64))
    lent = borrowed(never, burst, alike, np.ones(200), np.ones(100))
    np.testing.assert_array_equal(np.flatnonzero(lent), np.arange(100, 120))


def lent_over_true(prefix: Callable[[Floats], Floats], seeds: int = 40, n: int = 1100) -> list[float]:
    """80 % of A's prompts find their prefix, 50 % of B's: with the other's hits, tokens computed of A and of B, and
    their squares, over what they should be."""
    ratios = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        prompts = [np.clip(np.exp(rng.normal(7.1, 0.6, n)), 80, 6000).round() for _ in range(2)]
        luck = [rng.random(n) for _ in range(2)]

        def computed(
            of: int, hits: float, prompts: list[Floats] = prompts, luck: list[Floats] = luck
        ) -> Floats:
            return 1 - np.where(luck[of] < hits, prefix(prompts[of]), 0.0) / prompts[of]

        a, b = (replace(side(n, seed, {}), prompt=prompt) for prompt in prompts)
        alike, every = strata(a, b), np.ones(n)
        lent = (
            borrowed(computed(0, 0.8), computed(1, 0.5), alike, every, every),
            borrowed(computed(1, 0.5), computed(0, 0.8), alike.reversed(), every, every),
        )
        true = computed(0, 0.5), computed(1, 0.8)
        ratios.append(
            [
                float(((lent[of] * prompts[of]) ** power).sum() / ((true[of] * prompts[of]) ** power).sum())
                for of in (0, 1)
                for power in (1, 2)
            ]
        )
    return list(np.mean(ratios, axis=0))


@pytest.mark.parametrize(
    "prefix",
    [lambda p: np.floor(0.85 * (p - 1) / 16) * 16, lambda p: np.minimum(1000.0, np.floor((p - 1) / 16) * 16)],
    ids=["a share", "a system prompt"],
)
def test_hits_are_lost_by_long_and_short_prompts_alike(prefix: Callable[[Floats], Floats]) -> None:
    """The share of a prompt that is found hangs on its length, by parts of a block or by all of the prefix: who has the
    worst of it in a stratum must not be the shortest, or the longest, in it."""
    assert lent_over_true(prefix) == pytest.approx([1.0] * 4, abs=0.025)


def test_what_few_have_is_lent_as_often_where_few_borrow() -> None:
    """A fifth of the other side's loads; in each stratum one request of this side could load at all."""
    rng = np.random.default_rng(1)
    number = np.repeat(np.arange(200), 10)
    reached, loads = np.where(np.arange(2000) % 10 == 3, 1.0, 0.0), (rng.random(2000) < 0.2).astype(float)
    lent = borrowed(np.zeros(2000), loads, Strata(number, number), reached, np.ones(2000))
    assert lent[reached > 0].mean() == pytest.approx(loads.mean(), abs=0.03)


def fit(law: Law, error: float) -> Fit:
    """Whose prefill and decode are each known to a relative `error` only, and together much better."""
    covariance = np.zeros((9, 9))
    covariance[np.ix_([1, 3], [1, 3])] = error**2 * np.array([[1.0, -0.95], [-0.95, 1.0]])
    covariance[[0, 2, 4], [0, 2, 4]] = (error / 10) ** 2
    return Fit(law, covariance, LIMITS, hidden_wait=False, quiet=(0.0, 0.0), n=1000)


def test_laws_are_told_apart_only_where_the_data_do() -> None:
    """A prefill that seems slower by what a decode seems faster is one law; a decode that doubled is not."""
    plain, seems = fit(LAW, 0.2), fit(replace(LAW, prefill=LAW.prefill * 1.2, decode=LAW.decode * 0.8), 0.2)
    found = laws(plain, seems)
    assert found.changed == ()
    assert found.a.prefill == pytest.approx(found.b.prefill)
    assert found.a.decode == pytest.approx(found.b.decode)
    slower = fit(replace(LAW, decode=LAW.decode * 2, step=LAW.step * 2), 0.05)
    found = laws(fit(LAW, 0.05), slower)
    assert found.changed == ("decode speed",)
    assert found.b.step == pytest.approx(2 * found.a.step, rel=0.1)
    assert found.a.prefill == pytest.approx(found.b.prefill)
    drawn = found.draw(np.random.default_rng(0), 50)
    assert all(a.prefill == pytest.approx(b.prefill) for a, b in drawn)
    spread: Floats = np.array([a.prefill for a, _ in drawn])
    assert 0.005 < spread.std() / spread.mean() < 0.06
    assert apart(plain, seems).b == seems.law


@pytest.mark.parametrize(
    ("other", "metric", "why"),
    [
        (replace(LOST, sampled=3), "e2e", "thinned to one request in 3"),
        (replace(LOST, servers=("t", "u"), server=np.arange(300) % 2), "e2e", "ask for one with server=NAME"),
        (LOST.subset(np.arange(50)), "e2e", "has 50 requests, a twin takes"),
        (replace(LOST, tokens=LOST.tokens * np.nan), "e2e", "is told for no request"),
    ],
)
def test_where_there_is_no_twin_it_says_why(other: Side, metric: str, why: str) -> None:
    drawn = resampling(HITS, other, np.random.default_rng(0))
    nothing = ToldSide({}, {})
    found, fidelity, own = caused(HITS, other, 0.5, METRICS[metric], (nothing, nothing), drawn)
    assert isinstance(found, Refused)
    assert why in found.reason
    assert (fidelity, own) == ([], {})
