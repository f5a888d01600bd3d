"""Takes a request of ClickHouse's HTTP interface apart: who asks, which statement, which data, which settings.

A statement stands in the URL parameter `query`, in the body, or starts in one and goes on in the other. Values of
`{name:Type}` come as `param_name`; every other parameter of the URL is a setting.
"""

from __future__ import annotations

import base64
import re
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from store.engine import EngineError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Parameters that belong to the transport, not to the engine.
TRANSPORT = frozenset(
    {
        "buffer_size",
        "cancel_http_readonly_queries_on_client_close",
        "client_protocol_version",
        "compress",
        "database",
        "decompress",
        "default_format",
        "enable_http_compression",
        "http_headers_progress_interval_ms",
        "http_response_headers",
        "password",
        "query",
        "query_id",
        "quota_key",
        "readonly",
        "role",
        "send_progress_in_http_headers",
        "session_check",
        "session_id",
        "session_timeout",
        "user",
        "wait_end_of_query",
    }
)

# An INSERT whose data stands apart: neither SELECT nor VALUES before its FORMAT.
_INSERT_HEAD = re.compile(
    rb"\s*(INSERT\s(?:(?!\b(?:SELECT|VALUES)\b).)*?)\bFORMAT\s+(\w+)[ \t]*(?:\r?\n|;|$)",
    re.IGNORECASE | re.DOTALL,
)
_INSERT_HEAD_BYTES = 65536
MAX_FORMAT_CLAUSE = 512
_TRAILING_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*(?:SETTINGS\s[^;]*)?;?\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """One request, taken apart. insert_format: the format of `data`, None where the statement is all there is."""

    sql: str
    data: bytes
    insert_format: str | None
    database: str
    output_format: str
    settings: Mapping[str, str]
    params: Mapping[str, str]


def read_call(request: Request, body: bytes, default_database: str) -> Call:
    """The call that `request` with its decoded `body` makes."""
    url = dict(request.query_params)
    headers = request.headers
    sql, data, insert_format = _statement(url.get("query", ""), body)
    # Only the end is looked at: the search is quadratic in runs of blanks, and this runs on the event loop.
    named = _TRAILING_FORMAT.search(sql.rstrip()[-MAX_FORMAT_CLAUSE:])
    return Call(
        sql=sql.strip().rstrip(";"),
        data=data,
        insert_format=insert_format,
        database=url.get("database") or headers.get("x-clickhouse-database") or default_database,
        output_format=(
            named[1]
            if named
            else headers.get("x-clickhouse-format") or url.get("default_format") or "TabSeparated"
        ),
        settings={k: v for k, v in url.items() if k not in TRANSPORT and not k.startswith("param_")},
        params={k.removeprefix("param_"): v for k, v in url.items() if k.startswith("param_")},
    )


def read_credentials(request: Request) -> tuple[str, str]:
    """User and password, both empty where the request names none; raises EngineError for a malformed header."""
    authorization = request.headers.get("authorization", "")
    if authorization.lower().startswith("basic "):
        try:
            user, _, password = base64.b64decode(authorization[6:]).decode().partition(":")
        except ValueError:
            raise EngineError(516, "malformed Authorization header", "AUTHENTICATION_FAILED") from None
        return user, password
    user = request.headers.get("x-clickhouse-user") or request.query_params.get("user", "")
    return user, request.headers.get("x-clickhouse-key") or request.query_params.get("password", "")


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The body, decompressed; raises EngineError when it has more than `most_bytes`, compressed or not."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise _too_large(most_bytes)
        parts.append(part)
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    encoding = request.headers.get("content-encoding", "identity")
    return body if encoding == "identity" else _decompress(body, encoding, most_bytes)


class _Decompressor(Protocol):
    """What zlib, lz4 and zstd have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> Any: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


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
    """All frames of `body`: clickhouse-connect sends one a block."""
    parts, room = [], most_bytes
    while body:
        frame = _decompressor(encoding)
        try:
            part = frame.decompress(body, room + 1)
        except Exception as error:  # each library raises its own
            raise EngineError(354, f"the body is no valid {encoding}: {error}", "CANNOT_DECOMPRESS") from None
        if len(part) > room:
            raise _too_large(most_bytes)
        if not frame.eof:
            raise EngineError(354, f"the body ends inside its {encoding} frame", "CANNOT_DECOMPRESS")
        parts.append(part)
        room -= len(part)
        body = bytes(frame.unused_data or b"")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(most_bytes: int) -> EngineError:
    return EngineError(307, f"a body may have {most_bytes} bytes at most", "TOO_MANY_BYTES")


def _statement(in_url: str, body: bytes) -> tuple[str, bytes, str | None]:
    """The statement, the data that follows an INSERT, and the data's format; body bytes are copied at most once."""
    if in_url and (found := _INSERT_HEAD.match(in_url.encode() + b"\n")):
        return found[1].decode().strip(), body, found[2].decode()
    if not in_url and (found := _INSERT_HEAD.match(body[:_INSERT_HEAD_BYTES])):
        return found[1].decode(errors="replace").strip(), body[found.end() :], found[2].decode()
    text = body.decode(errors="replace")
    return (f"{in_url}\n{text}" if in_url and text else in_url or text), b"", None
