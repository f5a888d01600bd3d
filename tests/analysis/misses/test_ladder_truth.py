"""What the ladder tells of a server that can be, against what happened in it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.misses.model import NOT_TOLD, Action
from tests.analysis.misses.build import World, parts
from tests.analysis.misses.served_worlds import GAVE_WAY, here_together, served_worlds

_LOST = ("capacity", "expiry", "clear", "restart")


@pytest.mark.parametrize("usage", [True, False], ids=["usage", "no-usage"])
@settings(max_examples=200)
@given(data=st.data())
def test_where_no_message_is_lost_every_token_has_its_true_cause(data: st.DataObject, usage: bool) -> None:
    """But a copy under another salt that gave way to the request: it was there, and was not any more."""
    world, truth = data.draw(served_worlds(usage=usage))
    ladder = world.climb()
    for row, true in enumerate(truth):
        told = Counter(here_together(parts(ladder, row)))
        moved = true["isolated"] - told["isolated"]
        assert 0 <= moved <= true[GAVE_WAY], (row, told, true)
        assert _summed(told, moved > 0) == _summed(true, moved > 0), (row, told, true)


def _summed(parts: Counter[str], lost: bool) -> dict[str, int]:
    """Without those that are none; lost: what was isolated and what was lost are one."""
    summed: Counter[str] = Counter()
    for part, tokens in parts.items():
        if part != GAVE_WAY:
            summed["lost" if lost and part in (*_LOST, "isolated") else part] += tokens
    return dict(+summed)


@pytest.mark.parametrize("action", [Action.CLEARED, Action.RESTART])
@pytest.mark.parametrize("over", [None, NOT_TOLD], ids=["told", "untold"])
def test_what_is_stored_after_a_clear_is_of_who_began_after_it(action: Action, over: int | None) -> None:
    """The same prompt was asked for a moment before, and served; who came after the clear is not served by itself."""
    world = World().served("AB", 1_000)
    world.ask("AB", 2_000, more=1, first=2_010 if over is None else over)
    world.mark(action, 2_020).ask("AB", 2_025, began=2_030, more=1, first=2_040 if over is None else over)
    ladder = world.store("AB", 2_040).climb()
    assert parts(ladder, 1) == {"actual": 32, "cold": 1}
    assert parts(ladder, 2) == {"clear" if action == Action.CLEARED else "restart": 32, "cold": 1}


def test_who_tells_no_first_token_is_computed_until_its_last_block_is_stored() -> None:
    world = World().ask("ABC", 1_000, cached=0, first=NOT_TOLD).store("A", 1_020)
    world.ask("ABC", 1_020, cached=16, first=NOT_TOLD).store("ABC", 1_040, begin=1)
    assert here_together(parts(world.climb(), 1)) == {"actual": 16, "here": 32}
