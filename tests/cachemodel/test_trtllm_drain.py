"""TensorRT-LLM's drained events. The answers are made from the serialiser's field names; none was recorded."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.kv_events import (
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    DecodeError,
    Event,
    UnknownEvent,
)
from cachemodel.kv_events.trtllm import Drain, Drained


def block(number: int, tokens: range, level: int = 0, priority: int = 35, **more: Any) -> dict[str, Any]:
    unique = [{"type": "unique_token", "token_id": t, "token_extra_id": 0} for t in tokens]
    told = {"cache_level": level, "priority": priority}
    return {"type": "stored_block", "block_hash": number, "tokens": unique, **told, **more}


def item(event_id: int, kind: str, *, window: int = 4096, **data: Any) -> dict[str, Any]:
    return {"event_id": event_id, "data": {"type": kind, **data}, "window_size": window}


def moved(before: int, after: int) -> dict[str, Any]:
    return {"type": "event_diff", "new_value": after, "old_value": before}


def drained(*items: object, drain: Drain | None = None) -> list[Drained]:
    return (drain or Drain()).decode(json.dumps(items).encode())[0]


def events(*items: object) -> list[Event]:
    return [event for one in drained(*items) for event in one.events]


def test_stored_blocks_follow_each_other_and_the_last_may_be_partial() -> None:
    stored = item(
        4, "stored", parent_hash=2**64 - 1, blocks=[block(10, range(32)), block(11, range(32, 37), 1)]
    )
    assert events(stored) == [
        BlockStored(
            [10], 2**64 - 1, list(range(32)), medium="cache_level=0", group_idx=4096, unknown={"priority": 35}
        ),
        BlockStored(
            [11], 10, list(range(32, 37)), medium="cache_level=1", group_idx=4096, unknown={"priority": 35}
        ),
    ]


def test_a_removal_is_from_the_level_where_the_block_was() -> None:
    told = [
        item(
            1,
            "stored",
            parent_hash=None,
            blocks=[block(10, range(4)), block(11, range(4)), block(12, range(4))],
        ),
        item(2, "updated", block_hash=11, cache_level=moved(0, 1), priority=None),
        item(3, "stored", window=512, parent_hash=None, blocks=[block(10, range(4), 1)]),
        item(4, "removed", block_hashes=[10, 11, 99, 12]),
        item(5, "removed", window=512, block_hashes=[10]),
    ]
    assert events(*told)[3:] == [
        BlockUpdated(11, "cache_level=0", "cache_level=1", 4096),
        BlockStored(
            [10], None, [0, 1, 2, 3], medium="cache_level=1", group_idx=512, unknown={"priority": 35}
        ),
        BlockRemoved([10, 12], "cache_level=0", 4096),
        BlockRemoved([11], "cache_level=1", 4096),
        BlockRemoved([99], None, 4096),
        BlockRemoved([10], "cache_level=1", 512),
    ]


def test_the_other_kinds() -> None:
    told = [
        item(0, "created", num_blocks_per_cache_level=[1000, 250]),
        item(1, "updated", block_hash=7, cache_level=None, priority=moved(35, 80)),
        item(2, "pinned", block_hash=7),
        {
            "event_id": 3,
            "data": {"type": "removed", "block_hashes": [1], "layer_group_id": 2},
            "window_size": 64,
        },
    ]
    assert events(*told) == [
        CacheCreated([1000, 250], 4096),
        BlockUpdated(7, group_idx=4096, unknown={"priority": 80, "priority_before": 35}),
        UnknownEvent("pinned", {"block_hash": 7}),
        BlockRemoved([1], None, 2, unknown={"window_size": 64}),
    ]


def test_keys_of_images_prompt_tables_and_salts() -> None:
    digest = "ab" * 32
    tokens = [{"token_id": 5, "token_extra_id": 9}, {"token_id": 6, "token_extra_id": 0}]
    told = block(1, range(0), cache_salt="t", mm_keys=[{"type": "mm_key", "hash": digest, "start_offset": 0}])
    (stored,) = events(item(0, "stored", parent_hash=None, blocks=[told | {"tokens": tokens}]))
    assert isinstance(stored, BlockStored)
    assert (stored.extra_keys, stored.cache_salt, stored.token_ids) == ([[digest, 9]], "t", [5, 6])


def test_a_broken_item_leaves_the_rest() -> None:
    answer = [
        {"event_id": 1, "data": {"type": "stored", "blocks": [block(1, range(2)), {"block_hash": "x"}]}},
        {"data": {"type": "removed", "block_hashes": [1]}},
        "nonsense",
        {"event_id": -1, "data": {}},
        {"event_id": 2, "data": {"type": "removed", "block_hashes": [1]}, "attention_dp_rank": 3},
        {"event_id": 3, "data": {"type": "removed", "block_hashes": [1]}, "attention_dp_rank": 1 << 16},
    ]
    items, nameless = Drain().decode(json.dumps(answer).encode())
    assert nameless == 4
    assert items[0] == Drained(
        1, None, error="a stored block has a block hash that is of type str, not an integer or bytes"
    )
    assert items[1] == Drained(2, 3, (BlockRemoved([1]),)), (
        "what the broken item told of block 1 is not remembered"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{}", "of type dict, not a list"),
        (b"[" * 5000, "not JSON"),
        (b"\xff", "not JSON"),
    ],
)
def test_what_is_no_answer(body: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        Drain().decode(body)


words = st.sampled_from(
    [
        *(
            "event_id",
            "data",
            "type",
            "stored",
            "removed",
            "updated",
            "created",
            "blocks",
            "block_hashes",
            "tokens",
        ),
        *("block_hash", "parent_hash", "cache_level", "priority", "old_value", "new_value", "window_size"),
        *("attention_dp_rank", "layer_group_id", "num_blocks_per_cache_level", "token_id", "mm_keys"),
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.fixed_dictionaries({"event_id": st.integers(0, 9), "data": values}) | values, max_size=4))
def test_any_list_is_read(answer: list[Any]) -> None:
    items, nameless = Drain().decode(json.dumps(answer).replace("NaN", "0").replace("Infinity", "0").encode())
    assert len(items) + nameless == len(answer)


@given(st.data())
def test_mutations_raise_nothing_but_decode_errors(data: st.DataObject) -> None:
    body = bytearray(json.dumps([item(1, "stored", parent_hash=None, blocks=[block(10, range(3))])]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        Drain().decode(bytes(body[: data.draw(st.integers(0, len(body)))]))
