"""The index of a publisher's streams in a file, so that a collector that starts again need not read it all back.

    magic            hitmap-kv-index/2, a line
    chunks           8 bytes of length, then the bytes: a msgpack header, then for each rank it names the columns of its
                     table, what each of its places was told, and its orphans as msgpack, in its order
    digest           BLAKE2b of the chunks, 16 bytes

Written beside the file and put in its place at once. What is damaged, of another server, installation or version is
told of (SnapshotError) and ignored: all that is in it can be had from the store.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from cachemodel.content import ContentHasher
from cachemodel.residency import Completeness
from collector.kv.index import MAX_BLOCKS, BlockIndex
from collector.kv.orphans import Orphan
from collector.kv.table import COLUMNS, BlockTable

_MAGIC = b"hitmap-kv-index/2\n"
_DIGEST_BYTES = 16
_MAX_CHUNK = 1 << 30
_orphans = msgspec.msgpack.Decoder(list[Orphan]).decode


class SnapshotError(ValueError):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class SavedStream:
    """A stream as it stood: its life, its last message and when that was made (Unix seconds), the last message that
    left a row, and what each rank held."""

    epoch: float
    last: int
    last_ts: float
    last_stored: int
    ranks: Mapping[int, BlockIndex]


def save(path: Path, server: str, hasher: ContentHasher, streams: Mapping[str, SavedStream]) -> None:
    """Write streams, by source. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
            file.write(_MAGIC)
            for chunk in _chunks(server, hasher, streams):
                data = memoryview(chunk).cast("B")
                for part in (data.nbytes.to_bytes(8, "little"), data):
                    file.write(part)
                    digest.update(part)
            file.write(digest.digest())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: Path, server: str, hasher: ContentHasher) -> dict[str, SavedStream]:
    """Streams by source. Raises SnapshotError where the file is no such, FileNotFoundError where there is none."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise SnapshotError("it is no index of this version")
            return _read(file, path.stat().st_size, server, hasher)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SnapshotError(error.strerror or str(error)) from None
    except (
        msgspec.MsgspecError,
        KeyError,
        IndexError,
        ValueError,
        TypeError,
        OverflowError,
        EOFError,
    ) as error:
        raise error if isinstance(error, SnapshotError) else SnapshotError("it is damaged") from None


def _chunks(server: str, hasher: ContentHasher, streams: Mapping[str, SavedStream]) -> Iterator[Any]:
    header = {
        "server": server,
        "key": hasher.text("the key of this index"),
        "streams": [
            {
                "source": source,
                "at": [stream.epoch, stream.last, stream.last_ts, stream.last_stored],
                "ranks": [_described(rank, index) for rank, index in stream.ranks.items()],
            }
            for source, stream in streams.items()
        ],
    }
    yield msgspec.msgpack.encode(header)
    for stream in streams.values():
        for index in stream.ranks.values():
            yield from index.table.columns().values()
            yield from (place.told for place in index.places.values())
            yield msgspec.msgpack.encode(list(index.orphans))


def _described(rank: int, index: BlockIndex) -> dict[str, Any]:
    return {
        "rank": rank,
        "lost": index.complete.lost,
        "cleared": sorted(index.complete.cleared),
        "ends": [index.table.oldest, index.table.newest],
        "places": [[place.medium, place.ownership, place.forgot] for place in index.places.values()],
    }


def _read(file: IO[bytes], size: int, server: str, hasher: ContentHasher) -> dict[str, SavedStream]:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def chunk() -> bytes:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) != 8 or length > min(size, _MAX_CHUNK):
            raise SnapshotError("it is damaged")
        data = file.read(length)
        digest.update(head)
        digest.update(data)
        return data

    header = msgspec.msgpack.decode(chunk())
    if header["server"] != server:
        raise SnapshotError(f"it is of the server {header['server']}")
    if header["key"] != hasher.text("the key of this index"):
        raise SnapshotError("it was made with the key of another installation")
    streams = {}
    for told in header["streams"]:
        epoch, last, last_ts, last_stored = told["at"]
        ranks = {rank["rank"]: _index(rank, hasher, chunk) for rank in told["ranks"]}
        streams[told["source"]] = SavedStream(epoch, last, last_ts, last_stored, ranks)
    if file.read() != digest.digest():
        raise SnapshotError("it is damaged")
    return streams


def _index(told: Mapping[str, Any], hasher: ContentHasher, chunk: Any) -> BlockIndex:
    oldest, newest = told["ends"]
    table = BlockTable.of(MAX_BLOCKS, oldest, newest, {name: chunk() for name in COLUMNS})
    index = BlockIndex(hasher, table, Completeness(lost=told["lost"], cleared=told["cleared"]))
    for medium, ownership, forgot in told["places"]:
        place = index.place(medium, ownership)
        if place is None:
            raise SnapshotError("it has more places than fit")
        place.forgot, place.told = forgot, bytearray(chunk())
        if len(place.told) != len(table):
            raise SnapshotError("it is damaged")
    for orphan in _orphans(chunk()):
        index.orphans.put(orphan)
    return index
