"""Loads from the tiers below the device, on a server whose times are known."""

from __future__ import annotations

import pytest

from cachemodel.alignment import Alignment
from collector.canary import Budget
from tests.collector.canary.fakes import FakeServer, finding, measured

LOAD = {"host": (0.02, 3.0), "remote": (0.05, 11.0)}


@pytest.mark.parametrize("device", [8_000, 40_000])
@pytest.mark.parametrize("known", [False, True])
def test_both_tiers_are_found_and_timed(device: int, known: bool) -> None:
    server = FakeServer(device_tokens=device, host_tokens=3 * device + 20_000, remote=True, load=LOAD)
    report = measured(server, "tiers", longest=1024, device_tokens=device if known else None)
    for tier, (per_token, fixed) in LOAD.items():
        assert finding(report, "tier.load_ms_per_token", tier).value == pytest.approx(per_token)
        assert finding(report, "tier.load_fixed_ms", tier).value == pytest.approx(fixed)
    reach = finding(report, "tier.device_tokens")
    assert reach.low is not None
    assert reach.high is not None
    assert reach.low <= device <= reach.high


@pytest.mark.parametrize("tell", ["cached", ""])
def test_a_lower_tier_is_told_by_its_time_alone(tell: str) -> None:
    load = {"host": (0.04, 2.0)}
    server = FakeServer(device_tokens=30_000, host_tokens=10**7, tell=tell, load=load, noise_ms=0.5)
    report = measured(server, "tiers", longest=1024, device_tokens=30_000)
    found = finding(report, "tier.load_ms_per_token", "lower")
    assert found.value == pytest.approx(0.04, rel=0.2)
    assert "time to first token alone" in finding(report, "tier.load_ms", "lower").detail


@pytest.mark.parametrize("tell", ["tiers", "cached", ""])
def test_without_a_lower_tier_it_is_said(tell: str) -> None:
    server = FakeServer(device_tokens=20_000, tell=tell, noise_ms=1)
    report = measured(server, "tiers", longest=1024)
    found = finding(report, "tier.load_ms_per_token")
    assert found.value is None
    assert "no tier below the device" in found.detail
    reach = finding(report, "tier.device_tokens")
    assert (reach.low or 0) <= 20_000 <= (reach.high or 0)


def test_a_device_larger_than_the_budget_is_said_to_be() -> None:
    server = FakeServer()
    budget = Budget(requests=10_000, tokens=200_000, seconds=1e6, rate=1000)
    report = measured(server, "tiers", longest=1024, budget=budget)
    found = finding(report, "tier.load_ms_per_token")
    assert found.value is None
    assert "broken off: the budget of 200,000 tokens" in found.detail
    assert (finding(report, "tier.device_tokens").low or 0) > 20_000


@pytest.mark.parametrize("host", [9_600, 4_800])
@pytest.mark.parametrize("law", [Alignment(48, 1), Alignment(512, 1)])
def test_neither_a_small_tier_nor_odd_units_hide_it(host: int, law: Alignment) -> None:
    """A doubling steps over a tier that holds no more than the device, and a short prompt over units of its length."""
    server = FakeServer(device_tokens=9_600, host_tokens=host, law=law, load={"host": (0.02, 3.0)})
    report = measured(server, "tiers")
    assert finding(report, "tier.load_ms_per_token", "host").value == pytest.approx(0.02)
    assert finding(report, "tier.load_fixed_ms", "host").value == pytest.approx(3.0)
    reach = finding(report, "tier.device_tokens")
    assert reach.low is not None
    assert reach.high is not None
    assert reach.low <= 9_600 <= reach.high
    assert reach.high - reach.low <= 0.2 * reach.high


def test_both_of_two_small_tiers_are_found() -> None:
    server = FakeServer(device_tokens=9_600, host_tokens=6_000, remote=True, load=LOAD)
    report = measured(server, "tiers")
    for tier, (per_token, fixed) in LOAD.items():
        assert finding(report, "tier.load_ms_per_token", tier).value == pytest.approx(per_token)
        assert finding(report, "tier.load_fixed_ms", tier).value == pytest.approx(fixed)


def test_how_small_a_tier_would_not_have_been_seen_is_said() -> None:
    report = measured(FakeServer(device_tokens=20_000), "tiers")
    reach, found = finding(report, "tier.device_tokens"), finding(report, "tier.load_ms_per_token")
    assert reach.low is not None
    assert reach.high is not None
    assert f"one of fewer than {reach.high - reach.low:,.0f} tokens would not have been seen" in found.detail
