"""Bodies of OTLP/HTTP requests, decompressed within bounds: of bytes, and of the pieces a body may consist of."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from collector.otlp.check import MalformedError
from collector.otlp.intake import OversizedError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A gzip or zstd body may be several, one after the other; each costs a copy of what follows it.
MOST_MEMBERS = 64
ZSTD_WINDOW_LOG = 23  # 8 MiB, what every zstd decoder has to support (RFC 8878)

_NEW: Mapping[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "deflate": zlib.decompressobj,
    "zstd": lambda: zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
    ),
}
ENCODINGS = ("identity", *_NEW)


def decompressed(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """A body in one of ENCODINGS as it was before. Raises MalformedError, and OversizedError past `most_bytes`."""
    if encoding == "identity":
        return body
    parts: list[bytes] = []
    room = most_bytes
    for _ in range(MOST_MEMBERS):
        member = _NEW[encoding]()
        try:
            part = member.decompress(body, room + 1)
        except (zlib.error, zstd.ZstdError) as error:
            raise MalformedError(f"the body is no valid {encoding}: {error}") from None
        room -= len(part)
        if room < 0:
            raise OversizedError(
                f"a request may have {most_bytes} bytes once decompressed; send smaller batches"
            )
        if not member.eof:
            raise MalformedError(f"the body ends inside its {encoding} data")
        parts.append(part)
        body = member.unused_data
        if not body:
            return b"".join(parts)
    raise MalformedError(f"the body consists of more than {MOST_MEMBERS} pieces of {encoding} data")
