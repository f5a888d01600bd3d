"""The requests of recorded servers, replayed from their own log: no KV event, no span, nothing but prompts and times.

What is known of the servers is how they were started: vLLM with 260 blocks of 32 tokens, of which it keeps one, 2,048
tokens and eight requests a step; llama.cpp with four slots and 8 MiB for prompts put aside, at 1,038 bytes a token, as
its log has it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import BlockRule, SlotRule
from tests.analysis.prefix_replay.captured import Captured, as_llama_cpp, captured, chosen

SHARED = Path(__file__).parents[4] / "shared" / "captures" / "llamacpp-b11434"
VLLM = BlockRule(block_size=32, capacity=259, chunk=2048, max_num_seqs=8)
LLAMA_CPP = SlotRule(slots=4, host_tokens=8 * 2**20 // 1038)


@pytest.fixture(scope="module")
def main_mix(run1: Path) -> Captured:
    """All eight phases; what came after a reset of the cache is left out."""
    log = captured(run1 / "requests.jsonl", run1.parent / "model")
    return chosen(log, [row for row, name in enumerate(log.names) if not name.startswith("r1post")])


def test_vllm_within_a_per_cent_over_all_phases(main_mix: Captured) -> None:
    served = replay(main_mix.requests, VLLM)
    found, told = main_mix.tokens(served)
    off = main_mix.off(served)
    assert told == 54_560
    assert abs(found - told) < 0.01 * told
    assert len(off) <= 3  # of 166 with usage
    assert {phase.split("_")[0] for phase, *_ in off.values()} <= {"long", "multiturn"}


def test_vllm_to_the_token_for_requests_that_had_the_server_to_themselves(main_mix: Captured) -> None:
    off = main_mix.off(replay(main_mix.requests, VLLM))
    alone = np.flatnonzero(main_mix.alone & (main_mix.usage >= 0))
    assert len(alone) >= 9
    assert not {*alone.tolist()} & {*off}


def test_vllm_without_its_limit_would_have_served_more(main_mix: Captured) -> None:
    """So the limit is what the figures above rest on."""
    found, told = main_mix.tokens(replay(main_mix.requests, replace(VLLM, capacity=None)))
    assert found > 1.04 * told


def test_vllm_after_its_cache_was_reset(run1: Path, run3: Path) -> None:
    log = captured(run1 / "requests.jsonl", run1.parent / "model")
    after = chosen(log, [row for row, name in enumerate(log.names) if name.startswith("r1post")])
    assert after.usage.tolist()[0] == 0
    assert after.off(replay(after.requests, VLLM)) == {}

    log = captured(run3 / "requests.jsonl", run3.parent / "model")
    before = chosen(log, [row for row, phase in enumerate(log.phases) if "ext" not in phase])
    assert before.usage.sum() > 0
    assert before.off(replay(before.requests, replace(VLLM, capacity=139))) == {}


@pytest.fixture(scope="module")
def model(run1: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not SHARED.exists():
        pytest.skip(
            "../shared/captures is not there: the recordings in tests/data have no prompts of llama.cpp"
        )
    return as_llama_cpp(run1.parent / "model", tmp_path_factory.mktemp("model"))


def test_llama_cpp_to_the_token_without_host_memory(model: Path) -> None:
    log = captured(SHARED / "run_slotsdebug" / "requests.jsonl", model)
    one = replace(log.requests, isolation=None)  # it knows no salts
    assert log.usage.sum() == 1_768
    assert log.off(replay(one, replace(LLAMA_CPP, host_tokens=0))) == {}


def test_llama_cpp_within_a_per_cent_in_the_order_of_its_tasks(model: Path) -> None:
    """With clients beside each other it took some in another order than they were sent; its log tells which."""
    log = captured(SHARED / "run_tiny" / "requests.jsonl", model)
    tasks = _tasks(log, (SHARED / "run_tiny" / "server.log").read_text())
    ordered = chosen(log, tasks)
    requests = replace(ordered.requests, isolation=None)
    found, told = ordered.tokens(replay(requests, LLAMA_CPP))
    assert told == 54_484
    assert abs(found - told) < 0.01 * told
    for other in (0, None):  # and it is the host's memory that makes it so
        found, _ = ordered.tokens(replay(requests, replace(LLAMA_CPP, host_tokens=other)))
        assert abs(found - told) > 0.04 * told


def _tasks(log: Captured, text: str) -> list[int]:
    """Rows in the order in which the server began on them: of those sent next, the first one of that length."""
    tokens = {
        int(task): int(n) for task, n in re.findall(r"task (\d+) \| new prompt.*task\.n_tokens = (\d+)", text)
    }
    left, rows = [*range(log.requests.n)], []
    for task in map(int, re.findall(r"task (\d+) \| processing task", text)):
        row = next((row for row in left[:8] if log.requests.lengths[row] == tokens.get(task)), None)
        if row is not None:  # two at the end came from elsewhere
            left.remove(row)
            rows.append(row)
    assert not left
    return rows
