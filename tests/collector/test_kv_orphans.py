"""Blocks whose parent was not seen: kept, and placed when it is told of, for who looks for them by content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.kv_events import BlockRemoved, BlockStored, Event, KVEventBatch, encode_batch
from collector.kv.stream import KvStream, Message
from tests.collector.kv_random import START, known, rows, stream
from tests.collector.publisher import Frames
from tests.collector.support import HASHER
from tests.conftest import Database

RECORDED = 1.796e9  # when the recording was made
TOKENS = [[10 * block, 10 * block + 1] for block in range(6)]
CONTENTS = list(HASHER.chain([token for tokens in TOKENS for token in tokens], 2))


def block(number: int, medium: str = "GPU", **options: Any) -> BlockStored:
    """Block `number` of one chain, its hash that number plus 1."""
    return BlockStored([number + 1], number or None, TOKENS[number], 2, medium=medium, **options)


def take(into: KvStream, seq: int, *said: Event) -> list[dict[str, Any]]:
    payload = encode_batch(KVEventBatch(START + seq, said))
    return rows(into.take(Message.read(seq, payload, START + seq)))


def test_what_hung_on_a_block_is_placed_with_it() -> None:
    told = stream()
    take(told, 0, block(2), block(3), BlockRemoved([3], "GPU"), block(5, "CPU"))
    (place,) = take(told, 1, block(1))
    assert (place["depth"], "content" in place) == (None, False)
    found = take(told, 2, block(0))
    assert [(row["action"], row["block"], row["depth"]) for row in found] == [
        ("stored", 1, 0),
        ("resolved", 2, 1),
        *[("resolved", 3, 2)] * 2,
        ("resolved", 4, 3),
    ]
    assert [row["content"] for row in found] == [*CONTENTS[:3], CONTENTS[2], CONTENTS[3]]
    assert [row["pos"] for row in found] == [1, 2, 3, 4, 5]
    assert [json.loads(row["detail"])["told"] for row in found[1:]] == [
        {"action": "stored", "time": START + 1, "seq": 1, "pos": 1},
        {"action": "stored", "time": START, "seq": 0, "pos": 1},
        {"action": "removed", "time": START, "seq": 0, "pos": 3},
        {"action": "stored", "time": START, "seq": 0, "pos": 2},
    ]
    assert len(told.ranks[0].orphans) == 1, "the parent of block 5 was not told of"
    assert told.counts["resolved"] == 3


def test_a_block_of_which_a_connector_told_the_hash_only() -> None:
    told = stream()
    take(told, 0, BlockStored([1, 2], token_ids=(), block_size=0, medium="CPU"))
    found = take(told, 1, block(0), block(1))
    late = [row for row in found if row["action"] == "resolved"]
    assert [(row["block"], row["medium"], row["content"]) for row in late] == [
        (1, "CPU", CONTENTS[0]),
        (2, "CPU", CONTENTS[1]),
    ]


def test_a_salt_is_handed_down_to_what_is_placed_late() -> None:
    told = stream()
    take(told, 0, block(1, extra_keys=[["image"]]), block(2))
    found = take(told, 1, block(0, extra_keys=[["t1"]]))
    salt = HASHER.isolation(0, ["t1"])
    image = HASHER.isolation(salt, ["image"])
    assert [row["isolation"] for row in found] == [salt, image, image]


@given(st.permutations(range(6)), st.lists(st.sampled_from(range(6)), max_size=4))
def test_in_whatever_order_blocks_are_told_of_each_gets_its_place(order: list[int], again: list[int]) -> None:
    told = stream()
    seen = [row for seq, number in enumerate([*order, *again]) for row in take(told, seq, block(number))]
    index = told.ranks[0]
    assert len(index.orphans) == 0
    assert [index.table.content[index.table.find(number + 1)] for number in range(6)] == CONTENTS
    # every event can be found by content: at once, or by a later row that names it
    found = {(row["seq"], row["pos"]) for row in seen if row["action"] == "stored" and "content" in row}
    late = [json.loads(row["detail"])["told"] for row in seen if row["action"] == "resolved"]
    named = {(row["seq"], row["pos"]) for row in late}
    assert found.isdisjoint(named)
    assert len(late) == len(named)
    assert found | named == {(row["seq"], row["pos"]) for row in seen if row["action"] == "stored"}


def test_orphans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.kv.orphans.MAX_ORPHANS", 2)
    monkeypatch.setattr("collector.kv.orphans.MAX_TOLD", 3)
    told = stream()
    take(told, 0, block(1), block(3), *[block(5)] * 9)
    assert [orphan.block for orphan in told.ranks[0].orphans] == [4, 6]
    assert told.ranks[0].orphans.dropped == 1
    late = take(told, 1, *(block(number) for number in range(5)))
    of_last = [json.loads(r["detail"])["told"]["pos"] for r in late if r["block"] == 6]
    assert of_last == [9, 10, 11], "the newest"


def test_the_store_finds_them_at_the_time_they_were_told_of(db: Database) -> None:
    told = stream()
    said: list[list[Event]] = [
        [block(1, group_idx=2), block(1, "CPU", group_idx=2)],
        [BlockRemoved([2], "GPU", 2)],
        [block(0, group_idx=2)],
    ]
    payload = b"".join(
        entry.payload
        for seq, events in enumerate(said)
        for entry in told.take(
            Message.read(seq, encode_batch(KVEventBatch(START + seq + 0.25, events)), START + seq)
        )
    )
    db.client.raw_insert("kv_events", insert_block=payload, fmt="JSONEachRow")
    query = (
        "SELECT content, isolation, toFloat64(time), toFloat64(epoch), seq, pos, toString(action), tier, group_idx,"
        " block_size FROM kv_block_events ORDER BY seq, pos"
    )
    begun = START + 0.25
    assert db.client.query(query).result_rows == [
        (CONTENTS[1], 0, begun, begun, 0, 1, "stored", "device", 2, 2),
        (CONTENTS[1], 0, begun, begun, 0, 2, "stored", "host", 2, 2),
        (CONTENTS[1], 0, begun + 1, begun, 1, 1, "removed", "device", 2, 0),
        (CONTENTS[0], 0, begun + 2, begun, 2, 1, "stored", "device", 2, 2),
    ]


def test_a_late_full_report_places_what_the_recorded_server_told(messages: list[Frames]) -> None:
    """The first messages come after all others, as a full report would tell them: the index ends as the whole one."""
    whole, late = stream(), stream()
    read = [Message.read(seq, payload, RECORDED) for seq, (_, _, payload) in enumerate(messages[:60])]
    for message in read:
        whole.take(message)
    moved = [*read[20:], *read[:20]]
    seen = []
    for seq, message in enumerate(moved):
        seen += rows(late.take(Message(seq, RECORDED, RECORDED + seq, message.batch)))
    one, other = whole.ranks[0], late.ranks[0]
    assert {key: one.lineage_of(key) for key in one.table.keys} == {
        key: other.lineage_of(key) for key in one.table.keys
    }
    assert any(row["action"] == "resolved" for row in seen)
    assert known(late)[0, "orphans"] == []


def test_the_contents_of_the_recorded_run_are_those_of_its_chains(messages: list[Frames], run1: Path) -> None:
    told, batches = (
        stream(),
        [Message.read(seq, payload, RECORDED) for seq, (_, _, payload) in enumerate(messages)],
    )
    seen = [row for message in batches for row in rows(told.take(message))]
    prompts: dict[int, list[int]] = {}
    for message in batches:
        assert message.batch
        for event in message.batch.events:
            if isinstance(event, BlockStored):
                before = prompts.get(event.parent_block_hash or 0, [])
                for at, number in enumerate(event.block_hashes):
                    before = prompts[number] = before + list(event.token_ids[32 * at : 32 * at + 32])
    assert len(prompts) > 500
    expected = {number: list(HASHER.chain(tokens, 32))[-1] for number, tokens in prompts.items()}
    blocks = [row for row in seen if row["action"] in ("stored", "removed")]
    assert len(blocks) == 1215 + 938
    assert all(row["content"] == expected[row["block"]] for row in blocks)
    salts = {HASHER.isolation(0, [f"tenant-{n}"]) for n in (0, 1)}
    assert {row["isolation"] for row in blocks} == {0, *salts}
