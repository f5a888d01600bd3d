"""ClickHouse's HTTP interface over the embedded engine, as far as stock clients use it.

A request is a statement (URL parameter `query`, the body, or both: a statement and its data), settings and `param_*`
values in the URL, a user, perhaps a compressed body. The answer is the result in the statement's FORMAT, or an error
with ClickHouse's code in `X-ClickHouse-Exception-Code`.
"""

from __future__ import annotations

import base64
import gzip
import hmac
import json
import re
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from store.engine import Engine, EngineError
from store.guard import Guard, check_setting

MAX_BODY_BYTES = 512 * 1024 * 1024
WRITER = "writer"
# Parameters that belong to the transport, not to the engine.
TRANSPORT = frozenset(
    {
        "buffer_size",
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
STATUS_OF_CODE = {60: 404, 81: 404, 62: 400, 47: 404, 46: 404, 497: 403, 516: 401, 202: 503, 241: 507}

_TRAILING_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_INSERT_HEAD = re.compile(rb"^\s*(INSERT\s.*?)\bFORMAT\s+(\w+)[ \t]*(?:\r?\n|;|$)", re.IGNORECASE | re.DOTALL)
INSERT_HEAD_BYTES = 65536


@dataclass(frozen=True)
class Call:
    """One request, taken apart."""

    sql: str
    data: bytes
    insert_format: str | None
    database: str
    writer: bool
    settings: dict[str, str]
    params: dict[str, str]
    default_format: str


@dataclass(frozen=True)
class Result:
    """Blocks still to be sent and the headers that go before them."""

    blocks: Iterator[bytes]
    headers: dict[str, str]


class Interface:
    """The HTTP side of one engine. `password` is the writer's; everybody else is a reader."""

    def __init__(self, engine: Engine, password: str) -> None:
        self._engine = engine
        self._password = password
        self._guard = Guard(self._ask)
        self.app = Starlette(
            routes=[
                Route("/ping", _ping, methods=["GET"]),
                Route("/", self._handle, methods=["GET", "POST"]),
            ]
        )

    def _ask(self, sql: str) -> str:
        return b"".join(self._engine.query(sql, "TSVRaw")).decode()

    async def _handle(self, request: Request) -> Response:
        headers = {"X-ClickHouse-Query-Id": request.query_params.get("query_id") or str(uuid.uuid4())}
        try:
            body = _decoded(await _body(request), request.headers.get("content-encoding", ""))
            if not body and "query" not in request.query_params:
                return PlainTextResponse("Ok.\n")
            call = _call(request, body, self._is_writer(request))
            result = await run_in_threadpool(self._run, call)
        except EngineError as error:
            return _error(error, headers)
        headers |= {"X-ClickHouse-Timezone": "UTC"} | result.headers
        return StreamingResponse(
            iterate_in_threadpool(result.blocks), headers=headers, media_type=_media_type(result.headers)
        )

    def _is_writer(self, request: Request) -> bool:
        user, password = _credentials(request)
        if user != WRITER:
            return False
        if not hmac.compare_digest(password.encode(), self._password.encode()):
            raise EngineError(
                "Code: 516. DB::Exception: writer: Authentication failed: password is incorrect."
                " (AUTHENTICATION_FAILED)",
                516,
            )
        return True

    def _run(self, call: Call) -> Result:
        if call.insert_format and call.writer:
            rows = self._engine.insert(
                call.sql, call.insert_format, call.data, database=call.database, settings=call.settings
            )
            return Result(iter(()), {"X-ClickHouse-Summary": json.dumps({"written_rows": str(rows)})})
        if not call.writer:
            self._guard_call(call)
        output_format = _format_of(call.sql) or call.default_format
        blocks = self._engine.query(
            call.sql,
            output_format,
            writer=call.writer,
            database=call.database,
            params=call.params,
            settings=call.settings,
        )
        return Result(_started(blocks), {"X-ClickHouse-Format": output_format})

    def _guard_call(self, call: Call) -> None:
        for name in call.settings:
            check_setting(name)

        def ask(sql: str) -> str:
            return b"".join(
                self._engine.query(sql, "TSVRaw", database=call.database, params=call.params)
            ).decode()

        self._guard.check(call.sql, call.database, ask)


async def _ping(_: Request) -> Response:
    return PlainTextResponse("Ok.\n")


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise EngineError(
                f"Code: 307. DB::Exception: a body may have {MAX_BODY_BYTES} bytes at most (TOO_MANY_BYTES)",
                307,
            )
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decoded(body: bytes, encoding: str) -> bytes:
    decoders: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        "identity": bytes,
        "gzip": gzip.decompress,
        "deflate": zlib.decompress,
        "lz4": _unlz4,
        "zstd": _unzstd,
    }
    if encoding not in decoders:
        raise EngineError(f"Code: 1002. DB::Exception: the content encoding {encoding!r} is not known here")
    try:
        return decoders[encoding](body)
    except Exception as error:  # each library raises its own
        raise EngineError(f"Code: 1001. DB::Exception: the body is no valid {encoding}: {error}") from None


def _unlz4(body: bytes) -> bytes:
    import lz4.frame

    return bytes(lz4.frame.decompress(body))


def _unzstd(body: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.CompressedInputStream(pa.BufferReader(body), "zstd").read())


def _credentials(request: Request) -> tuple[str, str]:
    authorization = request.headers.get("authorization", "")
    if authorization.lower().startswith("basic "):
        try:
            user, _, password = base64.b64decode(authorization[6:]).decode().partition(":")
        except ValueError:
            raise EngineError(
                "Code: 516. DB::Exception: malformed Authorization (AUTHENTICATION_FAILED)", 516
            ) from None
        return user, password
    user = request.headers.get("x-clickhouse-user") or request.query_params.get("user", "")
    return user, request.headers.get("x-clickhouse-key") or request.query_params.get("password", "")


def _call(request: Request, body: bytes, writer: bool) -> Call:
    url = dict(request.query_params)
    settings = {k: v for k, v in url.items() if k not in TRANSPORT and not k.startswith("param_")}
    sql, data, insert_format = _statement(url.get("query", ""), body)
    return Call(
        sql=sql.strip().rstrip(";"),
        data=data,
        insert_format=insert_format,
        database=url.get("database") or request.headers.get("x-clickhouse-database") or "default",
        writer=writer,
        settings=settings,
        params={k.removeprefix("param_"): v for k, v in url.items() if k.startswith("param_")},
        default_format=request.headers.get("x-clickhouse-format")
        or url.get("default_format")
        or "TabSeparated",
    )


def _statement(in_url: str, body: bytes) -> tuple[str, bytes, str | None]:
    """The statement, the data that follows an INSERT, and the data's format; body bytes are copied at most once."""
    if in_url and (found := _INSERT_HEAD.match(in_url.encode() + b"\n")):
        return found[1].decode().strip(), body, found[2].decode()
    if found := _INSERT_HEAD.match(body[:INSERT_HEAD_BYTES] if not in_url else b""):
        return found[1].decode().strip(), body[found.end() :], found[2].decode()
    text = body.decode(errors="replace")
    return (f"{in_url}\n{text}" if in_url and text else in_url or text), b"", None


def _format_of(sql: str) -> str | None:
    found = _TRAILING_FORMAT.search(sql)
    return found[1] if found else None


def _started(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, the first one computed now: a failing statement fails before the status line is sent."""
    first = next(blocks, b"")

    def rest() -> Iterator[bytes]:
        yield first
        yield from blocks

    return rest()


def _media_type(headers: dict[str, Any]) -> str:
    kind = headers.get("X-ClickHouse-Format", "")
    if kind.startswith("JSON"):
        return "application/json; charset=UTF-8"
    return (
        "application/octet-stream"
        if kind in ("Native", "RowBinary", "Arrow")
        else "text/plain; charset=UTF-8"
    )


def _error(error: EngineError, headers: dict[str, str]) -> Response:
    return PlainTextResponse(
        f"{error}\n",
        status_code=STATUS_OF_CODE.get(error.code, 500),
        headers=headers | {"X-ClickHouse-Exception-Code": str(error.code)},
    )
