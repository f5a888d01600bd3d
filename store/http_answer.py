"""Sends a result: its blocks encoded as the client asked, an error in their midst, headers that tell what was done.

An error after the first block, when the status line is out, ends the result as with ClickHouse: between two markers
with the tag that `X-ClickHouse-Exception-Tag` announced, and the connection with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from lz4.frame import LZ4FrameCompressor
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from store import compressed
from store.engine import KEPT_BYTES, Blocks
from store.errors import EngineError
from store.handles import Statement

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

log = logging.getLogger(__name__)

STATUS_OF_CODE = {
    36: 400,
    46: 404,
    47: 404,
    60: 404,
    62: 400,
    73: 400,
    81: 404,
    164: 403,
    202: 503,
    216: 409,
    241: 507,
    307: 413,
    372: 404,
    497: 403,
    516: 401,
}
_IN_MEMORY_BYTES = 8 << 20
_READ_BYTES = 1 << 20
_COMPRESSION_LEVEL = 3  # ClickHouse's own
# What we prefer of that which a client accepts; its own order says nothing, as curl and browsers send it.
_PREFERENCE = ("zstd", "lz4", "gzip", "deflate")

Feed = Callable[[bytes], bytes]
End = Callable[[], bytes]


@dataclass(frozen=True)
class Encoding:
    """How a client wants a result. content: its Content-Encoding; blocks: ClickHouse's compressed blocks inside it."""

    content: str = ""
    blocks: bool = False

    @classmethod
    def asked_by(cls, request: Request) -> Encoding:
        """As in ClickHouse, a Content-Encoding has to be asked for twice."""
        url = request.query_params
        blocks = url.get("compress") in ("1", "true")
        if url.get("enable_http_compression") not in ("1", "true"):
            return cls("", blocks)
        accepted = {
            word.partition(";")[0].strip().lower()
            for word in request.headers.get("accept-encoding", "").split(",")
            if not re.search(r";\s*q=0(\.0*)?\s*$", word)
        }
        return cls(next((name for name in _PREFERENCE if name in accepted), ""), blocks)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that say so."""
        return {"Content-Encoding": self.content, "Vary": "Accept-Encoding"} if self.content else {}

    def encode(self, blocks: Iterable[bytes]) -> Blocks:
        """`blocks` so encoded."""
        feed, end = _coder(self.content)
        for block in blocks:
            if data := feed(compressed.compress(block) if self.blocks else block):
                yield data
        if data := end():
            yield data

    def encode_all(self, data: bytes) -> bytes:
        """`data` so encoded."""
        return b"".join(self.encode([data]))


def _coder(content: str) -> tuple[Feed, End]:
    match content:
        case "gzip" | "deflate":
            deflate = zlib.compressobj(_COMPRESSION_LEVEL, wbits=31 if content == "gzip" else 15)
            return deflate.compress, deflate.flush
        case "zstd":
            packer = zstd.ZstdCompressor(level=_COMPRESSION_LEVEL)
            return packer.compress, packer.flush
        case "lz4":
            frame = LZ4FrameCompressor()
            head = [frame.begin()]
            return lambda data: (head.pop() if head else b"") + frame.compress(data), frame.flush
    return lambda data: data, lambda: b""


class Answer(Response):
    """Sends blocks. Their handle is free afterwards, be it after the last one, an error, or because the client left.

    stall_s: how long the client may take for a block before it is given up.
    """

    def __init__(self, blocks: Blocks, encoding: Encoding, headers: dict[str, str], stall_s: float) -> None:
        self._blocks, self._encoding, self._stall_s = blocks, encoding, stall_s
        self._tag = secrets.token_hex(8)
        headers = headers | encoding.headers | {"X-ClickHouse-Exception-Tag": self._tag}
        super().__init__(headers=headers, media_type=_media_type(headers["X-ClickHouse-Format"]))
        del self.headers["content-length"]
        self._failed: EngineError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                async for part in self._parts():
                    await self._send(send, part)
            if self._failed:
                # the connection ends without the last chunk, for clients that look for no marker
                raise self._failed
            await self._send(send, b"", more=False)
        finally:
            self._blocks.close()

    async def _send(self, send: Send, part: bytes, *, more: bool = True) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await send({"type": "http.response.body", "body": part, "more_body": more})
        except TimeoutError:
            raise EngineError(
                209,
                f"the client did not take a block of its result in {self._stall_s:.0f} s",
                "SOCKET_TIMEOUT",
            ) from None

    def _parts(self) -> AsyncIterator[bytes]:
        return iterate_in_threadpool(self._encoding.encode(self._marked()))

    def _marked(self) -> Blocks:
        """The blocks, and after them why they end too early."""
        try:
            yield from self._blocks
        except Exception as error:
            self._failed = told(error)
            message = f"{self._failed}\n"
            size = len(message.encode())
            yield f"\r\n__exception__\r\n{self._tag}\r\n{message}{size} {self._tag}\r\n__exception__\r\n".encode()


def told(error: Exception) -> EngineError:
    """What the client is told of `error`: ClickHouse's own words, or, of a failure of ours, that the log knows."""
    if isinstance(error, EngineError):
        return error
    log.error("a statement failed in the store itself", exc_info=error)
    return EngineError(1002, "the store failed; its log says why", "UNKNOWN_EXCEPTION")


def error_answer(error: EngineError, encoding: Encoding, headers: dict[str, str]) -> Response:
    """An error before the first block."""
    answer = PlainTextResponse(
        encoding.encode_all(f"{error}\n".encode()),
        status_code=STATUS_OF_CODE.get(error.code, 500),
        headers=headers | encoding.headers | {"X-ClickHouse-Exception-Code": str(error.code)},
    )
    if error.code == 516:  # so that a browser or curl --anyauth asks
        answer.headers["WWW-Authenticate"] = 'Basic realm="hitmap store"'
    return answer


def progress_headers(statement: Statement, *, with_reports: bool) -> list[tuple[str, str]]:
    """What has been read so far; with_reports: and on the way there, as X-ClickHouse-Progress."""
    reports = [*statement.reports, statement.progress] if with_reports else []
    lines = [("X-ClickHouse-Progress", _counts(report)) for report in reports]
    return [*lines, ("X-ClickHouse-Summary", _counts(statement.progress))]


def _counts(progress: Mapping[str, int]) -> str:
    return json.dumps({name: str(value) for name, value in progress.items()}, separators=(",", ":"))


def started(blocks: Blocks) -> Blocks:
    """`blocks` after the first one has come: a statement that fails at once does so here, before the status line."""

    def all_blocks() -> Blocks:
        with closing(blocks):
            first = next(blocks, b"")
            yield b""
            yield first
            yield from blocks

    return _begun(all_blocks())


def completed(blocks: Blocks, directory: str) -> Blocks:
    """`blocks` after the last one has come, out of a file in `directory`; raises EngineError where one fails."""

    def all_blocks() -> Blocks:
        with closing(blocks), tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=directory) as file:
            for block in blocks:
                file.write(block)
                if file.tell() > KEPT_BYTES:
                    raise EngineError(
                        396,
                        f"with wait_end_of_query a result may have {KEPT_BYTES} bytes at most",
                        "TOO_MANY_ROWS_OR_BYTES",
                    )
            yield b""
            file.seek(0)
            while block := file.read(_READ_BYTES):
                yield block

    return _begun(all_blocks())


def _begun(blocks: Blocks) -> Blocks:
    """A generator at its first yield: closing one that never ran would not run what it has to clean up."""
    next(blocks)
    return blocks


def _media_type(output_format: str) -> str:
    if output_format.startswith("JSON"):
        return "application/json; charset=UTF-8"
    binary = output_format.startswith(("Native", "RowBinary", "Arrow", "Parquet", "ORC", "Buffers"))
    return "application/octet-stream" if binary else "text/plain; charset=UTF-8"
