"""The load against the real engine: what a clock costs, and what a trace's blocks become in a real prefix cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.serve import EngineServer
from hitmap.load import Plan, Summary, agents, mix, prompts, run
from tests.engine.serving.live import serving
from tests.hitmap.load.test_traces import call, session, write


@pytest.fixture(scope="module")
def live() -> Iterator[EngineServer]:
    with serving() as server:
        yield server


def mixed(live: EngineServer, clock: str, log: Path | None = None) -> Summary:
    live.engine.reset_prefix_cache()
    plan = mix.plan({"chat": 1, "rag": 1}, rate=20, arrival="uniform", seed=3, clock=clock)
    return run(plan.limited(count=30), live.url, log)


def test_a_clock_at_the_top_costs_the_shared_prefix(live: EngineServer) -> None:
    none, first, last = (mixed(live, clock) for clock in mix.CLOCKS)
    assert none.completed == first.completed == last.completed == 30
    assert none.cached_share is not None
    assert first.cached_share is not None
    assert last.cached_share is not None
    assert first.cached_share < 0.1
    assert none.cached_share > 0.4
    assert last.cached_share > 0.4


def test_tools_and_turns_are_understood(live: EngineServer, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    slow = mix.plan(mix.DEFAULT, rate=2, seed=3).limited(count=60)
    plan = Plan("quick", lambda: (replace(planned, due_s=planned.due_s / 20) for planned in slow))
    summary = run(plan, live.url, log)
    assert (summary.completed, summary.failed, summary.not_sent) == (60, {}, {})
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert summary.prompt_tokens == sum(record["usage"]["prompt_tokens"] for record in records)
    assert all(record["response_id"].endswith(record["client_request_id"]) for record in records)
    assert {len(record["body"]["messages"]) for record in records} >= {
        2,
        4,
        6,
        8,
    }  # turns with what came before


def test_a_traces_blocks_are_blocks_of_the_cache(live: EngineServer, tmp_path: Path) -> None:
    """Blocks of 64 tokens, scaled to 32, are two of the engine's; ids that return are found there, and no others."""
    live.engine.reset_prefix_cache()
    calls = [
        call(0, 200, 6, 1, 2, 3),  # nothing is known
        call(0, 264, 6, 1, 2, 3, 4),  # 1 2 3 are
        call(0, 264, 6, 1, 2, 5, 6),  # 1 2
        call(0, 130, 6, 7, 2),  # nothing: what stands before 2 is another
    ]
    path = write(tmp_path / "sessions.jsonl", session("one", *calls))
    log = tmp_path / "log.jsonl"
    summary = run(agents.plan(path, prompts(live.url), scale=0.5), live.url, log)
    assert summary.completed == 4
    usage = [json.loads(line)["usage"] for line in log.read_text().splitlines()]
    assert [told["prompt_tokens"] for told in usage] == [100, 132, 132, 65]
    assert [told["completion_tokens"] for told in usage] == [3, 3, 3, 3]
    assert [told["prompt_tokens_details"]["cached_tokens"] for told in usage] == [0, 96, 64, 0]
