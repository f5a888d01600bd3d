"""ClickHouse's HTTP interface over the embedded engine, as far as stock clients use it.

The answer to a call is the result in the statement's FORMAT, or an error with ClickHouse's code in
`X-ClickHouse-Exception-Code`. An error after the first block, when the status line is out, ends the result as with
ClickHouse: between two markers with the tag that `X-ClickHouse-Exception-Tag` announced, and the connection with it.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import uuid
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from store.embedded import Owner
from store.engine import Blocks, Engine, EngineError
from store.guard import Guard, check_database, refuse
from store.http_call import Call, read_body, read_call, read_credentials

WRITER = "writer"
WRITER_BODY_BYTES = 512 << 20
READER_BODY_BYTES = 1 << 20
STATUS_OF_CODE = {
    36: 400,
    46: 404,
    47: 404,
    60: 404,
    62: 400,
    81: 404,
    202: 503,
    241: 507,
    307: 413,
    497: 403,
    516: 401,
}
# A page in a browser must not reach the store by a host name of its own that resolves to this machine.
HOSTS = ["127.0.0.1", "localhost"]

_QUERY_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)  # what may go back in a header


class Interface:
    """The HTTP side of one engine: who has the owner's password is the writer, everybody else is a reader.

    database: where statements of a call that names no database run.
    """

    def __init__(self, engine: Engine, owner: Owner, database: str) -> None:
        self._engine = engine
        self._owner = owner
        self._database = database
        self._guard = Guard(self._ask, engine.limits.of_a_reader)
        self.app = Starlette(
            routes=[
                Route("/ping", self._ping, methods=["GET"]),
                Route("/", self._handle, methods=["GET", "POST"]),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
        )

    def _ask(self, sql: str) -> str:
        return b"".join(self._engine.query(sql, "TSVRaw", database=self._database)).decode()

    async def _ping(self, _: Request) -> Response:
        return PlainTextResponse(
            "Ok.\n", headers={"X-ClickHouse-Server-Display-Name": self._owner.display_name}
        )

    async def _handle(self, request: Request) -> Response:
        asked_id = request.query_params.get("query_id", "")
        headers = {"X-ClickHouse-Query-Id": asked_id if _QUERY_ID.fullmatch(asked_id) else str(uuid.uuid4())}
        try:
            writer = self._is_writer(request)
            body = await read_body(request, WRITER_BODY_BYTES if writer else READER_BODY_BYTES)
            if not body and "query" not in request.query_params:
                return PlainTextResponse("Ok.\n")
            call = read_call(request, body, self._database)
            return await run_in_threadpool(self._write if writer else self._read, call, headers)
        except EngineError as error:
            return _error(error, headers)

    def _is_writer(self, request: Request) -> bool:
        user, password = read_credentials(request)
        if user != WRITER:
            return False
        if not hmac.compare_digest(password.encode(), self._owner.password.encode()):
            raise EngineError(
                516, "writer: Authentication failed: password is incorrect.", "AUTHENTICATION_FAILED"
            )
        return True

    def _write(self, call: Call, headers: dict[str, str]) -> Response:
        if not call.insert_format:
            return self._query(call, headers, writer=True)
        rows = self._engine.insert(
            call.sql, call.insert_format, call.data, database=call.database, settings=call.settings
        )
        return Response(headers=headers | {"X-ClickHouse-Summary": json.dumps({"written_rows": str(rows)})})

    def _read(self, call: Call, headers: dict[str, str]) -> Response:
        if call.insert_format:
            refuse("a reader may not insert")
        check_database(call.database)
        for name, value in call.settings.items():
            self._guard.check_setting(name, value)
        self._guard.check(call.sql)
        return self._query(call, headers, writer=False)

    def _query(self, call: Call, headers: dict[str, str], *, writer: bool) -> Response:
        blocks = self._engine.query(
            call.sql,
            call.output_format,
            writer=writer,
            database=call.database,
            params=call.params,
            settings=call.settings,
        )
        first = next(blocks, b"")  # a statement that fails at once does so before the status line is sent
        return _Stream(first, blocks, headers | {"X-ClickHouse-Format": call.output_format})


class _Stream(StreamingResponse):
    """Sends blocks. Their handle is free afterwards, be it after the last one, an error, or because the client left."""

    def __init__(self, first: bytes, blocks: Blocks, headers: dict[str, str]) -> None:
        self._first, self._blocks = first, blocks
        self._tag = secrets.token_hex(8)
        headers = headers | {"X-ClickHouse-Timezone": "UTC", "X-ClickHouse-Exception-Tag": self._tag}
        super().__init__(
            self._body(), headers=headers, media_type=_media_type(headers["X-ClickHouse-Format"])
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._blocks.close()

    async def _body(self) -> AsyncIterator[bytes]:
        yield self._first
        try:
            async for block in iterate_in_threadpool(self._blocks):
                yield block
        except EngineError as error:
            message = f"{error}\n"
            yield (
                f"__exception__\r\n{self._tag}\r\n{message}{len(message.encode())} {self._tag}\r\n__exception__\r\n"
            ).encode()
            raise  # the connection ends without the last chunk, for clients that look for no marker


def _media_type(output_format: str) -> str:
    if output_format.startswith("JSON"):
        return "application/json; charset=UTF-8"
    binary = output_format.startswith(("Native", "RowBinary", "Arrow", "Parquet", "ORC"))
    return "application/octet-stream" if binary else "text/plain; charset=UTF-8"


def _error(error: EngineError, headers: dict[str, str]) -> Response:
    return PlainTextResponse(
        f"{error}\n",
        status_code=STATUS_OF_CODE.get(error.code, 500),
        headers=headers | {"X-ClickHouse-Exception-Code": str(error.code)},
    )
