"""Field reports about why prompts were computed, through the ladder: what went, and where the tokens must be counted.

Each test is named after the row of the list of threads (README.md has the table). Replicas, prompts and laws are small
copies of what the thread tells; the hits are what such a cache serves, or what the thread says that it told.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cachemodel.alignment import Alignment
from tests.field_reports.caches import Cache, Fleet, Tokens
from tests.field_reports.outcome import Outcome

PLAIN = Alignment(16)


def chat(tokens: Tokens) -> list[list[int]]:
    """Turns of one conversation, each behind all before it."""
    turns = [tokens(320)]
    for _ in range(3):
        turns.append(turns[-1] + tokens(64))
    return turns


def identical(tokens: Tokens) -> list[list[int]]:
    return [tokens(320)] * 4


def questions(tokens: Tokens) -> list[list[int]]:
    """One system prompt, and something new behind it."""
    system = tokens(320)
    return [system + tokens(40) for _ in range(4)]


def branches(tokens: Tokens) -> list[list[int]]:
    """A tree of prompts: two from the root, and one further along the first."""
    root, branch = tokens(256), tokens(64)
    return [root + branch, root + tokens(64), root + branch + tokens(64)]


@pytest.mark.parametrize(
    ("row", "law", "workload", "parts"),
    [
        (1, PLAIN, chat, {"not_loaded": 320 + 384 + 448, "cold": 3 * 64}),
        (7, Alignment(16, 1), identical, {"not_loaded": 3 * 288, "unaligned": 3 * 32}),  # drafts drop a block
        (10, PLAIN, identical, {"not_loaded": 3 * 304, "unaligned": 3 * 16}),
        (11, PLAIN, questions, {"not_loaded": 3 * 320, "cold": 3 * 40}),
        (18, PLAIN, branches, {"not_loaded": 256 + 320, "cold": 2 * 64}),
    ],
)
def test_rows_1_7_10_11_18_held_and_never_served_is_not_loaded(
    row: int, law: Alignment, workload: Callable[[Tokens], list[list[int]]], parts: dict[str, int]
) -> None:
    """Caches that are on and serve nothing, each with the prompts of its thread."""
    fleet = Fleet({"s": Cache(law)})
    for at, prompt in enumerate(workload(Tokens(row))):
        fleet.ask("s", prompt, at, cached=0)
    found = Outcome(fleet)
    assert found.parts(slice(1, None)) == parts
    assert found.fit("s") is None


def test_row_14_adapters_that_never_hit_are_told_from_the_base_that_does() -> None:
    fleet, prompt = Fleet({"s": Cache(PLAIN)}), Tokens(14)(328)
    for at, key in enumerate(["", "sql", "", "sql"]):
        fleet.ask("s", prompt, at, key, cached=0 if key else None)
    found = Outcome(fleet)
    assert found.parts([2]) == {"cached": 320, "unaligned": 8}
    assert found.parts([1]) == {"isolated": 328}
    assert found.parts([3])["not_loaded"] == 320


def test_row_15_a_prompt_that_hits_only_when_it_goes_on() -> None:
    """Mamba radix tree: a match of the whole prompt, less a token, leaves no state to go on from."""
    fleet, tokens = Fleet({"s": Cache(PLAIN)}), Tokens(15)
    prompt = tokens(320)
    fleet.ask("s", prompt, 0)
    fleet.ask("s", prompt, 1, cached=0)
    fleet.ask("s", prompt + tokens(80), 2)
    found = Outcome(fleet)
    assert found.parts([1])["not_loaded"] == 304
    assert found.parts([2]) == {"cached": 320, "cold": 80}


def test_row_23_hits_that_end_with_a_release_are_loads_that_fail() -> None:
    """The same prompts before and after: they did not change, and what they need is there."""
    fleet, tokens = Fleet({"s": Cache(PLAIN)}), Tokens(23)
    prompts = [tokens(330) for _ in range(4)]
    for at, prompt in enumerate(prompts * 3):
        fleet.ask("s", prompt, at, cached=0 if at >= 8 else None)
    found = Outcome(fleet)
    assert found.hit_rate(slice(4, 8)) == pytest.approx(320 / 330)
    assert found.parts(slice(8, 12)) == {"not_loaded": 4 * 320, "unaligned": 4 * 10}


def test_row_24_two_workers_whose_seeds_differ_still_hold_the_same_content() -> None:
    fleet, prompt = Fleet({"rank0": Cache(PLAIN), "rank1": Cache(PLAIN)}), Tokens(24)(325)
    for at, server in enumerate(["rank0", "rank1", "rank1"]):
        fleet.ask(server, prompt, at)
    found = Outcome(fleet)
    assert found.parts([1]) == {"elsewhere": 325}
    assert found.parts([2]) == {"cached": 320, "unaligned": 5}


@pytest.mark.parametrize(("prefix", "hits"), [(8192, 8), (16384, 8), (32768, 0)])
def test_row_27_eight_prefixes_that_outgrow_the_cache_are_a_matter_of_capacity(
    prefix: int, hits: int
) -> None:
    fleet, tokens = Fleet({"s": Cache(Alignment(256), blocks=600, block=256)}), Tokens(27)
    prefixes = [tokens(prefix) for _ in range(8)]
    served = [fleet.ask("s", prompt + tokens(100), at) for at, prompt in enumerate(prefixes * 2)]
    assert sum(tokens > 0 for tokens in served[8:]) == hits
    parts = Outcome(fleet).parts(slice(8, None))
    if hits:
        assert parts == {"cached": 8 * prefix, "cold": 800}
    else:
        assert parts == {"evicted/capacity": 8 * prefix, "cold": 800}


@pytest.mark.parametrize("row", [32, 33])
def test_rows_32_33_an_option_that_keeps_a_request_from_reading_is_not_loaded(row: int) -> None:
    """prompt_logprobs and all-pooling requests."""
    fleet, prompt = Fleet({"s": Cache(PLAIN)}), Tokens(row)(330)
    fleet.ask("s", prompt, 0)
    fleet.ask("s", prompt, 1, reads_off=True)
    assert Outcome(fleet).parts([1])["not_loaded"] >= 320


def test_row_65_a_hash_that_pins_sessions_on_one_engine_evicts_them() -> None:
    """98 % falls to 5 %: eight sessions spread over four replicas, or all of them on one, whose others stand idle."""
    spread, pinned = (Fleet({name: Cache(PLAIN, blocks=210) for name in "abcd"}) for _ in range(2))
    for fleet, replicas in ((spread, "abcd"), (pinned, "a")):
        tokens = Tokens(65)
        sessions = [tokens(800) for _ in range(8)]
        for at in range(6):
            for number, session in enumerate(sessions):
                session += tokens(16)
                fleet.ask(replicas[number % len(replicas)], session, at * 10 + number)
    again = slice(8, None)
    assert Outcome(spread).hit_rate(again) > 0.95
    found = Outcome(pinned)
    assert found.hit_rate(again) < 0.06
    parts = found.parts(again)
    assert set(parts) == {"evicted/capacity", "cold"}
    assert parts["cold"] == 40 * 16
    line = found.ceilings()[0]
    assert line.routing_loss == 0  # no other replica held them
    assert line.attainable > 0.8 * line.prompt


def test_row_66_three_replicas_behind_a_balancer_that_knows_nothing_of_prefixes() -> None:
    fleet, tokens = Fleet({name: Cache(PLAIN) for name in "abc"}), Tokens(66)
    system = tokens(640)
    for at in range(6):
        fleet.ask("abc"[at % 3], system + tokens(40), at)
    found = Outcome(fleet)
    assert found.parts([1, 2]) == {"elsewhere": 1280, "cold": 80}
    assert found.parts([3, 4, 5]) == {"cached": 3 * 640, "cold": 120}
    assert [line.routing_loss for line in found.ceilings()] == [0, 640, 640]


@pytest.mark.parametrize(("row", "scattered"), [(63, True), (68, True), (68, False)])
def test_rows_63_68_a_routing_loss_is_told_from_a_cold_workload(row: int, scattered: bool) -> None:
    """The same hit rate of 0: sessions whose turns are scattered over replicas, and prompts that are all new."""
    fleet, tokens = Fleet({name: Cache(PLAIN) for name in "abcd"}), Tokens(row)
    sessions = [tokens(640) for _ in range(5)]
    for turn in range(4):
        for number, session in enumerate(sessions):
            prompt = session if scattered else tokens(640)
            fleet.ask("abcd"[(number + turn) % 4], prompt, turn * 10 + number)
    found = Outcome(fleet)
    lines = found.ceilings()
    assert sum(line.achieved for line in lines) == 0
    lost = 15 * 624 if scattered else 0  # of a prompt of 40 blocks, 39 can be served
    assert sum(line.routing_loss or 0 for line in lines) == lost
    assert sum(line.reachable or 0 for line in lines) == lost
    assert sum(line.attainable for line in lines) == lost
    assert found.parts() == ({"elsewhere": 15 * 640, "cold": 5 * 640} if scattered else {"cold": 20 * 640})


def test_row_93_reuse_of_shifted_text_that_stopped_leaves_changed_tokens() -> None:
    """llama.cpp's --cache-reuse: text was deleted near the beginning, and the rest is still there, further up."""
    before, after = (Fleet({"s": Cache(Alignment(1))}) for _ in range(2))
    for fleet in (before, after):
        tokens = Tokens(93)
        head, gone, rest = tokens(64), tokens(32), tokens(480)
        fleet.ask("s", head + gone + rest, 0)
        fleet.ask("s", head + rest, 1, cached=543 if fleet is before else None)
    assert Outcome(before).parts([1]) == {"cached": 543, "changed": 1}
    parts = Outcome(after).parts([1])
    assert parts["cached"] == 64
    assert parts["changed"] > 0.9 * 480


def test_row_96_two_prompts_that_take_turns_in_one_slot_evict_each_other() -> None:
    fleet, tokens = Fleet({"s": Cache(Alignment(1), blocks=25)}), Tokens(96)
    long, short = tokens(400), tokens(160)
    for at in range(6):
        fleet.ask("s", short if at % 2 else long, at)
    parts = Outcome(fleet).parts([2, 4])
    assert parts["evicted/capacity"] > 0
    assert set(parts) <= {"cached", "unaligned", "evicted/capacity"}


def said_across(fleet: Fleet) -> str:
    (said,) = Outcome(fleet).hits_across()
    return said


def test_row_99_two_adapters_of_one_name_share_kv() -> None:
    """The cache's keys have the name, and not the id behind the slash: those of another name are kept apart."""
    fleet = Fleet({"s": Cache(PLAIN, keyed=lambda adapter: adapter.partition("/")[0])})
    prompt = Tokens(99)(328)
    for at, adapter in enumerate(["tuned/1", "tuned/2", "other/1", "tuned/3"]):
        fleet.ask("s", prompt, at, adapter)
    assert "2 requests were served 640 tokens" in said_across(fleet)
    assert Outcome(fleet).parts([2]) == {"isolated": 328}


def test_row_101_a_tier_whose_keys_lack_the_adapter_hits_across() -> None:
    """The device keeps adapters apart; what lies behind it does not, and tells no events."""
    fleet, prompt = Fleet({"s": Cache(PLAIN)}), Tokens(101)(328)
    for at, adapter in enumerate(["lora-1", "lora-2", "lora-3"]):
        fleet.ask("s", prompt, at, adapter, cached=256 if at else 0)
    assert "2 requests were served 512 tokens" in said_across(fleet)


def test_row_102_a_slot_that_knows_no_adapter_serves_all_but_the_last_token() -> None:
    fleet, prompt = Fleet({"s": Cache(Alignment(1), keyed=lambda _: "", block=1)}), Tokens(102)(40)
    for at, adapter in enumerate(["lora-1", "lora-2", "lora-3", "lora-3"]):
        fleet.ask("s", prompt, at, adapter)
    assert "2 requests were served 78 tokens" in said_across(fleet)


def test_row_103_an_adapter_is_served_what_the_base_model_computed() -> None:
    fleet, prompt = Fleet({"s": Cache(PLAIN, keyed=lambda _: "")}), Tokens(103)(328)
    for at, adapter in enumerate(["", "sql", "law", ""]):
        fleet.ask("s", prompt, at, adapter)
    assert "2 requests were served 640 tokens" in said_across(fleet)


def test_rows_99_101_adapters_that_are_kept_apart_are_isolated() -> None:
    fleet, prompt = Fleet({"s": Cache(PLAIN)}), Tokens(99)(328)
    for at, adapter in enumerate(["lora-1", "lora-2", "lora-1"]):
        fleet.ask("s", prompt, at, adapter)
    found = Outcome(fleet)
    assert found.parts([1]) == {"isolated": 328}
    assert found.parts([2]) == {"cached": 320, "unaligned": 8}
    assert found.hits_across() == []
