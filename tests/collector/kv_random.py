"""Random streams of KV events: few blocks, so that they meet; with gaps, restarts, and messages nobody can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
from hypothesis import strategies as st

from cachemodel.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    KVEventBatch,
    encode_batch,
)
from collector.kv.index import block_key
from collector.kv.stream import KvStream, Message
from collector.sink import Entry
from tests.collector.support import HASHER

START = 1.7e9
BLOCKS = range(1, 9)
MEDIA = ("GPU", "CPU", "STORAGE", None)
OWNERS = (None, "a")
GROUPS = (None, 3)

blocks = st.sampled_from(BLOCKS)
medium, owner, group = st.sampled_from(MEDIA), st.sampled_from(OWNERS), st.sampled_from(GROUPS)
several = st.lists(blocks, min_size=1, max_size=3, unique=True)


def tokens_of(block: int) -> list[int]:
    """What a block of these streams holds."""
    return [block, 100 + block]


def parent_of(block: int) -> int | None:
    """The block before it: a tree, since a chained hash names all that is before it."""
    return block // 2 or None


def _stored(of: Sequence[int], where: str | None, whose: str | None, number: int | None) -> list[Event]:
    return [
        BlockStored(
            *([block], parent_of(block), tokens_of(block), 2),
            medium=where,
            ownership=whose,
            group_idx=number,
            extra_keys=[["image"]] if block == 4 else None,
        )
        for block in of
    ]


events: st.SearchStrategy[list[Event]] = st.one_of(
    st.builds(_stored, several, medium, owner, group),
    st.builds(_stored, several, medium, owner, group),
    st.builds(lambda of, *where: [BlockRemoved(of, *where)], several, medium, group, owner),
    st.builds(lambda of, where: [BlockStored(of, token_ids=(), block_size=0, medium=where)], several, medium),
    st.builds(lambda whose: [AllBlocksCleared(whose)], owner),
)


@dataclass(frozen=True)
class Step:
    """A message: how many before it were lost; whether the publisher began again before it; None: unreadable."""

    lost: int
    restarted: bool
    told: list[Event] | None


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([0] * 8 + [1, 2]),
        st.sampled_from([False] * 12 + [True]),
        st.one_of(
            *[st.lists(events, min_size=1, max_size=3).map(lambda parts: list(chain(*parts)))] * 9, st.none()
        ),
    ),
    min_size=1,
    max_size=12,
)


def messages(said: Iterable[Step]) -> list[Message]:
    """The messages of a publisher as they are read, a second apart."""
    made, seq = [], -1
    for second, step in enumerate(said):
        ts = START + second
        seq = step.lost if step.restarted else seq + 1 + step.lost
        payload = b"\xc1" if step.told is None else encode_batch(KVEventBatch(ts, step.told))
        made.append(Message.read(seq, payload, ts))
    return made


def stream(**options: Any) -> KvStream:
    return KvStream("s", "kv", 0, hasher=HASHER, **options)


def taken(into: KvStream, said: Iterable[Message]) -> list[Entry]:
    return [entry for message in said for entry in into.take(message)]


def rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for entry in entries for line in entry.payload.splitlines()]


def known(of: KvStream) -> dict[tuple[object, ...], object]:
    """All that an index can be asked: where each block is, and where it stands."""
    found: dict[tuple[object, ...], object] = {}
    for rank, index in of.ranks.items():
        for number in GROUPS:
            for block in BLOCKS:
                found[rank, number, block] = index.lineage_of(block_key(block, number))
                for where in MEDIA:
                    for whose in OWNERS:
                        place = (where or "", whose or "")
                        found[rank, number, block, *place] = index.holds(block, *place, number)
        found[rank, "orphans"] = sorted(orphan.key for orphan in index.orphans)
    return found
