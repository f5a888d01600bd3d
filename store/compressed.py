"""ClickHouse's compressed blocks, of which `compress=1` makes answers and `decompress=1` takes bodies.

A block: the checksum (16 bytes, CityHash128 of ClickHouse's version of all that follows), the method, the size of the
compressed block with its nine bytes of head, the size of its data, the data.

Source: ClickHouse's documentation of the native protocol, page "Compression".
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from enum import IntEnum

import lz4.block
from clickhouse_cityhash.cityhash import CityHash128

from store.errors import EngineError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK_BYTES = 1 << 20  # of data in a block that is made here
_CHECKSUM_BYTES = 16
_HEAD = struct.Struct("<BII")


class _Method(IntEnum):
    NONE = 0x02
    LZ4 = 0x82
    ZSTD = 0x90


def compress(data: bytes) -> bytes:
    """`data` as LZ4 blocks."""
    blocks: list[bytes] = []
    for start in range(0, len(data), BLOCK_BYTES):
        part = data[start : start + BLOCK_BYTES]
        packed = lz4.block.compress(part, store_size=False)
        block = _HEAD.pack(_Method.LZ4, len(packed) + _HEAD.size, len(part)) + packed
        blocks += (_checksum(block), block)
    return b"".join(blocks)


def decompress(body: bytes, most_bytes: int, most_blocks: int) -> bytes:
    """The data of all blocks; raises EngineError for a damaged one, or past a bound."""
    parts: list[bytes] = []
    size = 0
    for method, packed, data_size in _blocks(body):
        size += data_size
        if size > most_bytes:
            raise EngineError(307, f"a body may have {most_bytes} bytes at most", "TOO_MANY_BYTES")
        if len(parts) == most_blocks:
            raise EngineError(
                307, f"a body may have {most_blocks} compressed blocks at most", "TOO_MANY_BYTES"
            )
        parts.append(_unpack(method, packed, data_size))
    return b"".join(parts)


def _blocks(body: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Method, compressed data and size of the data, block by block, checksums verified."""
    position = 0
    while position < len(body):
        start = position + _CHECKSUM_BYTES
        if start + _HEAD.size > len(body):
            raise _damaged("ends inside a block's head")
        method, packed_size, data_size = _HEAD.unpack_from(body, start)
        position = start + packed_size
        if packed_size < _HEAD.size or position > len(body):
            raise _damaged("ends inside a block")
        block = body[start:position]
        if body[start - _CHECKSUM_BYTES : start] != _checksum(block):
            raise EngineError(
                40, "the checksum of a compressed block does not match", "CHECKSUM_DOESNT_MATCH"
            )
        yield method, block[_HEAD.size :], data_size


def _checksum(block: bytes) -> bytes:
    """The library gives one number, whose upper half ClickHouse writes first."""
    upper, lower = divmod(CityHash128(block), 1 << 64)
    return struct.pack("<QQ", upper, lower)


def _unpack(method: int, packed: bytes, data_size: int) -> bytes:
    try:
        match method:
            case _Method.LZ4:
                data: bytes = lz4.block.decompress(packed, uncompressed_size=data_size)
            case _Method.ZSTD:
                data = zstd.ZstdDecompressor().decompress(packed, data_size + 1)
            case _Method.NONE:
                data = packed
            case _:
                raise EngineError(
                    432, f"the compression method {method:#x} is not known here", "UNKNOWN_CODEC"
                )
    except (lz4.block.LZ4BlockError, zstd.ZstdError, ValueError, MemoryError) as error:
        raise _damaged(f"holds a block that cannot be unpacked: {error}") from None
    if len(data) != data_size:
        raise _damaged("holds a block of another size than it says")
    return data


def _damaged(what: str) -> EngineError:
    return EngineError(271, f"the compressed body {what}", "CANNOT_DECOMPRESS")
