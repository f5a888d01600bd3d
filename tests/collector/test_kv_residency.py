"""What the view `kv_residency` makes of rows: who holds which block now, each block once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    KVEventBatch,
    encode_batch,
)
from collector.kv.stream import KvStream, Message
from tests.collector.support import HASHER
from tests.conftest import Database

START = 1.7e9


class Told:
    """Puts messages of publishers into the store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __call__(
        self, *messages: Sequence[Event], source: str = "kv", first: int = 0, at: float = 0, rank: int = 0
    ) -> None:
        """One life, or a part of one, of a publisher: a message a second from `at` on."""
        self.more(KvStream("s", source, rank, hasher=HASHER), *messages, first=first, at=at)

    def more(self, stream: KvStream, *messages: Sequence[Event], first: int = 0, at: float = 0) -> None:
        """The messages that follow in a stream."""
        payload = b""
        for number, events in enumerate(messages):
            ts = START + at + number
            batch = encode_batch(KVEventBatch(ts, list(events)))
            payload += b"".join(e.payload for e in stream.take(Message.read(first + number, batch, ts)))
        self._db.client.raw_insert("kv_events", insert_block=payload, fmt="JSONEachRow")

    def resident(self, columns: str = "medium, block, resident") -> list[tuple[object, ...]]:
        query = (
            f"SELECT {columns} FROM kv_residency WHERE server = 's' ORDER BY rank, medium, group_idx, block"
        )
        return [tuple(row) for row in self._db.client.query(query).result_rows]


@pytest.fixture
def told(db: Database) -> Told:
    return Told(db)


def store(*blocks: int, medium: str = "GPU", group: int | None = None) -> BlockStored:
    return BlockStored(blocks, None, list(range(len(blocks))), 1, medium=medium, group_idx=group)


def remove(*blocks: int, medium: str = "GPU", group: int | None = None) -> BlockRemoved:
    return BlockRemoved(blocks, medium, group)


def test_what_stands_at_the_edge_of_a_column_is_taken(told: Told, db: Database) -> None:
    """A value that a column cannot hold would have the store refuse all rows of its batch."""
    for number in (-1, 2**16, 2**32, 2**64, -(2**70)):
        odd = BlockStored(
            [1],
            None,
            [1],
            number if abs(number) < 2**63 else -1,
            'id\x00\n"\u2028',
            "\x00",
            "é" * 999,
            group_idx=-1,
        )
        told([odd, BlockRemoved([2**64 - 1], "x" * 999, 2**33, "y" * 999)], source=str(number))
    batch = KVEventBatch(START, [store(1)], rank=2**20)
    entries = KvStream("s", "rank", 4, hasher=HASHER).take(Message.read(0, encode_batch(batch), START))
    db.client.raw_insert("kv_events", insert_block=b"".join(e.payload for e in entries), fmt="JSONEachRow")
    rows = db.client.query(
        "SELECT count(), max(rank), countIf(group_idx IS NOT NULL) FROM kv_events"
    ).result_rows
    assert rows == [(11, 4, 0)]


def test_media_and_groups_are_apart(told: Told) -> None:
    told(
        [store(1, 2, group=0), store(1, group=1), store(1, medium="cpu")],
        [remove(1, group=0), remove(2, group=0)],
        [store(2, group=0)],
    )
    assert told.resident("medium, group_idx, block, resident, stored, removed, repeats") == [
        ("GPU", 0, 1, 0, 1, 1, 0),
        ("GPU", 0, 2, 1, 2, 1, 0),
        ("GPU", 1, 1, 1, 1, 0, 0),
        ("cpu", None, 1, 1, 1, 0, 0),
    ]


def test_a_full_report_is_counted_as_repeats(told: Told) -> None:
    told([store(1, 2)], [store(1, 2)], [remove(2)], [store(1)])
    assert told.resident("block, resident, stored, repeats") == [(1, 1, 3, 2), (2, 0, 2, 1)]


def test_ranks_of_a_tensor_parallel_group_tell_of_the_same_blocks(told: Told) -> None:
    for offset, source in enumerate(("tp0", "tp1")):
        told([store(1, 2)], [AllBlocksCleared()], [store(1)], source=source, at=offset / 10)
    assert told.resident("block, resident, stored, repeats") == [(1, 1, 4, 2), (2, 0, 2, 1)]


def test_data_parallel_ranks_are_apart(told: Told) -> None:
    told([store(1)], rank=0)
    told([store(1)], [remove(1)], rank=1)
    assert told.resident("rank, block, resident, repeats") == [(0, 1, 1, 0), (1, 1, 0, 0)]


def test_a_clear_is_of_the_device_and_what_follows_it_in_its_message_stays(told: Told) -> None:
    told([store(1, 2), store(1, medium="CPU")], [AllBlocksCleared(), store(2)])
    assert told.resident("medium, block, resident, repeats") == [
        ("CPU", 1, None, 0),
        ("GPU", 1, 0, 0),
        ("GPU", 2, 1, 0),
    ]


def test_after_a_gap_nothing_is_known_of_what_was_told_before(told: Told) -> None:
    stream = KvStream("s", "kv", 0, hasher=HASHER)
    told.more(stream, [store(1, 2), remove(2)])
    told.more(stream, [store(3)], first=5, at=5)
    assert told.resident() == [("GPU", 1, None), ("GPU", 2, None), ("GPU", 3, 1)]


def test_a_clear_after_a_gap_leaves_nothing_open_on_the_device(told: Told) -> None:
    stream = KvStream("s", "kv", 0, hasher=HASHER)
    told.more(stream, [store(1), store(1, medium="CPU")])
    told.more(stream, [AllBlocksCleared()], first=5, at=5)
    assert told.resident() == [("CPU", 1, None), ("GPU", 1, 0)]
    told.more(stream, [store(3)], first=9, at=9)
    assert told.resident() == [("CPU", 1, None), ("GPU", 1, None), ("GPU", 3, 1)]


def test_a_restart_empties_device_and_host(told: Told) -> None:
    stream = KvStream("s", "kv", 0, hasher=HASHER)
    told.more(stream, [store(1)], [store(1, medium="CPU")], [store(1, medium="STORAGE")])
    told.more(stream, [store(2)], at=10)
    assert told.resident() == [("CPU", 1, 0), ("GPU", 1, 0), ("GPU", 2, 1), ("STORAGE", 1, None)]


def test_who_joined_late_does_not_know_what_became_of_earlier_blocks(told: Told) -> None:
    told([store(1)])
    told([store(2)], first=9, at=10)
    assert told.resident() == [("GPU", 1, None), ("GPU", 2, 1)]


def test_an_index_that_drifts_shows(told: Told, db: Database) -> None:
    """LMCache pull requests 5076, 4768, 3938: stores on the host are told, removals never."""
    told(
        [BlockStored(list(range(1, 101)), None, (), 0, medium="cpu")],
        [store(*range(1, 11))],
        [remove(*range(1, 11))],
    )
    rows = db.client.query(
        "SELECT medium, countIf(resident = 1), sum(removed) FROM kv_residency WHERE server = 's'"
        " GROUP BY server, rank, medium ORDER BY medium"
    ).result_rows
    assert rows == [("GPU", 0, 10), ("cpu", 100, 0)]


def test_blocks_that_adapters_share_show(told: Told, db: Database) -> None:
    """vLLM issues 30931 and 44250: keys without the adapter, or with a name that two adapters have had."""

    def adapted(block: int, name: str, number: int, medium: str = "GPU") -> BlockStored:
        return BlockStored([block], None, [1], 1, lora_id=number, medium=medium, lora_name=name)

    told(
        [adapted(1, "sql", 1), adapted(2, "sql", 1), adapted(3, "sql", 1, "cpu")],
        [adapted(1, "sql", 2), adapted(2, "sql", 1), adapted(3, "chat", 2, "cpu")],
    )
    rows = db.client.query(
        "SELECT block, tier, groupUniqArray((lora_name, lora_id)) AS adapters FROM kv_events"
        " WHERE server = 's' AND action = 'stored' AND token_count IS NOT NULL"
        " GROUP BY server, block, tier HAVING length(adapters) > 1 ORDER BY block"
    ).result_rows
    assert [(block, tier, sorted(adapters)) for block, tier, adapters in rows] == [
        (1, "device", [("sql", "1"), ("sql", "2")]),
        (3, "host", [("chat", "2"), ("sql", "1")]),
    ]


def test_workers_with_different_seeds_show(told: Told, db: Database) -> None:
    """LMCache issue 1139: equal prompts have other hashes in each process, so that none finds the other's blocks."""
    prompt, other = list(range(32)), list(range(100, 132))
    told([BlockStored([1], None, prompt, 32), BlockStored([5], None, other, 32)], rank=0)
    told([BlockStored([2], None, prompt, 32), BlockStored([5], None, other, 32)], rank=1)
    rows = db.client.query(
        "SELECT uniqExact(rank), groupUniqArray(block) FROM kv_events"
        " WHERE server = 's' AND content IS NOT NULL GROUP BY content, block_size HAVING uniqExact(block) > 1"
    ).result_rows
    assert [(ranks, sorted(blocks)) for ranks, blocks in rows] == [(2, [1, 2])]
