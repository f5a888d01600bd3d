"""Small random worlds: few tokens, so that prompts share much, and times that meet."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from analysis.prefix_replay.model import Ragged, Requests

_TOKENS = st.lists(st.integers(0, 1), max_size=14)


@st.composite
def worlds(draw: st.DrawFn, *, times: bool = True, isolated: bool = True) -> Requests:
    """Up to 12 requests. times: with or without points in time; some are missing where there are any."""
    n = draw(st.integers(0, 12))
    prompts = [draw(_TOKENS) for _ in range(n)]
    for row in range(1, n):  # half of them go on where an earlier one ended
        if draw(st.booleans()):
            prompts[row] = (prompts[draw(st.integers(0, row - 1))] + prompts[row])[:20]
    columns: dict[str, Any] = {}
    if times and draw(st.booleans()):
        columns |= _times(draw, n)
    if isolated and draw(st.booleans()):
        columns["isolation"] = np.array([draw(st.integers(0, 1)) for _ in range(n)], np.uint64)
    if draw(st.booleans()):
        columns["reads_off"] = np.array([draw(st.booleans()) for _ in range(n)], np.bool_)
    if draw(st.booleans()):
        columns["replies"] = ragged([draw(st.lists(st.integers(0, 1), max_size=9)) for _ in range(n)])
    if draw(st.booleans()):
        columns["breakpoints"] = ragged([_places(draw, len(prompt)) for prompt in prompts])
        if draw(st.booleans()):
            columns["parts"] = ragged([_places(draw, len(prompt)) for prompt in prompts])
    return requests(prompts, **columns)


def _times(draw: st.DrawFn, n: int) -> dict[str, Any]:
    def some(least: list[float], missing: bool) -> list[float]:
        return [
            np.nan if missing and draw(st.integers(0, 5)) == 0 else at + draw(st.integers(0, 6)) / 2
            for at in least
        ]

    missing = draw(st.booleans())
    sent = np.cumsum([0.0, *(draw(st.integers(0, 3)) for _ in range(n - 1))][:n]).tolist()
    first = some(sent, missing)
    done = some([s if np.isnan(f) else f for s, f in zip(sent, first, strict=True)], missing)
    sent = [np.nan if missing and draw(st.integers(0, 5)) == 0 else at for at in sent]
    names = ("sent", "first_token", "done")
    return {
        name: np.array(column, np.float64) for name, column in zip(names, (sent, first, done), strict=True)
    }


def _places(draw: st.DrawFn, length: int) -> list[int]:
    return sorted(draw(st.sets(st.integers(1, length), max_size=5))) if length else []


def ragged(lists: list[list[int]], kind: type[np.generic] = np.int64) -> Ragged:
    """Lists one after the other."""
    values = np.array([one for each in lists for one in each], kind)
    return Ragged(values, np.append(0, np.cumsum([len(each) for each in lists])).astype(np.int64))


def requests(prompts: list[list[int]], **columns: Any) -> Requests:
    """Requests of these prompts."""
    tokens = ragged(prompts, np.uint32)
    return Requests(tokens.values, tokens.offsets, **columns)


def lists(ragged: Ragged | None, n: int) -> list[list[int]]:
    """The lists again."""
    if ragged is None:
        return [[] for _ in range(n)]
    return [ragged.values[ragged.offsets[i] : ragged.offsets[i + 1]].tolist() for i in range(n)]
