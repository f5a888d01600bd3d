"""The ladder on recorded vLLM servers: what it estimates without usage, and the causes it finds with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD, Chains, Ladder, Sent
from tests.analysis.misses.build import parts
from tests.analysis.misses.recorded import BLOCK, Recorded, recorded

NOTHING = Sent(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))


@pytest.fixture(scope="module")
def one(run1: Path) -> Recorded:
    return recorded(run1)


@pytest.fixture(scope="module")
def three(run3: Path) -> Recorded:
    return recorded(run3)


def ladder(run: Recorded, chains: Chains) -> Ladder:
    return climb(chains, run.events, NOTHING, NOTHING, {})


def by_phase(run: Recorded, climbed: Ladder) -> Mapping[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for row, phase in enumerate(run.phases):
        found.setdefault(phase.split("_")[0] if phase.startswith("multi") else phase, Counter()).update(
            parts(climbed, row)
        )
    return found


def off(run: Recorded, climbed: Ladder) -> dict[str, int]:
    """By how many tokens the estimate differs from usage, where it does."""
    told = run.usage != NOT_TOLD
    less = climbed.served[:, 0] - run.usage
    return {run.names[row]: int(less[row]) for row in np.flatnonzero(told & (less != 0))}


def test_hits_estimated_from_prompts_and_events_alone_are_those_of_usage(one: Recorded) -> None:
    """All 173, for 56,480 tokens; the two that were aborted have no usage, and the server's own counters have 768."""
    climbed = ladder(one, one.untold)
    assert (one.usage != NOT_TOLD).sum() == 173
    assert off(one, climbed) == {}
    assert climbed.served[one.usage == NOT_TOLD, 0].sum() == 768
    assert climbed.derived.all()
    # part of a block that only prompts of other salts share was not held: which of them had it is not known
    assert {row for row, phase in enumerate(one.phases) if phase == "salt"} >= {
        *np.flatnonzero(climbed.unknown.any(axis=1))
    }
    assert climbed.unknown.sum() < 100


def test_without_spans_the_clients_times_do(one: Recorded) -> None:
    """Nothing tells when the server began, as where only a request log is at hand."""
    chains = replace(one.untold, began=one.untold.arrived)
    assert off(one, ladder(one, chains)) == {}


def test_with_usage_the_sums_hold_and_each_phase_has_the_cause_it_was_made_for(one: Recorded) -> None:
    climbed = ladder(one, one.chains)
    told = one.usage != NOT_TOLD
    assert (climbed.served[told, 0] == one.usage[told]).all()
    assert (climbed.served[:, -1] == one.chains.prompt).all()
    assert (np.diff(climbed.served, axis=1) >= 0).all()
    # part of a block that only prompts of other salts share was not held: which of them had it is not known
    assert {row for row, phase in enumerate(one.phases) if phase == "salt"} >= {
        *np.flatnonzero(climbed.unknown.any(axis=1))
    }
    assert climbed.unknown.sum() < 100
    phases = by_phase(one, climbed)
    computed = {phase: told.total() - told["actual"] for phase, told in phases.items()}

    assert phases["tsfront"]["changed"] > 0.9 * computed["tsfront"]
    assert phases["tsfront"]["actual"] == 0
    assert phases["mixed_ts"]["changed"] > 0.9 * computed["mixed_ts"]
    assert phases["salt"]["isolated"] + phases["salt"]["capacity"] > 0.9 * computed["salt"]
    assert phases["salt"]["isolated"] >= 640
    assert phases["toolshuffle"]["changed"] > 0.8 * computed["toolshuffle"]
    assert phases["long"]["capacity"] > 0
    assert {phase for phase, told in phases.items() if told["isolated"]} <= {"salt", "mixed_shared"}


def test_only_the_first_prompt_of_a_salt_is_isolated(one: Recorded) -> None:
    climbed = ladder(one, one.chains)
    seen: set[int] = set()
    for row in (row for row, phase in enumerate(one.phases) if phase == "salt"):
        salt, told = int(one.chains.isolation[row]), parts(climbed, row)
        assert ("isolated" in told) == (salt not in seen)
        seen.add(salt)
    assert len(seen) == 2


def test_a_reset_of_the_cache_is_a_clear(one: Recorded) -> None:
    """The seven requests after it: what the first of each kind has to compute was cleared, and nothing before it."""
    climbed = ladder(one, one.chains)
    reset = one.events.time[one.events.action == 3]
    assert len(reset) == 1
    cleared = climbed.evicted[:, 2]
    assert cleared.sum() > 10 * BLOCK
    assert (one.chains.first_token[cleared > 0] >= reset[0] - 1_000_000).all()


def test_a_tier_that_tells_no_events_is_seen_in_usage_only(three: Recorded) -> None:
    """The last four were served by a connector that publishes nothing: without usage what it served was lost to the
    reset, or to what the device never stored."""
    without = ladder(three, three.untold)
    assert off(three, without) == {
        "r3-external_hit-0009": -352,
        "r3-external_hit-0010": -32,
        "r3-external_hit-0011": -32,
        "r3-external_hit-0012": -32,
    }
    phases = by_phase(three, without)
    assert phases["external_hit"]["clear"] > 352
    with_usage = by_phase(three, ladder(three, three.chains))
    assert with_usage["external_hit"]["actual"] == 1408
    assert set(with_usage["external_hit"]) == {"actual", "unaligned"}
    assert with_usage["local_hit"] == Counter({"actual": 1408, "unaligned": 58})
