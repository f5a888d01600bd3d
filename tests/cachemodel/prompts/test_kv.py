"""Prompts put together from what a server tells of its blocks are those that it was asked, as far as blocks go."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, UnknownEvent
from cachemodel.prompts import kv
from cachemodel.prompts.kv import Chains
from cachemodel.prompts.kv_keys import STAND_IN
from cachemodel.prompts.kv_recording import NO_EVENTS, NO_FRAMES, TWICE, Recording, is_recorded
from cachemodel.prompts.model import Kind, Prompt
from tests.cachemodel.prompts.kv_world import BLOCK, START, Sent, Server, chain, line, recording, stored

RUN1 = Path(__file__).parents[2] / "data/vllm-0.32/run1"
Told = tuple[str, tuple[int, ...]]

# Few tokens and few beginnings, so that prompts share, repeat and contain each other.
_TOKENS = st.lists(st.integers(0, 1), max_size=5 * BLOCK)
_SENT = st.builds(
    lambda begin, rest, salt: Sent(tuple(begin * BLOCK) + tuple(rest), salt),
    st.sampled_from([[], [7], [7, 8], [9]]),
    _TOKENS,
    st.sampled_from(["", "", "", "tenant"]),
)
_LOGS = st.lists(_SENT, min_size=1, max_size=12)


def served(sent: Sequence[Sent], order: random.Random, server: Server) -> list[KVEventBatch]:
    """Up to three at a time, some blocks of each in turn, as a server with chunked prefill and decoding does it."""
    waiting, running = list(sent), list[Sent]()
    while waiting or running:
        while waiting and len(running) < 3:
            running.append(waiting.pop(0))
        one = order.choice(running)
        if not server.compute(one, order.randint(1, 3)):
            running.remove(one)
    return server.batches


def prompts_of(batches: Iterable[KVEventBatch], chains: Chains | None = None) -> list[Prompt]:
    chains = chains or Chains()
    for number, batch in enumerate(batches):
        chains.add(batch, f"line {number}")
    return chains.prompts()


def told_of(prompts: Iterable[Prompt]) -> Counter[Told]:
    return Counter((one.isolation, one.parts[0].tokens) for one in prompts)


def longest(told: Iterable[Told]) -> set[Told]:
    """Those that are no beginning of another."""
    distinct = set(told)
    return {
        (salt, ids)
        for salt, ids in distinct
        if ids and not any(s == salt and len(x) > len(ids) and x[: len(ids)] == ids for s, x in distinct)
    }


def truth(sent: Iterable[Sent]) -> set[Told]:
    return longest((one.salt, one.stored) for one in sent)


@settings(max_examples=200, deadline=None)
@given(_LOGS, st.randoms(use_true_random=False))
def test_without_eviction_each_chain_is_one_prompt_and_told_once(
    sent: list[Sent], order: random.Random
) -> None:
    told = told_of(prompts_of(served(sent, order, Server())))
    assert told == Counter(truth(sent))


@settings(max_examples=200, deadline=None)
@given(_LOGS, st.randoms(use_true_random=False), st.integers(0, 12), st.booleans())
def test_eviction_and_blocks_told_twice_add_no_prompt_that_nobody_sent(
    sent: list[Sent], order: random.Random, capacity: int, again: bool
) -> None:
    prompts = prompts_of(served(sent, order, Server(capacity, again)))
    told = told_of(prompts)
    assert longest(told) == truth(sent)
    for salt, ids in told:
        assert any(one.salt == salt and one.stored[: len(ids)] == ids for one in sent)
    assert [one.time for one in prompts] == sorted(one.time or 0 for one in prompts)
    assert len({one.request_id for one in prompts}) == len(prompts)


@settings(max_examples=100, deadline=None)
@given(_LOGS, _LOGS, st.randoms(use_true_random=False), st.booleans())
def test_a_reset_and_a_restart_lose_nothing(
    before: list[Sent], after: list[Sent], order: random.Random, restart: bool
) -> None:
    server = Server()
    served(before, order, server)
    server.clear(restart=restart)
    told = told_of(prompts_of(served(after, order, server)))
    assert longest(told) == truth([*before, *after])
    if not restart:
        assert told == Counter(truth(before)) + Counter(truth(after))


@settings(max_examples=100, deadline=None)
@given(_LOGS, st.randoms(use_true_random=False), st.integers(0, 12), st.data())
def test_what_hangs_on_blocks_from_before_the_recording_is_counted(
    sent: list[Sent], order: random.Random, capacity: int, data: st.DataObject
) -> None:
    batches = served(sent, order, Server(capacity))
    late = batches[data.draw(st.integers(0, len(batches))) :]
    chains = Chains()
    told = told_of(prompts_of(late, chains))
    for salt, ids in told:
        assert any(one.salt == salt and one.stored[: len(ids)] == ids for one in sent)
    # What is told and what is left out are all blocks of the recording.
    known = {ids[: at + BLOCK] for _, ids in told for at in range(0, len(ids), BLOCK)}
    blocks = sum(len(e.block_hashes) for batch in late for e in batch.events if isinstance(e, BlockStored))
    assert blocks == sum(chains.block_sizes.values())
    assert chains.left_out[kv.ORPHAN] + sum(len(ids) // BLOCK for _, ids in told) >= len(known)
    parents = {e.parent_block_hash for batch in late for e in batch.events if isinstance(e, BlockStored)} - {
        None
    }
    named = {h for batch in late for e in batch.events if isinstance(e, BlockStored) for h in e.block_hashes}
    assert (chains.left_out[kv.ORPHAN] > 0) == bool(parents - named)


@settings(max_examples=50, deadline=None)
@given(_LOGS, st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_ranks_that_tell_at_once_are_told_apart(
    sent: list[Sent], order: random.Random, mixed: random.Random
) -> None:
    ranks = [[replace(batch, rank=rank) for batch in served(sent, order, Server())] for rank in range(2)]
    batches: list[KVEventBatch] = []
    while any(ranks):
        batches.append(mixed.choice([one for one in ranks if one]).pop(0))
    assert told_of(prompts_of(batches)) == Counter(dict.fromkeys(truth(sent), 2))


@settings(max_examples=50, deadline=None)
@given(_LOGS, st.randoms(use_true_random=False), st.data())
def test_a_recording_with_messages_twice_and_in_both_forms_is_the_same(
    sent: list[Sent], order: random.Random, data: st.DataObject
) -> None:
    batches = served(sent, order, Server(8))
    lines = [line(batch, number, answer=data.draw(st.booleans())) for number, batch in enumerate(batches)]
    again = data.draw(st.lists(st.integers(0, max(0, len(lines) - 1)), max_size=4)) if lines else []
    reader = Recording()
    reasons = Counter(reader.read(json.loads(one), "x") for one in [*lines, *(lines[at] for at in again)])
    assert reasons == Counter({"": len(lines), TWICE: len(again)}) - Counter({TWICE: 0})
    assert told_of(reader.chains.prompts()) == told_of(prompts_of(batches))
    assert reader.missing == 0


# -- rules one by one


def event(
    tokens: Sequence[Any], hashes: Sequence[int], parent: int | None = None, **more: Any
) -> BlockStored:
    return BlockStored(list(hashes), parent, list(tokens), **{"block_size": 2, "medium": "GPU", **more})


def told(*events: Any, chains: Chains | None = None) -> list[tuple[int, ...]]:
    return [one.parts[0].tokens for one in prompts_of([KVEventBatch(START, list(events))], chains)]


def test_one_message_with_several_prompts_names_each() -> None:
    chains = Chains("srv")
    chains.add(KVEventBatch(START, [event([1, 2], [1]), event([3, 4], [2]), event([5, 6], [3], 1)]), "f:9")
    first, second = chains.prompts()
    assert (first.request_id, second.request_id) == ("f:9", "f:9#2")
    assert (first.parts[0].tokens, second.parts[0].tokens) == ((1, 2, 5, 6), (3, 4))
    assert (first.parts[0].kind, first.parts[0].path, first.parts[0].text) == (
        Kind.TOKENS,
        "prompt",
        "1 2 5 6",
    )
    assert (first.time, first.server, first.body) == (START, "srv", {"prompt": [1, 2, 5, 6]})


def test_what_extends_a_tip_is_of_its_prompt_and_what_does_not_is_another() -> None:
    assert told(event([1, 2, 3, 4], [1, 2]), event([5, 6], [3], 2)) == [(1, 2, 3, 4, 5, 6)]
    assert told(event([1, 2, 3, 4], [1, 2]), event([5, 6], [3], 1)) == [(1, 2, 3, 4), (1, 2, 5, 6)]


@pytest.mark.parametrize("between", [BlockRemoved([2], "GPU"), BlockRemoved([2]), AllBlocksCleared()])
def test_a_tip_that_is_gone_is_not_extended(between: Any) -> None:
    assert told(event([1, 2, 3, 4], [1, 2]), between, event([5, 6], [3], 2)) == [
        (1, 2, 3, 4),
        (1, 2, 3, 4, 5, 6),
    ]


def test_a_tip_that_left_another_tier_is_still_there() -> None:
    assert told(event([1, 2], [1]), BlockRemoved([1], "CPU"), event([5, 6], [3], 1)) == [(1, 2, 5, 6)]


def test_an_orphan_whose_parent_comes_later_is_placed() -> None:
    chains = Chains()
    assert told(event([5, 6], [3], 2), event([1, 2, 3, 4], [1, 2]), chains=chains) == [
        (1, 2, 3, 4, 5, 6),
        (1, 2, 3, 4),
    ]
    assert not chains.left_out


def test_parents_that_go_round_in_a_circle_are_nowhere() -> None:
    chains = Chains()
    assert told(event([1, 2], [1], 2), event([3, 4], [2], 3), event([5, 6], [3], 1), chains=chains) == []
    assert told(event([1, 2], [7], 7)) == []
    assert chains.left_out == {kv.ORPHAN: 3}


def test_a_hash_of_two_contents_is_counted_and_the_last_holds_for_what_follows() -> None:
    chains = Chains()
    assert told(
        event([1, 2], [1]), event([3, 4], [2], 1), event([9, 9], [1]), event([5, 6], [4], 1), chains=chains
    ) == [(1, 2, 3, 4), (9, 9, 5, 6)]
    assert chains.left_out == {kv.COLLISION: 1}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (event([], [1]), kv.NO_TOKENS),
        (event([1, 2, 3], [1, 2]), kv.NOT_FILLED),
        (event([1, 2], [1], block_size=4), kv.NOT_FILLED),
        (event([1, -2], [1]), kv.NO_IDS),
        (event([1, 1 << 31], [1]), kv.NO_IDS),
        (event([1, 1 << 80], [1]), kv.NO_IDS),
        (event([1.0, 2.0], [1]), kv.NO_IDS),
        (event(["a", "b"], [1]), kv.NO_IDS),
        (event([None, 2], [1]), kv.NO_IDS),
        (event([True, False], [1]), kv.NO_IDS),
        (event([[1, 2, 3], [4, 5, 6]], [1]), kv.NO_IDS),
        (event([[1], 2], [1]), kv.NO_IDS),
        (event([1, 2], [1], medium="CPU"), kv.OTHER_TIER),
    ],
)
def test_blocks_that_tell_nothing_are_counted_with_a_reason(given: BlockStored, why: str) -> None:
    chains = Chains()
    assert told(given, chains=chains) == []
    assert chains.left_out == {why: len(given.block_hashes)}
    assert chains.first == {why: "line 0"}


def test_groups_of_layers_tell_a_prompt_once() -> None:
    chains = Chains()
    events = [
        event([1, 2], [1], group_idx=0),
        event([1, 2], [1], group_idx=1),
        event([3, 4], [2], 1, group_idx=0),
    ]
    assert told(*events, chains=chains) == [(1, 2, 3, 4)]
    assert chains.left_out == {kv.OTHER_GROUP: 1}


def test_pairs_of_tokens_are_their_first() -> None:
    assert told(event([[1, 2], [2, 3]], [1])) == [(1, 2)]


def test_events_of_later_versions_are_counted() -> None:
    chains = Chains()
    assert told(UnknownEvent("BlockMerged", {}), event([1, 2], [1]), chains=chains) == [(1, 2)]
    assert chains.left_out == {kv.UNKNOWN_EVENT: 1}


@pytest.mark.parametrize("ts", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_time_that_is_none_is_none(ts: float) -> None:
    (prompt,) = prompts_of([KVEventBatch(ts, [event([1, 2], [1])])])
    assert prompt.time is None


def test_keys_that_isolate() -> None:
    def isolation(**more: Any) -> str:
        (prompt,) = prompts_of([KVEventBatch(START, [event([1, 2, 3, 4], [1, 2], **more)])])
        assert prompt.parts[0].tokens == (1, 2, 3, 4)
        return prompt.isolation

    assert isolation() == isolation(extra_keys=[None, None]) == ""
    assert isolation(extra_keys=[["salt"], None]) == isolation(cache_salt="salt") == "salt"
    assert isolation(lora_name="ad", extra_keys=[["ad", "salt"], ["ad"]]) == "ad, salt"
    assert isolation(lora_id=3) == "adapter 3"
    assert isolation(extra_keys=["salt"]) == "salt"
    assert len(isolation(cache_salt="x" * 1_000_000)) == kv.MAX_ISOLATION


def test_isolation_is_of_all_that_hangs_on_it() -> None:
    events = [event([1, 2, 3, 4], [1, 2], extra_keys=[["salt"], None]), event([5, 6], [3], 1)]
    assert {one.isolation for one in prompts_of([KVEventBatch(START, events)])} == {"salt"}


def test_the_same_text_behind_other_images_is_not_the_same() -> None:
    def of(image: str, base: int) -> BlockStored:
        return event([1, 2, 9, 9, 3, 4], [base, base + 1, base + 2], extra_keys=[None, [[image, 0]], None])

    one, other = told(of("aa", 1), of("bb", 11))
    assert one[:2] == other[:2] == (1, 2)
    assert one[2] != other[2]
    assert min(one[2], other[2]) >= STAND_IN
    assert one[3:] == other[3:] == (9, 3, 4)
    again, _ = told(of("aa", 1), of("bb", 11))
    assert again == one


def test_a_hundred_thousand_blocks_in_one_chain_and_in_as_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 100_000
    monkeypatch.setattr(kv, "MOST_TOKENS", 10 * n)
    chains = Chains()
    for at in range(n):
        chains.add(KVEventBatch(START + at, [event([at, at], [at + 1], at or None)]), str(at))
    (prompt,) = chains.prompts()
    assert len(prompt.parts[0].tokens) == 2 * n

    deep = Chains()
    for at in range(n):  # each tip is gone before the next block comes
        deep.add(
            KVEventBatch(START + at, [event([at, at], [at + 1], at or None), BlockRemoved([at + 1])]), str(at)
        )
    found = deep.prompts()
    assert sum(len(one.parts[0].tokens) for one in found) <= kv.MOST_TOKENS + 2 * n
    assert deep.left_out[kv.TOO_MANY] == n - len(found)
    assert max(len(one.parts[0].tokens) for one in found) == 2 * n


# -- recordings


def frames(*parts: bytes | str) -> dict[str, Any]:
    return {"frames_b64": [one if isinstance(one, str) else base64.b64encode(one).decode() for one in parts]}


SEQ = (5).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (frames(b"t", SEQ, b"\xc1"), NO_EVENTS),
        (frames(b"t", SEQ, b""), NO_EVENTS),
        (frames(b"t", SEQ, b"\x93\x00\x00"), NO_EVENTS),
        (frames(b"t", b"short", b"\x93\xcb"), NO_FRAMES),
        (frames(b"t", SEQ), NO_FRAMES),
        (frames(b"x", b"t", SEQ, b""), NO_FRAMES),
        (frames("*", "*", "*"), NO_FRAMES),
        ({"frames_b64": []}, NO_FRAMES),
        ({"frames_b64": [1, None, {}]}, NO_FRAMES),
        (frames(b"", b"", b"\xff" * 8, b""), ""),
    ],
)
def test_broken_frames_are_told_by_reason(record: dict[str, Any], why: str) -> None:
    assert is_recorded(record)
    reader = Recording()
    assert reader.read(record, "f:1") == why
    assert reader.chains.prompts() == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_break_the_reader(parts: list[bytes]) -> None:
    Recording().read(frames(*parts), "f:1")


def test_messages_that_are_missing_are_counted_and_a_publisher_may_begin_anew() -> None:
    batches = [KVEventBatch(START + at, [event([at, at], [at + 1])]) for at in range(4)]
    reader = Recording()
    for number, batch in ((0, batches[0]), (3, batches[1]), (0, batches[2]), (1, batches[3])):
        assert reader.read(json.loads(line(batch, number)), "f") == ""
    assert (reader.missing, reader.messages, len(reader.chains.prompts())) == (2, 4, 4)


def test_the_recorded_server_told_these_prompts() -> None:
    """Of a real vLLM: each chain is the beginning of a request of its log, or of its answer."""
    reader = Recording()
    for number, text in enumerate((RUN1 / "kv_events.jsonl").read_text().splitlines(), 1):
        assert reader.read(json.loads(text), f"kv:{number}") == ""
    prompts = reader.chains.prompts()
    assert (reader.chains.left_out, reader.missing) == ({}, 0)
    assert reader.chains.block_sizes == {32: 1215}
    salts = {json.loads(text)["body"].get("cache_salt") for text in (RUN1 / "requests.jsonl").open()}
    assert {one.isolation or None for one in prompts} == salts
    distinct = {
        (one.isolation, one.parts[0].tokens[:at])
        for one in prompts
        for at in range(32, 4097, 32)
        if at <= len(one.parts[0].tokens)
    }
    hashes = {h for text in (RUN1 / "kv_events.jsonl").open() for h in _hashes(json.loads(text))}
    assert len(distinct) == len(hashes)


def _hashes(record: dict[str, Any]) -> list[int]:
    from cachemodel.kv_events import decode_batch

    batch = decode_batch(base64.b64decode(record["frames_b64"][2]))
    return [h for e in batch.events if isinstance(e, BlockStored) for h in e.block_hashes]


def test_the_helpers_tell_what_a_server_tells() -> None:
    sent = Sent((1, 2, 3, 4, 5, 6, 7, 8, 9), "s")
    assert stored(sent, 1, 1, chain(sent)[0]).token_ids == [5, 6, 7, 8]
    assert len(recording(served([sent], random.Random(0), Server())).splitlines()) >= 1
