"""The Native format as clients of ClickHouse's protocol read it, made of the engine's columns.

`client_protocol_version` asks for two things more than a file in Native format has: a header before each block, and
after each column's type one byte that says whether its serialisation is a special one. The engine in this process knows
no client's version, but its format Buffers gives the columns of each block with their sizes: the rest is framing.

Source: ClickHouse's documentation of the formats Native and Buffers; what clickhouse-go reads over HTTP (its
lib/proto/block.go): block info, then columns with a flag from revision 54454 on.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from store.engine import Blocks
from store.errors import EngineError
from store.statement_kind import selects, shows

CUSTOM_SERIALIZATION_REVISION = (
    54454  # from this one on a column says whether its serialisation is a special one
)
# field 1: no overflow rows; field 2: bucket -1, which is none; 0: the end
_BLOCK_INFO = b"\x01\x00\x02\xff\xff\xff\xff\x00"
_PLAIN_SERIALIZATION = b"\x00"
# Buffers: columns and rows of a block, then of each column its size and itself
_BLOCK, _SIZE = struct.Struct("<QQ"), struct.Struct("<Q")

Run = Callable[[str, str], Blocks]  # (statement, format): its result
Column = tuple[str, str]  # name, type


def protocol_blocks(sql: str, run: Run) -> Blocks:
    """The result of `sql` in Native format for a client of revision 54454 or later; raises EngineError as `run` does.

    An empty result has no block, as in ClickHouse over HTTP. A statement that may change something runs once, and has
    no result; one that shows something may run twice, the first time for the names and types of its columns.
    """
    if not selects(sql) and not shows(sql):
        yield from run(sql, "Null")
        return
    heads = [_text(name) + _text(type_name) + _PLAIN_SERIALIZATION for name, type_name in _columns(sql, run)]
    with closing(run(sql, "Buffers")) as chunks:
        for chunk in chunks:
            position = 0
            while position < len(chunk):  # the engine may hand out several blocks at once
                count, rows = _BLOCK.unpack_from(chunk, position)
                if count != len(heads):
                    raise EngineError(1002, f"{len(heads)} columns were announced and {count} came")
                position += _BLOCK.size
                parts = [_BLOCK_INFO, _varint(count), _varint(rows)]
                for head in heads:
                    start = position + _SIZE.size
                    position = start + _SIZE.unpack_from(chunk, position)[0]
                    parts += (head, chunk[start:position])
                yield b"".join(parts)


def _columns(sql: str, run: Run) -> list[Column]:
    if selects(sql):
        described = _json(run(f"DESCRIBE TABLE (\n{sql}\n)", "JSONCompact"))["data"]
        return [(name, type_name) for name, type_name, *_ in described]
    return [(column["name"], column["type"]) for column in _json(run(sql, "JSONCompact"))["meta"]]


def _json(blocks: Blocks) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = json.loads(b"".join(blocks))
    return answer


def _text(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
