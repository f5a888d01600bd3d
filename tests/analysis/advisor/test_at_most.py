"""What was sent before, in tokens, against the same written plainly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.pricing.at_most import RUN, sent_before

logs = st.lists(st.lists(st.integers(0, 1), max_size=40), max_size=8)


def plainly(log: list[list[int]], served: list[int]) -> list[int]:
    told, known = [], set[tuple[int, ...]]()
    for tokens, begin in zip(log, served, strict=True):
        runs = {at: tuple(tokens[at : at + RUN]) for at in range(len(tokens) - RUN + 1)}
        own = {at: run for at, run in runs.items() if at >= begin - RUN + 1}
        again = sum(run in known for run in own.values())
        told.append((len(tokens) - begin) * again // max(1, len(own)))
        known.update(own.values())
    return told


@given(logs, st.data())
def test_runs_of_earlier_requests_are_found(log: list[list[int]], data: st.DataObject) -> None:
    served = [data.draw(st.integers(0, len(tokens))) for tokens in log]
    arrays = [np.array(tokens, np.uint32) for tokens in log]
    assert sent_before(arrays, np.array(served, np.int64)).tolist() == plainly(log, served)


def test_what_is_asked_for_the_first_time_was_not_sent_before() -> None:
    head, question, other = np.arange(100), np.arange(200, 250), np.arange(300, 350)
    log = [
        np.concatenate(parts).astype(np.uint32) for parts in ((head, question), (other, head), (question,))
    ]
    assert sent_before(log, np.zeros(3, np.int64)).tolist() == [0, 150 * 93 // 143, 50]


def test_of_many_tokens_some_runs_tell_how_many() -> None:
    chance = np.random.default_rng(0)
    shared = chance.integers(0, 50_000, 600)
    log = [np.concatenate((chance.integers(0, 50_000, 400), shared)).astype(np.uint32) for _ in range(200)]
    none = np.zeros(200, np.int64)
    told = sent_before(log, none, most=20_000)  # 60 of the 593 runs that all share, give or take 7
    assert told[1:].mean() == pytest.approx(sent_before(log, none)[1:].mean(), rel=0.15)
