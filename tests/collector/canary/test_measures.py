"""Each measurement against a server whose value is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cachemodel.alignment import Alignment
from collector.canary import Budget
from collector.canary.measures.replicas import _partitions
from collector.canary.wire import Answer
from tests.collector.canary.fakes import Cache, FakeServer, Key, finding, measured


@pytest.mark.parametrize("tell", ["tiers", "cached", ""])
@pytest.mark.parametrize("per_token", [0.004, 0.1, 3.0])
def test_prefill_is_the_slope_of_cold_prompts(per_token: float, tell: str) -> None:
    report = measured(FakeServer(ms_per_token=per_token, fixed_ms=40, tell=tell), "prefill")
    found = finding(report, "prefill.ms_per_token")
    assert found.value == pytest.approx(per_token)
    assert found.low == pytest.approx(per_token)
    assert finding(report, "prefill.fixed_ms").value == pytest.approx(40)


@pytest.mark.parametrize("seed", range(5))
def test_a_disturbed_prefill_is_about_right(seed: int) -> None:
    found = finding(measured(FakeServer(noise_ms=8, seed=seed), "prefill"), "prefill.ms_per_token")
    assert found.value == pytest.approx(0.1, rel=0.15)
    assert found.low is not None
    assert found.high is not None
    assert 0.08 < found.low < found.value < found.high < 0.12


def test_a_prefill_that_noise_drowns_is_not_told() -> None:
    found = finding(
        measured(FakeServer(ms_per_token=0, noise_ms=5, seed=1), "prefill"), "prefill.ms_per_token"
    )
    assert found.value is None or (found.low is not None and found.low <= 0 < found.value)


@pytest.mark.parametrize("unit", [1, 16, 24, 32, 64, 100, 128, 256, 528, 784, 1072, 1648, 2144])
@pytest.mark.parametrize("dropped", [0, 1])
def test_the_unit_is_recovered_exactly(unit: int, dropped: int) -> None:
    server = FakeServer(law=Alignment(unit, dropped), tell="cached")
    report = measured(server, "alignment", longest=8192)
    assert finding(report, "alignment.unit").value == unit
    assert finding(report, "alignment.dropped_units").value == dropped


@pytest.mark.parametrize("unit", [16, 64, 256])
def test_the_unit_of_a_server_that_takes_chats_only(unit: int) -> None:
    server = FakeServer(law=Alignment(unit), tell="cached", chat_only=True, tokenizes=False, added=37)
    report = measured(server, "alignment")
    assert finding(report, "alignment.unit").value == unit
    assert all("messages" in body for body, _ in server.generated[3:])


def test_an_api_that_reuses_nothing_below_a_length() -> None:
    server = FakeServer(law=Alignment(128), tell="cached", least=1024)
    report = measured(server, "alignment", longest=4096)
    assert finding(report, "alignment.unit").value == 128
    least = finding(report, "alignment.least_tokens")
    assert least.low is not None
    assert least.high is not None
    assert least.low <= 1024 <= least.high


@pytest.mark.parametrize("unit", [128, 256, 512])
def test_the_unit_by_times_alone(unit: int) -> None:
    server = FakeServer(law=Alignment(unit), tell="", noise_ms=1.0, seed=unit)
    found = finding(measured(server, "alignment"), "alignment.unit")
    assert found.value == unit
    assert "derived" in found.detail


def test_a_unit_too_small_for_the_times_is_bounded_and_not_guessed() -> None:
    server = FakeServer(law=Alignment(16), tell="", noise_ms=5.0, seed=3)
    found = finding(measured(server, "alignment"), "alignment.unit")
    assert found.value is None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 16 <= found.high


@pytest.mark.parametrize("tell", ["cached", ""])
def test_a_server_that_never_reuses_is_said_to(tell: str) -> None:
    server = FakeServer(law=Alignment(10**6), tell=tell, noise_ms=1)
    report = measured(server, "alignment", "salt", "replicas", "lifetime", "tiers")
    assert [found.value for found in report.findings] == [None] * len(report.findings)
    assert "sent again" in finding(report, "alignment.unit").detail


@pytest.mark.parametrize("tell", ["tiers", "cached", ""])
@pytest.mark.parametrize(("salt", "value"), [("isolates", 1), ("ignored", 0), ("refused", None)])
def test_salt(salt: str, value: float | None, tell: str) -> None:
    server = FakeServer(salt=salt, tell=tell, noise_ms=2)
    assert finding(measured(server, "salt"), "salt.isolates").value == value


@pytest.mark.parametrize("tell", ["cached", ""])
def test_lifetime_lies_between_two_waits(tell: str) -> None:
    server = FakeServer(lifetime_s=200, tell=tell, noise_ms=2)
    found = finding(measured(server, "lifetime", waits_s=(600.0, 60.0, 150.0, 300.0)), "entry.lifetime_s")
    assert (found.low, found.high) == (pytest.approx(150, abs=1), pytest.approx(300, abs=1))
    assert server.clock.now() < 620, "the waits run side by side"


def test_an_entry_that_outlives_the_wait() -> None:
    found = finding(measured(FakeServer(), "lifetime", waits_s=(60.0,)), "entry.lifetime_s")
    assert (found.value, found.high) == (None, None)
    assert found.low == pytest.approx(60, abs=1)


def test_a_wait_beyond_the_budget_is_not_begun() -> None:
    server = FakeServer()
    budget = Budget(requests=1000, tokens=10**6, seconds=100, rate=100)
    report = measured(server, "lifetime", budget=budget, waits_s=(30.0, 3600.0))
    assert server.clock.now() < 40
    assert report.courses[-1].stopped.startswith("the budget of 100 seconds has no room to wait")
    assert finding(report, "entry.lifetime_s").low == pytest.approx(30, abs=1)


@pytest.mark.parametrize(
    ("replicas", "routing", "caches"), [(1, "random", 1), (4, "turn", 4), (3, "turn", 3), (5, "sticky", 1)]
)
@pytest.mark.parametrize("tell", ["cached", ""])
def test_replicas_that_can_be_told_exactly(replicas: int, routing: str, caches: int, tell: str) -> None:
    server = FakeServer(replicas=replicas, routing=routing, tell=tell, noise_ms=2)
    report = measured(server, "replicas")
    assert finding(report, "replicas.caches").value == caches
    share = finding(report, "replicas.hit_share").value
    assert share == pytest.approx((12 - caches) / 11)


def test_replicas_behind_a_random_balancer_lie_within_the_bounds() -> None:
    inside = 0
    for seed in range(20):
        found = finding(
            measured(FakeServer(replicas=4, seed=seed, tell="cached"), "replicas"), "replicas.caches"
        )
        inside += (found.low or 0) <= 4 <= (found.high or 0)
    assert inside >= 17


@pytest.mark.parametrize(("routing", "low", "high"), [("random", 4, 4), ("sticky", 1, 1)])
def test_as_many_repeats_as_may_be_asked_for(routing: str, low: int, high: int) -> None:
    server = FakeServer(replicas=4, routing=routing, tell="cached")
    found = finding(measured(server, "replicas", longest=64, repeats=1000), "replicas.caches")
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize("items", [1, 7, 30])
def test_partitions_are_those_of_bell(items: int) -> None:
    """Stirling's numbers of a row sum to Bell's, which follow from one another by binomials."""
    bell = [1]
    for n in range(items):
        bell.append(sum(math.comb(n, k) * bell[k] for k in range(n + 1)))
    assert sum(_partitions(items, groups) for groups in range(items + 1)) == bell[items]


def test_every_request_is_marked_and_its_own() -> None:
    server = FakeServer()
    report = measured(server, "prefill", "alignment", "salt", "replicas")
    ids = [headers["X-Request-Id"] for _, _, headers in server.sent]
    assert all(identity.startswith(f"hitmap-canary-{report.run}-") for identity in ids)
    assert len(set(ids)) == len(ids) == report.requests
    assert all(headers["X-Hitmap-Canary"] == "1" for _, _, headers in server.sent)
    assert all(body["user"] == "hitmap-canary" for body, _ in server.generated)
    assert all(body["max_tokens"] == 1 and body["cache_salt"] for body, _ in server.generated)


class Arbitrary(FakeServer):
    """Tells any number of cached tokens for what it holds."""

    def _look(self, cache: Cache, key: Key) -> tuple[int, str]:
        cached, tier = super()._look(cache, key)
        return (self.random.randrange(1, cached + 1) if cached else 0), tier


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tokenizes", [True, False])
def test_cached_tokens_that_follow_nothing_give_no_unit(seed: int, tokenizes: bool) -> None:
    server = Arbitrary(law=Alignment(1), tell="cached", tokenizes=tokenizes, seed=seed)
    found = finding(measured(server, "alignment", longest=512), "alignment.unit")
    assert (found.value, found.low, found.high) == (None, None, None)
    assert "do not follow from what was sent" in found.detail or "no law of units" in found.detail


class Boastful(FakeServer):
    """Counts what cannot be in the first texts it is sent."""

    lies = 1

    def _generate(self, body: Mapping[str, Any]) -> Answer:
        told = super()._generate(body)
        if self.lies:
            self.lies -= 1
            return replace(told, told={**told.told, "prompt_tokens": 10**9})
        return told


def test_an_impossible_count_at_the_introduction_does_not_shorten_what_follows() -> None:
    server = Boastful(tokenizes=False, added=20)
    report = measured(server, "prefill", longest=512)
    lengths = {len(body["prompt"].split()) for body, _ in server.generated[1:]}
    assert lengths == {64, 174, 287, 399, 512}
    assert finding(report, "prefill.ms_per_token").value == pytest.approx(0.1)
    (note,) = report.notes
    assert note.startswith("counts that cannot be true came 1 times and were not used")


def test_more_cached_tokens_than_the_prompt_has_are_not_used() -> None:
    class More(FakeServer):
        def _look(self, cache: Cache, key: Key) -> tuple[int, str]:
            return 10 * len(key[1]), "device"

    report = measured(More(), "prefill")
    assert finding(report, "prefill.ms_per_token").value is None
    assert "cached tokens of a prompt of" in report.notes[0]
