"""What rows say of events: depth by group, tiers, what is private, what is capped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    Event,
    KVEventBatch,
    UnknownEvent,
    encode_batch,
)
from collector.kv.fields import MAX_KEYS, MAX_TEXT, detail
from collector.kv.rows import EventRows
from collector.kv.stream import KvStream, Message
from tests.collector.support import HASHER


def rows(*events: Event) -> list[dict[str, Any]]:
    made = EventRows(HASHER)
    return [json.loads(b"{%s}" % row) for event in events for row in made.of(event)]


def depths(*events: Event) -> list[tuple[int, int | None]]:
    return [(row["block"], row["depth"]) for row in rows(*events)]


def test_an_offload_placeholder_keeps_its_medium_and_is_no_root() -> None:
    """It names blocks in no order of a chain; where they stood on the device is known."""
    told = rows(
        BlockStored([1, 2], None, range(32), 16, medium="GPU"),
        BlockStored([2, 9, 1], token_ids=(), block_size=0, medium="CPU"),
        BlockRemoved([1, 2], "GPU"),
        BlockRemoved([9], "CPU"),
    )
    placeholders = told[2:5]
    assert [(r["block"], r["parent"], r["depth"]) for r in placeholders] == [
        (2, None, 1),
        (9, None, None),
        (1, None, 0),
    ]
    assert {(r["medium"], r["tier"], "token_count" in r) for r in placeholders} == {("CPU", "host", False)}
    assert not any({"token_count", "block_size"} & r.keys() for r in placeholders), "missing is not 0"
    assert [(r["medium"], r["depth"]) for r in told[5:]] == [("GPU", 0), ("GPU", 1), ("CPU", None)]


def test_groups_count_in_blocks_of_their_own() -> None:
    """A hybrid model: the same hash is block 3 of the full-attention group and block 0 of a group of larger blocks."""
    told = (
        BlockStored([1, 2, 3, 4], None, range(64), 16, group_idx=0, kv_cache_spec_kind="full_attention"),
        BlockStored([4], None, range(64), 64, group_idx=1, kv_cache_spec_kind="mamba"),
        BlockStored([5], 4, range(16), 16, group_idx=0),
        BlockStored([8], 4, range(64), 64, group_idx=1),
        BlockRemoved([4], group_idx=0),
        BlockRemoved([4], group_idx=1),
    )
    assert depths(*told)[4:] == [(4, 0), (5, 4), (8, 1), (4, 3), (4, 0)]
    assert [row.get("kv_cache_spec_kind") for row in rows(*told)[3:5]] == ["full_attention", "mamba"]


def test_chunks_of_a_connector_beside_blocks_of_the_engine() -> None:
    told = rows(
        BlockStored([1], None, range(16), 16, medium="GPU"),
        BlockStored([100, 101], None, range(512), 256, medium="cpu"),
    )
    assert [(r["block"], r["depth"], r["block_size"], r["token_count"], r["tier"]) for r in told] == [
        (1, 0, 16, 16, "device"),
        (100, 0, 256, 256, "host"),
        (101, 1, 256, 256, "host"),
    ]


def test_a_page_of_one_token_and_a_prompt_of_128k() -> None:
    count = 131_072
    payload = encode_batch(
        KVEventBatch(1.7e9, [BlockStored(list(range(1, count + 1)), None, list(range(count)), 1)], 0)
    )
    entries = KvStream("s", "", 0, hasher=HASHER).take(Message.read(0, payload, 1.7e9))
    assert sum(entry.rows for entry in entries) == count
    assert max(entry.rows for entry in entries) <= 20_000
    last = json.loads(entries[-1].payload.splitlines()[-1])
    assert (last["pos"], last["block"], last["parent"], last["depth"]) == (count, count, count - 1, count - 1)


def test_salts_sessions_and_unknown_keys_are_not_stored_as_they_are() -> None:
    image = "ab" * 32
    keys = [["tenant-1", "sql-adapter"], [[image, 12]], None]
    told = rows(
        BlockStored(
            [1, 2, 3], None, range(3), 1, lora_name="sql-adapter", extra_keys=keys, session_id="chat-of-ann"
        ),
        BlockStored([7], None, range(3), 3, cache_salt="tenant-1"),
    )
    salt = HASHER.pseudonym("tenant-1")
    assert [json.loads(row.get("extra_keys", "null")) for row in told] == [
        [salt, "sql-adapter"],
        [[image, 12]],
        None,
        [salt],
    ]
    assert json.loads(told[0]["detail"])["session_id"] == HASHER.pseudonym("chat-of-ann")
    assert not any(private in json.dumps(told) for private in ("tenant-1", "chat-of-ann"))


def test_adapters_have_columns() -> None:
    told = rows(
        BlockStored([1], None, [1], 1, lora_id=3, lora_name="sql"),
        BlockStored([2], None, [1], 1, lora_id="uuid-4"),
    )
    assert [(row.get("lora_id"), row.get("lora_name")) for row in told] == [("3", "sql"), ("uuid-4", None)]


def test_equal_prompts_of_differently_seeded_servers_have_equal_contents() -> None:
    first = rows(BlockStored([1, 2], None, [5, 6, 7, 8], 2))
    other_seed = rows(BlockStored([91], None, [5, 6], 2), BlockStored([92], 91, [7, 9], 2))
    assert [row["content"] for row in first] == list(HASHER.chain([5, 6, 7, 8], 2))
    assert first[0]["content"] == other_seed[0]["content"]
    assert first[1]["content"] != other_seed[1]["content"]
    assert [row["local"] for row in first] == HASHER.pieces([5, 6, 7, 8], 2)
    (bigrams,) = rows(BlockStored([1], None, [[5, 6], [6, 7]], 2))
    assert bigrams["content"] == first[0]["content"]


@pytest.mark.parametrize(
    ("event", "own"),
    [
        (BlockStored([1, 2], None, range(4), 2, extra_keys=[["t1"], None]), ["t1"]),
        (BlockStored([1, 2], None, range(4), 2, cache_salt="t1"), ["t1"]),
        (BlockStored([1, 2], None, range(4), 2, lora_name="ad", extra_keys=[["ad"], ["ad"]]), ["ad"]),
        (BlockStored([1, 2], None, range(4), 2, lora_id=3, lora_name="ad", extra_keys=[[3], [3]]), ["ad"]),
        (BlockStored([1, 2], None, range(4), 2, lora_id=3, extra_keys=[[3], [3]]), ["3"]),
        (
            BlockStored([1, 2], None, range(4), 2, lora_name="ad", extra_keys=[["t1", "ad"], ["ad"]]),
            ["t1", "ad"],
        ),
    ],
)
def test_a_salt_and_an_adapter_isolate_a_chain_once(event: BlockStored, own: list[str]) -> None:
    isolation = HASHER.isolation(0, own)
    plain = rows(BlockStored([1, 2], None, range(4), 2))
    assert [row["isolation"] for row in rows(event)] == [isolation] * 2
    assert [row["content"] for row in rows(event)] == [row["content"] for row in plain]
    assert [row["isolation"] for row in plain] == [0, 0]
    later = rows(event, BlockStored([3], 2, [7, 8], 2, lora_name=event.lora_name, lora_id=event.lora_id))
    assert later[2]["isolation"] == isolation


def test_an_image_isolates_what_begins_with_it() -> None:
    image = "ab" * 32
    told = rows(BlockStored([1, 2, 3], None, range(6), 2, extra_keys=[None, [[image, 12]], None]))
    with_image = HASHER.isolation(0, [repr([image, 12])])
    assert [row["isolation"] for row in told] == [0, with_image, with_image]


@pytest.mark.parametrize("odd", [[-1, 2], [2**64, 1], ["a", "b"], [None, None], [[1], []]])
def test_what_is_no_token_has_no_content(odd: list[Any]) -> None:
    (told,) = rows(BlockStored([1], None, odd, 2))
    assert (told["depth"], told["isolation"], "content" in told, "local" in told) == (0, 0, False, False)


def test_a_move_is_a_removal_and_a_store() -> None:
    told = rows(
        BlockStored([1], None, [5], 1, medium="cache_level=0", group_idx=4096),
        BlockUpdated(1, "cache_level=0", "cache_level=1", 4096),
        BlockUpdated(1, group_idx=4096, unknown={"priority": 80, "priority_before": 35}),
    )
    assert [(r["action"], r["block"], r["depth"], r.get("tier"), r["group_idx"]) for r in told] == [
        ("stored", 1, 0, "device", 4096),
        ("removed", 1, 0, "device", 4096),
        ("stored", 1, 0, "host", 4096),
        ("updated", 1, 0, None, 4096),
    ]
    assert json.loads(told[3]["detail"]) == {"priority": 80, "priority_before": 35}


def test_what_is_long_is_cut() -> None:
    long = "x" * 5000
    (told,) = rows(
        BlockStored(
            [1],
            None,
            [1],
            1,
            long and 1,
            long,
            long,
            [[long] * 500],
            unknown={long: long, "tokens": [1, 2, 3]},
        )
    )
    assert {len(told["medium"]), len(told["lora_name"])} == {MAX_TEXT}
    assert len(told["extra_keys"]) == MAX_KEYS
    assert json.loads(told["detail"])["tokens"] == "3 items"
    assert len(told["detail"]) < 3 * MAX_TEXT


def test_capacity_and_what_is_not_known_are_told() -> None:
    told = rows(
        CacheCreated([1000, 250], 4096),
        AllBlocksCleared(ownership="kvcr"),
        UnknownEvent("BlockPinned", {"block": 7, "why": "asked"}),
    )
    assert [row["action"] for row in told] == ["created", "cleared", "unknown"]
    assert json.loads(told[0]["detail"]) == {"blocks_per_level": "1000, 250"}
    assert told[1]["ownership"] == "kvcr"
    assert json.loads(told[2]["detail"]) == {"type": "BlockPinned", "block": 7, "why": "5 characters"}


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3)
)
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@given(
    st.builds(
        BlockStored,
        block_hashes=st.lists(st.integers(0, 2**64 - 1), max_size=4),
        parent_block_hash=st.none() | st.integers(0, 2**64 - 1),
        token_ids=st.lists(anything, max_size=4),
        block_size=st.none() | st.integers(-(2**70), 2**70),
        lora_id=st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
        extra_keys=st.none() | st.lists(anything, max_size=4),
        group_idx=st.none() | st.integers(-(2**70), 2**70),
        cache_salt=st.none() | st.text(max_size=3),
        unknown=st.dictionaries(st.text(max_size=3), anything, max_size=3),
    )
)
def test_whatever_is_decoded_makes_rows(event: BlockStored) -> None:
    made = rows(event)
    assert [row["block"] for row in made] == event.block_hashes
    assert all(0 <= row["group_idx"] < 2**32 for row in made if row.get("group_idx") is not None)


@given(st.dictionaries(st.text(max_size=3), anything, max_size=40))
def test_details_are_short_json(fields: dict[str, Any]) -> None:
    told = detail({}, fields)
    assert isinstance(json.loads(told or "{}"), dict)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("my ssn is 1234", "14 characters"),
        (b"\x01\x02\x03", "3 bytes"),
        ([1, 2, 3], "3 items"),
        ({"a": 1}, "1 items"),
        (7, 7),
        (-999_999, -999_999),
        (491234567890, "12 digits"),
        (-(10**6), "7 digits"),
        (4.9123456789e11, "a number of 1e6 or more"),
        (True, True),
        (0.5, 0.5),
    ],
)
def test_fields_nobody_knows_are_told_by_their_size(value: object, told: object) -> None:
    unknown = {"prompt_text": value}
    made = rows(
        BlockStored([1], None, [1], 1, unknown=unknown),
        BlockRemoved([1], unknown=unknown),
        AllBlocksCleared(unknown=unknown),
        CacheCreated([5], unknown=unknown),
        BlockUpdated(1, unknown=unknown),
        UnknownEvent("BlockPinned", unknown),
    )
    assert [json.loads(row["detail"])["prompt_text"] for row in made] == [told] * 6
    assert "1234" not in json.dumps(made)


def test_names_nobody_knows_are_told_only_where_they_look_like_names() -> None:
    told = rows(UnknownEvent("my ssn is 1234", {"also 1234!": 1, "n" * 65: 2, "fine_1": 3}))
    assert json.loads(told[0]["detail"]) == {
        "type": "a name of 14 characters",
        "a name of 10 characters": 1,
        "a name of 65 characters": 2,
        "fine_1": 3,
    }
    assert json.loads(rows(UnknownEvent("", {}))[0]["detail"])["type"] == "a name of 0 characters"
