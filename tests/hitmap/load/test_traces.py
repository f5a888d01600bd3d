"""Traces of others: times, lengths and the reuse of blocks are theirs, whatever text stands for them."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UsageError, UserError
from hitmap.load import agents, azure, mooncake, prompts
from hitmap.load.blocks import Part, TextPrompts, TokenPrompts, scaled, split
from hitmap.load.plan import Plan
from tests.conftest import DATA
from tests.hitmap.load.server import LlmServer

TRACES = DATA.parents[2] / "shared" / "traces"
TOKENS = TokenPrompts(range(1000, 1400))
IDS = st.lists(st.integers(0, 200_000), max_size=8)


def trace(name: str) -> Path:
    if not (path := TRACES / name).exists():
        pytest.skip(f"the trace {path.name} is not beside this checkout: data of others is not in it")
    return path


@given(ids=IDS, others=IDS, size=st.sampled_from([16, 64, 512]))
def test_equal_ids_give_equal_tokens_and_others_differ(ids: list[int], others: list[int], size: int) -> None:
    def blocks(ids: Sequence[int]) -> list[tuple[int, ...]]:
        prompt = TOKENS.prompt([Part("t", block, size) for block in ids])
        return [tuple(prompt[start : start + size]) for start in range(0, len(prompt), size)]

    for block, tokens in zip(ids, blocks(ids), strict=True):
        for other, others_tokens in zip(others, blocks(others), strict=True):
            assert (block == other) == (tokens == others_tokens)
            if block != other:  # at once: smaller blocks of a server share nothing either
                assert tokens[:16] != others_tokens[:16]


@given(block=st.integers(0, 2**32), tokens=st.integers(1, 600), more=st.integers(0, 600))
def test_part_of_a_block_is_its_begin(block: int, tokens: int, more: int) -> None:
    part, whole = (TOKENS.prompt([Part("t", block, count)]) for count in (tokens, tokens + more))
    assert whole[:tokens] == part
    assert len(whole) == tokens + more


def test_the_seed_and_the_scope_make_other_blocks() -> None:
    def made(seed: int, scope: str) -> list[int]:
        return TokenPrompts(range(400), seed).prompt([Part(scope, 5, 64)])

    assert made(0, "a") == made(0, "a")
    assert made(0, "a") != made(0, "b")
    assert made(0, "a") != made(1, "a")


def test_text_has_equal_words_for_equal_ids() -> None:
    text = TextPrompts()
    shared, other = [Part("t", 1, 64), Part("t", 2, 64)], [Part("t", 1, 64), Part("t", 3, 64)]
    one, two = text.prompt(shared).split(), text.prompt(other).split()
    assert one[:49] == two[:49]
    assert one[49] != two[49]
    assert len(one) == 98  # at 1.3 tokens a word


@given(
    ids=IDS,
    tokens=st.integers(0, 6000),
    size=st.sampled_from([32, 64, 512, 1024]),
)
def test_a_prompt_has_the_length_of_the_trace(ids: list[int], tokens: int, size: int) -> None:
    parts = split("t", ids, 512, size, tokens, 7)
    assert sum(part.tokens for part in parts) == max(1, tokens * size // 512)
    known = [part for part in parts if part.scope == "t"]
    assert [part.number for part in known] == ids[: len(known)]
    assert len(parts) - len(known) <= 1
    assert sum(part.tokens == size for part in known) == min(len(ids), tokens // 512)  # full where it was


def test_blocks_too_small_to_tell_apart_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--scale-tokens 0.001 .* 0.0078125 is the least here"):
        scaled(512, 0.001)


def write(path: Path, *lines: object) -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "wt") as file:
        file.write(text)
    return path


def request(timestamp: int, tokens: int, output: int, *ids: int) -> dict[str, object]:
    return {"timestamp": timestamp, "input_length": tokens, "output_length": output, "hash_ids": ids}


def sizes(plan: Plan) -> list[tuple[float, int, int]]:
    bodies = [(planned.due_s, planned.body(())) for planned in plan]
    return [(due_s, len(body["prompt"]), body["max_tokens"]) for due_s, body in bodies]


def test_a_mooncake_trace(tmp_path: Path) -> None:
    lines = [request(3000, 1100, 30, 0, 1, 2), request(1000, 1200, 0, 0, 1, 3), request(5000, 600, 8, 4, 5)]
    path = write(tmp_path / "trace.jsonl.gz", *lines)
    assert sizes(mooncake.plan(path, TOKENS)) == [(0.0, 1200, 1), (2.0, 1100, 30), (4.0, 600, 8)]
    assert sizes(mooncake.plan(path, TOKENS, speed=2, scale=0.25)) == [(0, 300, 1), (1, 275, 8), (2, 150, 2)]
    bodies = [planned.body(()) for planned in mooncake.plan(path, TOKENS)]
    first, second, third = (body["prompt"] for body in bodies)
    assert first[:1024] == second[:1024]
    assert first[1024:1040] != second[1024:1040]
    assert third[:16] != first[:16]
    assert all(body["ignore_eos"] and body["temperature"] == 0 for body in bodies)


def blocks_of(plan: Plan, size: int) -> tuple[int, int]:
    """All and different block prefixes: what a cache that holds everything is asked for and must compute."""
    seen, count = set(), 0
    for planned in plan:
        prompt, chain = planned.body(())["prompt"], 0
        for start in range(0, len(prompt) - size + 1, size):
            chain = hash((chain, tuple(prompt[start : start + size])))
            seen.add(chain)
            count += 1
    return count, len(seen)


@pytest.mark.parametrize("scale", [1.0, 0.0625])
def test_prompts_reuse_blocks_as_the_mooncake_trace_does(scale: float) -> None:
    path = trace("mooncake-conversation.jsonl.gz")
    with gzip.open(path) as file:
        lines = [json.loads(next(file)) for _ in range(400)]
    full = [ids for line in lines if (ids := line["hash_ids"][: line["input_length"] // 512])]
    expected = (sum(map(len, full)), len({block for ids in full for block in ids}))
    plan = mooncake.plan(path, TOKENS, scale=scale).limited(count=400)
    assert blocks_of(plan, round(512 * scale)) == expected


def session(name: str, *calls: dict[str, object]) -> dict[str, object]:
    return {"id": name, "block_size": 64, "requests": calls}


def call(t: float, tokens: int, output: int, *ids: int) -> dict[str, object]:
    return {"t": t, "type": "s", "in": tokens, "out": output, "hash_ids": ids}


def test_agent_sessions(tmp_path: Path) -> None:
    inner = {"t": 10.0, "type": "subagent", "agent_id": "a", "requests": [call(0.5, 64, 3, 1)]}
    lines = [
        session("one", call(0, 130, 5, 1, 2), inner, call(700, 200, 6, 1, 2, 3)),
        session("two", call(0, 130, 7, 1, 2)),
    ]
    path = write(tmp_path / "sessions.jsonl.xz", *lines)
    plan = agents.plan(path, TOKENS)
    assert sizes(plan) == [(0.0, 130, 5), (10.5, 64, 3), (600.0, 130, 7), (700.0, 200, 6)]
    one, inside, two, later = plan
    assert one.session == later.session != inside.session
    assert inside.labels["template"] == "subagent"
    prompts = [planned.body(())["prompt"] for planned in (one, inside, two, later)]
    assert prompts[0][:128] == prompts[3][:128]
    assert prompts[0][:64] == prompts[1]
    assert prompts[0][:16] != prompts[2][:16]  # ids are local to a session
    assert prompts[0][128:] != prompts[3][128:130]  # a rest without an id is its request's own
    assert [due for due, _, _ in sizes(agents.plan(path, TOKENS, gap_s=20, speed=2))] == [0, 5.25, 10, 350]


def test_all_agent_sessions_come_through_in_order() -> None:
    path = trace("agent-sessions-80.jsonl.xz")
    due = [planned.due_s for planned in agents.plan(path, TOKENS)]
    assert len(due) == 5163
    assert due == sorted(due)


def test_azure_arrivals(tmp_path: Path) -> None:
    header = "TIMESTAMP,ContextTokens,GeneratedTokens"
    rows = ["2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.6805900,40,0"]
    path = write(tmp_path / "azure.csv", header, *rows)
    assert sizes(azure.plan(path, TOKENS)) == [(0.0, 374, 44), (4.0, 40, 1)]
    first, second = (planned.body(())["prompt"] for planned in azure.plan(path, TOKENS))
    assert first[:16] != second[:16]
    assert [length for _, length, _ in sizes(azure.plan(path, TOKENS, scale=0.5))] == [187, 20]


@pytest.mark.parametrize(
    ("module", "line", "words"),
    [
        (mooncake, "{", "line 2: "),
        (mooncake, request(-5, 1, 1, 0), "line 2: Expected `float` >= 0"),
        (mooncake, request(5, 1, 1, -1), "line 2: Expected `int` >= 0"),
        (agents, session("x", {"type": "s"}), "line 2: .* missing required field `t`"),
        (
            agents,
            session("x", {"t": 0, "type": "subagent", "requests": [{"t": 0, "type": "subagent"}]}),
            "subagent",
        ),
        (azure, "2023-11-16,1", "line 2 is not TIMESTAMP,ContextTokens"),
        (azure, "2" * 200_000, "line 2 is not TIMESTAMP,ContextTokens"),
        (azure, "2023-11-16,1,-1", "line 2: a count of tokens is out of range"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: Path, module: object, line: object, words: str) -> None:
    good = {mooncake: request(0, 1, 1, 0), agents: session("a", call(0, 1, 1))}.get(
        module,  # type: ignore[arg-type]
        "TIMESTAMP,ContextTokens,GeneratedTokens",
    )
    path = write(tmp_path / "trace", good, line)
    with pytest.raises(UserError, match=words):
        list(module.plan(path, TOKENS))  # type: ignore[attr-defined]


def test_a_prompt_beyond_all_reason_is_refused(tmp_path: Path) -> None:
    (asked,) = mooncake.plan(write(tmp_path / "trace", request(0, 10**9, 1, 0)), TOKENS)
    with pytest.raises(UserError, match="a prompt of 1000000000 tokens"):
        asked.body(())


def test_prompts_are_made_of_the_servers_own_tokens(server: LlmServer) -> None:
    prompt = prompts(server.url, seed=3).prompt([Part("t", 1, 500)])
    assert len(prompt) == 500
    assert all(isinstance(token, int) and token >= 1000 for token in prompt)
    server.tokenizes = False
    assert prompts(server.url, seed=3).prompt([Part("t", 1, 500)]) == TextPrompts(3).prompt(
        [Part("t", 1, 500)]
    )
