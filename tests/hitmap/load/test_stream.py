"""Event streams as they come over a wire, and answers in the words of several servers."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitmap.load.client import Answer, events
from hitmap.load.summary import quantiles


@given(
    texts=st.lists(st.text(max_size=20), max_size=8),
    end=st.sampled_from(["\n\n", "\r\n\r\n"]),
    cuts=st.lists(st.integers(0, 400), max_size=20),
)
def test_events_are_whole_however_they_are_cut(texts: list[str], end: str, cuts: list[int]) -> None:
    stream = "".join(f": comment{end}data: {json.dumps(text)}{end}" for text in texts).encode()
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})

    async def pieces() -> AsyncIterator[bytes]:
        for start, stop in itertools.pairwise(edges):
            yield stream[start:stop]

    async def read() -> list[str]:
        return [json.loads(data) async for data in events(pieces())]

    assert asyncio.run(read()) == texts


def test_an_endless_event_is_refused() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)

    async def read() -> list[bytes]:
        return [data async for data in events(pieces())]

    with pytest.raises(ValueError, match="longer than 16 MiB"):
        asyncio.run(read())


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        ({"role": "assistant", "content": ""}, ""),
        ({"content": "Yes"}, "Yes"),
        ({"reasoning_content": "Hm"}, "Hm"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, "f{}"),
        ({"content": None}, ""),
    ],
)
def test_the_first_token_is_the_first_text(delta: dict[str, Any], text: str) -> None:
    answer = Answer(1)
    answer.add({"id": "x", "choices": [{"delta": delta, "finish_reason": None}]})
    assert answer.text == text
    assert (answer.first_ns is not None) == bool(text)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_quantiles_are_in_order_and_within_the_values(values: list[float]) -> None:
    found = quantiles(values)
    assert found
    assert min(values) <= found.p50 <= found.p95 <= found.p99 <= found.max == max(values)
    assert found.count == len(values)


def test_quantiles_of_known_values() -> None:
    found = quantiles([float(value) for value in range(101)])
    assert found
    assert (found.p50, found.p95, found.p99, found.max) == (50, 95, 99, 100)
    assert quantiles([]) is None
