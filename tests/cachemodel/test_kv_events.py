"""The codec reads what real servers sent, in every form, and fails in one way only."""

from __future__ import annotations

import base64
import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    DecodeError,
    Event,
    KVEventBatch,
    UnknownEvent,
    decode_batch,
    encode_batch,
)
from cachemodel.kv_events.zmq_batch import _decode_usual

pack = msgspec.msgpack.encode


def payloads(run: Path) -> list[bytes]:
    lines = (run / "kv_events.jsonl").read_text().splitlines()
    return [base64.b64decode(json.loads(line)["frames_b64"][2]) for line in lines]


def test_the_recording_of_a_real_server(run1: Path) -> None:
    batches = [decode_batch(p) for p in payloads(run1)]
    blocks: Counter[str] = Counter()
    for event in (e for batch in batches for e in batch.events):
        blocks[type(event).__name__] += len(getattr(event, "block_hashes", [None]))
        assert not getattr(event, "unknown", None)
        if isinstance(event, BlockStored):
            assert event.token_count == event.block_size * len(event.block_hashes)
    assert len(batches) == 244
    assert blocks == {"BlockStored": 1215, "BlockRemoved": 938, "AllBlocksCleared": 1}
    assert {b.rank for b in batches} == {0}


hashes = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5)
text = st.none() | st.text(max_size=8)
small = st.none() | st.integers(0, 100)
events = st.one_of(
    st.builds(
        BlockStored,
        block_hashes=hashes,
        parent_block_hash=st.none() | st.integers(0, 2**64 - 1),
        token_ids=st.lists(st.integers(0, 200_000), min_size=1, max_size=8),
        block_size=small,
        lora_id=small,
        medium=text,
        lora_name=text,
        extra_keys=st.none() | st.lists(st.none() | st.lists(st.text(max_size=4)), max_size=3),
        group_idx=small,
        kv_cache_spec_kind=text,
        kv_cache_spec_sliding_window=small,
    ),
    st.builds(BlockRemoved, block_hashes=hashes, medium=text, group_idx=small),
    st.just(AllBlocksCleared()),
)
# what only maps have a place for
newer = st.one_of(
    st.builds(
        BlockStored,
        block_hashes=hashes,
        lora_id=text | small,
        cache_salt=text,
        session_id=text,
        ownership=text,
    ),
    st.builds(BlockRemoved, block_hashes=hashes, ownership=text),
    st.builds(AllBlocksCleared, ownership=text),
)
batches = st.builds(
    KVEventBatch,
    ts=st.floats(0, 4e9),
    events=st.lists(events, max_size=6),
    rank=st.none() | st.integers(0, 64),
)


@given(batches, st.booleans())
def test_what_is_encoded_is_decoded(batch: KVEventBatch, arrays: bool) -> None:
    assert decode_batch(encode_batch(batch, arrays=arrays)) == batch


@given(newer)
def test_newer_fields_are_encoded_in_maps(event: Event) -> None:
    batch = KVEventBatch(1.0, [event])
    assert decode_batch(encode_batch(batch)) == batch


@given(batches, st.data())
def test_mutations_raise_nothing_but_decode_errors(batch: KVEventBatch, data: st.DataObject) -> None:
    payload = bytearray(encode_batch(batch, arrays=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    with suppress(DecodeError):
        decode_batch(bytes(payload[:cut]))


@given(st.binary(max_size=64))
def test_noise_raises_nothing_but_decode_errors(noise: bytes) -> None:
    with suppress(DecodeError):
        decode_batch(noise)


def one(event: object, *batch: object) -> object:
    return decode_batch(pack([1.0, [event], *batch])).events[0]


@pytest.mark.parametrize(
    ("wire", "value", "bits"),
    [
        (2**64 - 1, 2**64 - 1, 64),
        (-1, 2**64 - 1, 64),
        (-(2**63), 2**63, 64),
        (bytes(24) + (2**63 + 5).to_bytes(8, "big"), 2**63 + 5, 256),
        (b"\x01\x02", 0x0102, 16),
    ],
)
def test_hashes_become_unsigned_64_bits(wire: int | bytes, value: int, bits: int) -> None:
    event = one({"type": "BlockRemoved", "block_hashes": [wire]})
    assert event == BlockRemoved([value], hash_bits=bits)


def test_array_forms_of_every_age() -> None:
    assert one(["BlockStored", [1, 2], None, [7, 8], 1]) == BlockStored([1, 2], None, [7, 8], 1)
    newest = ["BlockStored", [1], 9, [7], 1, None, "GPU", "lora", [["salt"]], 0, "full_attention", None]
    assert one(newest) == BlockStored([1], 9, [7], 1, None, "GPU", "lora", [["salt"]], 0, "full_attention")
    assert one(["BlockRemoved", [1], "CPU", 2]) == BlockRemoved([1], "CPU", 2)
    assert one(["AllBlocksCleared"]) == AllBlocksCleared()


def test_a_map_in_the_place_of_a_position() -> None:
    event = one(["BlockStored", [1], None, [7], 1, None, "GPU", {"cache_salt": "t1", "lora_name": "l"}])
    assert event == BlockStored([1], None, [7], 1, medium="GPU", lora_name="l", cache_salt="t1")


def test_sglang_arrays_and_maps_tell_the_same() -> None:
    """One event for consecutive pages of one token, signed hashes, an adapter's id as text (0.5.23, read not run)."""
    hashes, tokens = [-1, -(2**63), 5], [11, 12, 13]
    array = ["BlockStored", hashes, -7, tokens, 1, "adapter-uuid", "CPU_PINNED", "sql"]
    fields = (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
    )
    as_map = {"type": "BlockStored", **dict(zip(fields, array[1:], strict=True))}
    expected = BlockStored([2**64 - 1, 2**63, 5], 2**64 - 7, tokens, 1, "adapter-uuid", "CPU_PINNED", "sql")
    assert one(array, 2) == one(as_map, 2) == expected
    assert decode_batch(pack([1.0, [array], 2])).rank == 2
    named = [*array[:7], {"lora_name": "sql", "cache_salt": "t", "session_id": "chat-1"}]
    assert one(named, None) == replace(expected, cache_salt="t", session_id="chat-1")


def test_bigrams_count_as_the_tokens_they_begin_with() -> None:
    event = one(["BlockStored", [1, 2], None, [[7, 8], [8, 9], [9, 10], [10, 11]], 2])
    assert isinstance(event, BlockStored)
    assert (event.token_count, event.is_bigram, event.is_placeholder) == (4, True, False)


def test_a_placeholder_tells_nothing_of_its_place() -> None:
    bare = {"type": "BlockStored", "block_hashes": [1, 2], "token_ids": [], "block_size": 0, "medium": "CPU"}
    for wire, placeholder in ((bare, True), ({**bare, "parent_block_hash": 3}, False)):
        event = one(wire)
        assert isinstance(event, BlockStored)
        assert event.is_placeholder is placeholder


def test_what_other_wires_tell_has_no_form_in_a_batch() -> None:
    for event in (CacheCreated([1, 2]), BlockUpdated(1, medium="cache_level=1")):
        for arrays in (False, True):
            with pytest.raises(ValueError, match="no form in a batch"):
                encode_batch(KVEventBatch(1.0, [event]), arrays=arrays)


def test_batches_as_maps() -> None:
    batch = decode_batch(
        pack({"ts": 2, "events": [{"type": "AllBlocksCleared"}], "attn_dp_rank": 3, "new": 1})
    )
    assert batch == KVEventBatch(2.0, [AllBlocksCleared()], 3, {"new": 1})


def test_unknown_fields_and_events_are_kept() -> None:
    stored = one({"type": "BlockStored", "block_hashes": [1], "locality": "LOCAL", "session_id": "s"})
    assert stored == BlockStored([1], session_id="s", unknown={"locality": "LOCAL"})
    assert one({"type": "BlockMoved", "from": 1}) == UnknownEvent("BlockMoved", {"from": 1})
    assert one(["BlockMoved", 1]) == UnknownEvent("BlockMoved", {"position_0": 1})


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"", "not msgpack"),
        (pack([1.0, [{"type": "BlockRemoved", "block_hashes": [1]}]])[:-2], "not msgpack"),
        (pack("text"), "the batch is of type str"),
        (pack(["now", []]), "time is of type str"),
        (pack([True, []]), "time is of type bool"),
        (pack([1.0, None]), "events are missing"),
        (pack([1.0, [5]]), "an event is of type int"),
        (pack([1.0, [{"block_hashes": []}]]), "has no type"),
        (pack([1.0, [{"type": "BlockStored"}]]), "block_hashes is missing"),
        (pack([1.0, [{"type": "BlockStored", "block_hashes": ["x"]}]]), "hash that is of type str"),
        (
            pack([1.0, [{"type": "BlockStored", "block_hashes": [1], "token_ids": 5}]]),
            "token_ids is of type int",
        ),
        (pack([1.0, [], "zero"]), "data_parallel_rank is of type str"),
        (b"\x91" * 5000, "not msgpack"),
    ],
)
def test_errors_say_where(wire: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decode_batch(wire)


numbers = st.one_of(st.integers(-(2**63), 2**64 - 1), st.none(), st.booleans(), st.floats(allow_nan=False))
words = st.one_of(st.none(), st.text(max_size=5), st.integers(0, 9), st.binary(max_size=9))
wild_events = st.builds(
    lambda kind, fields: {
        "type": kind,
        **{name: value for name, value in fields.items() if value != "left out"},
    },
    st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "BlockFrobbed"]),
    st.fixed_dictionaries(
        {
            "block_hashes": st.one_of(
                st.lists(st.integers(-(2**63), 2**64 - 1), max_size=3), st.lists(numbers), words
            )
        },
        optional={
            "parent_block_hash": st.one_of(numbers, st.binary(max_size=9)),
            "token_ids": st.one_of(
                st.none(), st.lists(numbers, max_size=3), st.lists(st.lists(numbers), max_size=2)
            ),
            **dict.fromkeys(("block_size", "group_idx", "kv_cache_spec_sliding_window"), numbers),
            **dict.fromkeys(
                ("lora_id", "medium", "lora_name", "cache_salt", "session_id", "ownership"), words
            ),
            "extra_keys": st.one_of(st.none(), st.lists(st.one_of(words, st.lists(words)), max_size=3)),
            "never_heard_of": numbers,
        },
    ),
)


@given(st.lists(wild_events, max_size=3), numbers, numbers, st.booleans())
def test_the_quick_way_reads_what_the_long_way_does(
    events: list[Any], ts: object, rank: object, has_rank: bool
) -> None:
    payload = msgspec.msgpack.encode([ts, events, rank] if has_rank else [ts, events])

    def told(quick: bool) -> object:
        with pytest.MonkeyPatch.context() as patch:
            if not quick:
                patch.setattr("cachemodel.kv_events.zmq_batch._decode_usual", lambda payload: None)
            try:
                return decode_batch(payload)
            except DecodeError as error:
                return str(error)

    assert told(quick=True) == told(quick=False)


def test_the_usual_form_takes_the_quick_way() -> None:
    event = BlockStored([1], 2, [3], 1, medium="GPU", extra_keys=[["t1"]], group_idx=0, cache_salt="t1")
    batch = KVEventBatch(1.5e9, [event, BlockRemoved([2**64 - 1], "GPU"), AllBlocksCleared()], 0)
    assert _decode_usual(encode_batch(batch)) == batch
