"""Which earlier request is named, with chains as collectors make them."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from collector.chains.memory import ChainMemory
from collector.chains.prompt import Prompt
from collector.chains.row import ChainMaker
from tests.analysis.misses.build import BLOCK, HASHER
from tests.analysis.misses.stored_world import START, Row, insert_all, keyed

TURNS, APART_S = 14, 20
NEW = 173  # tokens of a turn


def conversation(turns_a_minute: int, seed: int) -> dict[str, list[Row]]:
    """A conversation behind a clock in the system prompt, told by the collector's own code."""
    rng = np.random.default_rng(seed)
    head, body = rng.integers(0, 50_000, 24).tolist(), rng.integers(0, 50_000, NEW * TURNS).tolist()
    maker = ChainMaker(HASHER, ChainMemory(), BLOCK)
    tables: dict[str, list[Row]] = {"requests": [], "request_chains": []}
    for turn in range(TURNS):
        at = START + timedelta(seconds=APART_S * turn)
        clock = [60_000 + turn // turns_a_minute] * 4
        ids = [*head, *clock, *body[: NEW * (turn + 1)]]
        told = Prompt(
            time=at.timestamp(), seconds=1.0, server="a", model="m", request_id=f"r{turn}", counted=len(ids)
        )
        row = json.loads(maker.entry(told, ids, "tokenizer", "").payload)
        tables["request_chains"].append({**row, "time": at})
        tables["requests"].append({
            "time": at + timedelta(milliseconds=3), "server": "a", "model": "m", "dialect": "vllm",
            "request_id": f"r{turn}", "span_id": turn + 1, "prompt_tokens": len(ids), "cached_tokens": 0,
        })  # fmt: skip
    return tables


@pytest.mark.parametrize("turns_a_minute", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_turn_before_is_named(store: Client, turns_a_minute: int, seed: int) -> None:
    """It has nearly all that stood behind another clock, whoever sent it first."""
    insert_all(store, conversation(turns_a_minute, seed))
    keyed(store)
    for turn in range(turns_a_minute, TURNS, turns_a_minute):
        told = re.fullmatch(
            r"(?:nearly all of )?tokens (\d+) to ([\d,]+) stood in (r\d+) \(([\d]+) s before\), behind something else"
            r"; the prompt differs from all earlier ones from token 24 on",
            found := explain(store, f"r{turn}").earlier,
        )
        assert told, found
        begin, end = (int(told[number].replace(",", "")) for number in (1, 2))
        assert told.group(3, 4) == (f"r{turn - 1}", str(APART_S))
        assert 28 <= begin < 28 + 64
        assert 28 + NEW * turn - 64 < end <= 28 + NEW * turn + 64
