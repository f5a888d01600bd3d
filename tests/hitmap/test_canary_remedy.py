"""What `hitmap canary` says to give where its budget was too small."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.canary import MEASURES, Budget, Options, Report, rehearse
from collector.canary.budget import Part
from hitmap.commands._canary_remedy import Remedy
from tests.collector.canary.fakes import FakeServer, measured

CLOSED = [name for name in MEASURES if name != "tiers"]
GENEROUS = Budget(requests=10**9, tokens=10**9, seconds=1e9, rate=5)


def broken(report: Report, part: Part) -> list[str]:
    return [course.measure for course in report.courses if course.spent == part]


def given_options(words: str) -> dict[str, int]:
    """The options with a figure in a remedy."""
    return {name: int(figure) for name, figure in re.findall(r"--([a-z-]+) (\d+)", words)}


@example(
    {"replicas", "salt", "prefill", "alignment"}, "seconds", 1.0, 64, 1.0
)  # just what it needs, and no more
@settings(max_examples=60, deadline=None)
@given(
    measures=st.sets(st.sampled_from(CLOSED), min_size=1),
    part=st.sampled_from(get_args(Part)),
    room=st.floats(0.02, 1.5),
    longest=st.integers(64, 4096),
    waits=st.floats(1, 100),
)
def test_whoever_follows_it_comes_to_the_end(
    measures: set[str], part: Part, room: float, longest: int, waits: float
) -> None:
    asked, options = (
        [name for name in CLOSED if name in measures],
        Options(longest, waits_s=(waits,), repeats=4),
    )
    whole = rehearse(asked, options, GENEROUS)
    need: float = getattr(whole, part)
    budget = replace(GENEROUS, **{part: max(12, type(need)(need * room))})
    stopped = broken(rehearse(asked, options, budget), part)
    if not stopped:
        return
    told = given_options(Remedy(asked, options, budget).of(part, stopped))
    if "longest" in told:
        halves = [longest >> times for times in range(7)]
        before = halves[halves.index(told["longest"]) - 1]
        assert 64 <= told["longest"] < before
        assert not broken(rehearse(asked, replace(options, longest=told["longest"]), budget), part)
        assert broken(rehearse(asked, replace(options, longest=before), budget), part), (
            "the longest that fits"
        )
    larger = replace(budget, **{part: told[f"max-{part}"]})
    assert not broken(rehearse(asked, options, larger), part)
    assert told[f"max-{part}"] <= 1.1 * need + 2.1, "and no more than that takes"


def test_without_room_for_any_prompt_only_the_budget_helps() -> None:
    words = Remedy(["salt"], Options(2048), Budget(tokens=100)).of("tokens", ["salt"])
    assert words == "--max-tokens 19000"  # 9 of the introduction and 9 of 2,049 each


def test_prompts_too_short_for_hosted_apis_are_said_to_be() -> None:
    remedy = Remedy(["salt"], Options(4096), Budget(tokens=10_000))
    assert remedy.of("tokens", ["salt"]) == "--longest 1024 (about 9,234 tokens in all) or --max-tokens 37000"
    shorter = replace(remedy, budget=Budget(tokens=9_000)).of("tokens", ["salt"])
    assert shorter.startswith(
        "--longest 512 (about 4,626 tokens in all; hosted APIs reuse nothing below 1,024) or"
    )


def test_a_slow_rate_is_named_beside_the_time_it_takes() -> None:
    remedy = Remedy(["salt"], Options(), Budget(seconds=5, rate=0.5))  # twelve requests, two seconds apart
    assert (
        remedy.of("seconds", ["salt"])
        == "--max-seconds 23 (the server's own time comes on top) or a higher --rate"
    )


@pytest.mark.parametrize("part", get_args(Part))
def test_a_server_that_is_dearer_than_a_rehearsal_gets_no_figure(part: Part) -> None:
    assert f"a larger --max-{part}" in Remedy(["salt"], Options(64), Budget()).of(part, ["salt"])


def test_tiers_go_as_far_as_the_budget_lets_them() -> None:
    budget = Budget(requests=10_000, tokens=60_000, seconds=1e6, rate=1000)
    asked, options = ["prefill", "tiers"], Options(longest=512)
    report = measured(FakeServer(), *asked, budget=budget, longest=512)
    assert broken(report, "tokens") == ["tiers"]
    remedy = Remedy(asked, options, budget)
    assert (
        remedy.of("tokens", ["tiers"]) == "a larger --max-tokens, with which tiers fills more of the device"
    )
    little = replace(remedy, budget=replace(budget, tokens=2_000))
    assert little.of("tokens", ["prefill", "tiers"]).endswith("or --max-tokens 7800, and more for tiers")
