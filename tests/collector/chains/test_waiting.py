"""Requests come out in the order in which they were sent, as far as the log allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.chains import waiting
from collector.chains.prompt import Prompt
from collector.chains.waiting import Waiting
from tests.collector.chains.support import prompt


def drain(held: Waiting, now_s: float, *, at_once: bool = False) -> list[Prompt]:
    found = []
    while one := held.first(now_s, at_once=at_once):
        held.drop()
        found.append(one)
    return found


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), min_size=1, max_size=40))
def test_whoever_waits_for_the_longest_gets_the_order(requests: list[tuple[int, int]]) -> None:
    """Lines come when requests end; a clock that is the log's own, so that only the rule is tested."""
    held, out = Waiting(), []
    longest = max(length for _, length in requests)
    held.put(prompt(time=-1.0, seconds=longest / 10), -1e9)  # such a one was seen
    for sent, length in sorted(requests, key=lambda one: sum(one)):
        now_s = (sent + length) / 10
        held.put(prompt(time=sent / 10, seconds=length / 10), now_s)
        out += drain(held, now_s - 1e-6)
    out += drain(held, 0.0, at_once=True)
    assert [one.time for one in out] == sorted(one.time for one in out)
    assert len(out) == len(requests) + 1
    assert held.late == 0


def test_all_wait_for_as_long_as_the_longest_took() -> None:
    """One of ten seconds was seen: another such may have been sent before this short one, and still be running."""
    held = Waiting()
    held.put(prompt(time=0.0, seconds=10.0), 10.0)
    assert len(drain(held, 20.0)) == 1
    held.put(prompt(time=21.0, seconds=1.0), 22.0)
    assert drain(held, 31.9) == []
    assert [one.time for one in drain(held, 32.0)] == [21.0]


def test_one_that_comes_too_late_is_counted() -> None:
    held = Waiting()
    held.put(prompt(time=5.0, seconds=1.0), 6.0)
    assert drain(held, 6.5) == []
    assert [one.time for one in drain(held, 7.0)] == [5.0]
    held.put(prompt(time=4.0, seconds=1.0), 8.0)
    assert held.late == 1


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 3)
    held = Waiting()
    for number in range(10):
        held.put(prompt(time=float(number), seconds=9.0, text="x" * 10), 0.0)
        drain(held, 0.0)
    assert len(held) == 3
    monkeypatch.setattr(waiting, "MAX_CHARACTERS", 15)
    assert [one.time for one in drain(held, 0.0)] == [7.0, 8.0]
