"""What was sent before, in tokens, against the same written plainly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.pricing.at_most import RUN, sent_before

logs = st.lists(st.lists(st.integers(0, 1), max_size=40), max_size=8)


def plainly(log: list[list[int]], served: list[int]) -> list[int]:
    told, known = [], set[tuple[int, ...]]()
    for tokens, begin in zip(log, served, strict=True):
        runs = {at: tuple(tokens[at : at + RUN]) for at in range(len(tokens) - RUN + 1)}
        own = {at: run for at, run in runs.items() if at >= begin - RUN + 1}
        again = {one for at, run in own.items() if run in known for one in range(at, at + RUN)}
        told.append(sum(one >= begin for one in again))
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
    assert sent_before(log, np.zeros(3, np.int64)).tolist() == [0, 100, 50]
