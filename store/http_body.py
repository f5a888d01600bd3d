"""The body of a request: received within a bound, then decompressed, which is work for a thread."""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from starlette.requests import Request

from store import compressed
from store.errors import EngineError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Clients send a frame for each block of rows. A frame costs some microseconds however small it is, and a body of
# nothing but empty ones would keep a thread for long.
MAX_FRAMES = 1 << 15
_CHUNK = (
    1 << 16
)  # what a decompressor is given at once: it copies what is left of it at the end of each frame


class Bodies:
    """What the bodies under way hold together, in bytes. For the one event loop that receives them."""

    def __init__(self, most_bytes: int) -> None:
        self._room = most_bytes

    @asynccontextmanager
    async def received(self, request: Request, most_bytes: int) -> AsyncIterator[bytes]:
        """The body as sent, which counts as held within the context.

        Raises EngineError when it has more than `most_bytes`, or there is no room for it beside the others.
        """
        body = io.BytesIO()  # grows in place and gives its bytes away: a join would take them twice
        held = 0
        try:
            async for part in request.stream():
                held += len(part)
                self._room -= len(part)
                if held > most_bytes:
                    raise _too_large(f"{most_bytes} bytes")
                if self._room < 0:
                    raise EngineError(
                        202, "too many bodies at once; try again later", "TOO_MANY_SIMULTANEOUS_QUERIES"
                    )
                body.write(part)
            yield body.getvalue()
        finally:
            self._room += held


def decode_body(body: bytes, encoding: str, blocks: bool, most_bytes: int) -> bytes:
    """The body without its Content-Encoding and, where `blocks` says so, out of ClickHouse's compressed blocks.

    Raises EngineError when it is damaged, has more than `most_bytes` or more than MAX_FRAMES frames or blocks.
    """
    if encoding != "identity":
        body = _decompress(body, encoding, most_bytes)
    return compressed.decompress(body, most_bytes, MAX_FRAMES) if blocks else body


class _Decompressor(Protocol):
    """What zlib, lz4 and zstd have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> Any: ...
    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


def _decompressor(encoding: str) -> _Decompressor:
    match encoding:
        case "gzip":
            return zlib.decompressobj(wbits=31)
        case "deflate":
            return zlib.decompressobj()
        case "zstd":
            return zstd.ZstdDecompressor()
        case "lz4":
            from lz4.frame import LZ4FrameDecompressor

            decompressor: _Decompressor = LZ4FrameDecompressor()
            return decompressor
    raise EngineError(1, f"the content encoding {encoding!r} is not known here", "UNSUPPORTED_METHOD")


def _decompress(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """All frames of `body`."""
    data, position = memoryview(body), 0
    parts: list[bytes] = []
    room, frames = most_bytes, 0
    while position < len(data):
        frames += 1
        if frames > MAX_FRAMES:
            raise _too_large(f"{MAX_FRAMES} compressed frames")
        frame = _decompressor(encoding)
        while not frame.eof:
            chunk = data[position : position + _CHUNK]
            if not chunk:
                raise EngineError(354, f"the body ends inside its {encoding} frame", "CANNOT_DECOMPRESS")
            try:
                part = frame.decompress(chunk, room + 1)
            except Exception as error:  # each library raises its own
                raise EngineError(
                    354, f"the body is no valid {encoding}: {error}", "CANNOT_DECOMPRESS"
                ) from None
            if len(part) > room:
                raise _too_large(f"{most_bytes} bytes")
            parts.append(part)
            room -= len(part)
            position += len(chunk)
        position -= len(frame.unused_data or b"")
    return b"".join(parts)


def _too_large(what: str) -> EngineError:
    return EngineError(307, f"a body may have {what} at most", "TOO_MANY_BYTES")
