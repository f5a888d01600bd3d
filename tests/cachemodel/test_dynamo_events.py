"""Dynamo's router events in each serialisation. They are made from the field names and orders; none was recorded."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, DecodeError, UnknownEvent
from cachemodel.kv_events.dynamo import RouterEvent, decode_router_events

pack = msgspec.msgpack.encode

STORED = {
    "parent_hash": 9,
    "blocks": [{"block_hash": 1, "tokens_hash": 5}, {"block_hash": 2**64 - 2, "tokens_hash": 6}],
}
AS_MAP = {
    "worker_id": 77,
    "storage_tier": "host_pinned",
    "event": {"event_id": 3, "data": {"stored": STORED}, "dp_rank": 2},
}
BY_POSITION = [77, "host_pinned", [3, {"stored": [9, None, [[1, 5, None], [2**64 - 2, 6, None]]]}, 2]]
OLDER = [77, [3, {"stored": [9, [[1, 5], [2**64 - 2, 6]]]}, 2]]
EXPECTED = RouterEvent(77, 3, BlockStored([1, 2**64 - 2], 9, medium="host_pinned", tells_tokens=False), 2)


@pytest.mark.parametrize(
    "payload",
    [json.dumps(AS_MAP).encode(), pack(AS_MAP), pack(BY_POSITION)],
    ids=["json", "map", "positions"],
)
def test_one_event_in_every_form(payload: bytes) -> None:
    assert decode_router_events(payload) == [EXPECTED]


def test_before_there_were_tiers_all_was_on_the_device() -> None:
    event = BlockStored([1, 2**64 - 2], 9, medium="device", tells_tokens=False)
    assert decode_router_events(pack(OLDER)) == [RouterEvent(77, 3, event, 2)]


@pytest.mark.parametrize("several", [False, True], ids=["one", "a batch"])
def test_envelopes(several: bool) -> None:
    inner = [AS_MAP, AS_MAP] if several else AS_MAP
    names = ("publisher_id", "sequence", "published_at", "topic")
    told = (77, 12, 1_764_000_000_250, "kv-events")
    wires = [
        pack([*told, pack(inner)]),
        pack(dict(zip(names, told, strict=True)) | {"payload": pack(inner)}),
        json.dumps(
            dict(zip(names, told, strict=True)) | {"payload": list(json.dumps(inner).encode())}
        ).encode(),
    ]
    expected = RouterEvent(77, 3, EXPECTED.event, 2, 1_764_000_000.25)
    for wire in wires:
        assert decode_router_events(wire) == [expected] * (2 if several else 1)


def test_the_other_kinds() -> None:
    def event(data: Any) -> object:
        return decode_router_events(pack([1, "device", [4, data, 0]]))[0].event

    assert event({"removed": [[3, 4]]}) == BlockRemoved([3, 4], "device")
    assert event({"removed": {"block_hashes": [3]}}) == BlockRemoved([3], "device")
    assert event("cleared") == AllBlocksCleared()
    assert event({"cleared": None}) == AllBlocksCleared()
    assert event({"pooled": 5}) == UnknownEvent("pooled", {"data": 5})
    image = [1, 5, [[[0xABC, [[0, 4]]]]]]
    assert event({"stored": [None, 0, [image]]}) == BlockStored(
        [1], medium="device", extra_keys=[[0xABC]], tells_tokens=False, unknown={"start_position": 0}
    )


def test_a_root_without_tokens_is_no_placeholder() -> None:
    event = decode_router_events(pack([1, "device", [4, {"stored": [None, None, [[1, 5, None]]]}, 0]]))[
        0
    ].event
    assert isinstance(event, BlockStored)
    assert not event.is_placeholder


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"", "neither JSON nor msgpack"),
        (b"{", "neither JSON nor msgpack"),
        (pack(5), "a router event is of type int"),
        (pack([1, "device", [None, "cleared", 0]]), "lacks its worker_id or event_id"),
        (pack([1, "device", [4, {}, 0]]), "does not have one kind"),
        (pack([1, "device", [4, {"stored": [None, None, [["x"]]]}, 0]]), "hash that is of type str"),
        (pack([1, 2, 3, "topic", "payload"]), "an event is of type int"),
    ],
)
def test_errors_say_where(wire: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decode_router_events(wire)


@given(st.sampled_from([pack(AS_MAP), pack(BY_POSITION), json.dumps(AS_MAP).encode()]), st.data())
def test_mutations_raise_nothing_but_decode_errors(payload: bytes, data: st.DataObject) -> None:
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        decode_router_events(bytes(changed[: data.draw(st.integers(0, len(changed)))]))


@given(st.binary(max_size=64))
def test_noise_raises_nothing_but_decode_errors(noise: bytes) -> None:
    with suppress(DecodeError):
        decode_router_events(noise)
