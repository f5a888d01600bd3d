"""Stability of responses: the same, unlike each other, none kept."""

from __future__ import annotations

import random
from datetime import timedelta

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import given
from hypothesis import strategies as st

from analysis.heatmap.build import build
from analysis.heatmap.responses import PLACES, Responses, stability
from tests.analysis.heatmap.worlds import BLOCK, START, Prompt, put
from tests.conftest import Database

ALL = "2026-11-29T11:00/2026-11-29T14:00"
T = 0xAAAAAAAA << 32


def answer_with(client: Client, responses: list[str], key: str = "gen_ai.output.messages") -> None:
    """A span for each request, as a collector with capture `full` keeps it."""
    rows = [
        [START + timedelta(seconds=n), f"{n + 1:016x}", {key: text}]
        for n, text in enumerate(responses)
        if text
    ]
    client.insert("otel_traces", rows, column_names=["Timestamp", "SpanId", "SpanAttributes"])


def sentence(rng: random.Random) -> str:
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(300))


def test_alike_where_all_prompts_come_by_and_unlike_behind(db: Database) -> None:
    """Short prompts are answered alike, long ones each in its own way; half of the prompts are long."""
    rng = random.Random(1)
    put(db.client, [Prompt([1, 2] if n % 2 == 0 else [1, 2, 3, 4], T) for n in range(60)])
    answer_with(db.client, ["The same." if n % 2 == 0 else sentence(rng) for n in range(60)])
    cells = build(db.client, ALL).rows[0].cells
    assert cells[0].stability == pytest.approx(
        29 / 118, abs=0.03
    )  # of 60 * 59 pairs, 30 * 29 are of the same
    assert cells[0].stability == cells[1].stability
    assert cells[2].stability == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("text", ["yes", "Ja.", "日本語の答えはここにあります", "x" * 5000])
def test_the_same_response_is_stable_whatever_it_is(db: Database, text: str) -> None:
    put(db.client, [Prompt([1], T) for _ in range(5)])
    answer_with(db.client, [text] * 5, key="llm.output_messages.0.message.content")
    (cell,) = build(db.client, ALL).rows[0].cells
    assert cell.stability == pytest.approx(1.0)
    assert not cell.rewrite


def test_unstable_and_often_is_marked_though_it_is_reused(db: Database) -> None:
    rng = random.Random(2)
    put(db.client, [Prompt([1, 2], T) for _ in range(40)])
    assert build(db.client, ALL).marks == []
    answer_with(db.client, [sentence(rng) for _ in range(40)])
    found = build(db.client, ALL)
    (mark,) = found.marks
    assert (mark.start, mark.end) == (0, 2 * BLOCK)
    assert mark.stability is not None
    assert mark.stability < 0.4
    assert not any("no responses are kept" in warning for warning in found.warnings)


def test_none_is_kept(db: Database) -> None:
    put(db.client, [Prompt([1], T) for _ in range(3)])
    found = build(db.client, ALL)
    assert found.rows[0].cells[0].stability is None
    assert any("no responses are kept" in warning for warning in found.warnings)


def test_one_response_has_no_variance(db: Database) -> None:
    put(db.client, [Prompt([1], T) for _ in range(3)])
    answer_with(db.client, ["only one", "", ""])
    assert build(db.client, ALL).rows[0].cells[0].stability is None


@given(st.integers(0, 2**32), st.integers(2, 30))
def test_it_is_the_mean_cosine_of_two(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.random((n, PLACES))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    blocks = rng.integers(1, 4, n)
    found = Responses(np.full(n, 7, np.uint64), blocks, np.full(n, BLOCK), vectors, 1)
    told = stability(found, np.array([7], np.uint64), np.array([0, 16, 32, 48]))[0]
    for column in range(3):
        mine = vectors[blocks > column]
        if len(mine) < 2:
            assert np.isnan(told[column])
            continue
        cosines = mine @ mine.T
        assert told[column] == pytest.approx(cosines[~np.eye(len(mine), dtype=bool)].mean())
