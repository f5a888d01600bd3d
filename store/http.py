"""ClickHouse's HTTP interface over the embedded engine, as far as stock clients use it.

The answer to a call is the result in the statement's FORMAT, or an error with ClickHouse's code in
`X-ClickHouse-Exception-Code`. A client that leaves stops its query.

What differs from a ClickHouse server: a session keeps nothing, so statements that would leave something behind for a
later call (SET, temporary tables, transactions) are refused; external tables are refused; progress headers come with
the status line, not before it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from store.embedded import Owner
from store.engine import Blocks, Engine
from store.errors import EngineError
from store.guard import Guard, check_database, refuse
from store.handles import Statement
from store.http_answer import Answer, Encoding, completed, error_answer, progress_headers, started, told
from store.http_body import Bodies, decode_body
from store.http_call import Call, read_call, read_credentials
from store.native import CUSTOM_SERIALIZATION_REVISION, protocol_blocks
from store.running import Running
from store.statement_kind import selects

WRITER = "writer"
WRITER_BODY_BYTES = 512 << 20
READER_BODY_BYTES = 1 << 20
WRITER_BODIES_BYTES, READER_BODIES_BYTES = 1 << 30, 64 << 20  # of all bodies under way together
# A page in a browser must not reach the store by a host name of its own that resolves to this machine.
HOSTS = ["127.0.0.1", "localhost"]

_QUERY_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)  # what may go back in a header
# They would stay with a handle that others use next.
_LASTING = re.compile(
    r"\s*(SET|CREATE\s+(OR\s+REPLACE\s+)?TEMPORARY|DROP\s+TEMPORARY|BEGIN|COMMIT|ROLLBACK)\b", re.IGNORECASE
)


class Interface:
    """The HTTP side of one engine: who has the owner's password is the writer, everybody else is a reader.

    database: where statements of a call that names no database run.
    """

    def __init__(self, engine: Engine, owner: Owner, database: str) -> None:
        self._engine = engine
        self._owner = owner
        self._database = database
        self._guard = Guard(self._ask, engine.limits.of_a_reader)
        self._running = Running(engine)
        self._bodies = {True: Bodies(WRITER_BODIES_BYTES), False: Bodies(READER_BODIES_BYTES)}  # by_writer
        # a thread of its own: those of the pool may all wait for what is to be stopped
        self._stopper = ThreadPoolExecutor(1, "stopper")
        self.app = Starlette(
            routes=[
                Route("/ping", self._ok),
                Route("/replicas_status", self._ok),
                Route("/", self, methods=["GET", "POST"]),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
        )

    def _ask(self, sql: str) -> str:
        # bytes that are no text are in names and values alone, and no name known to the guard has any
        text = b"".join(self._engine.query(sql, "TSVRaw", database=self._database))
        return text.decode(errors="replace")

    async def _ok(self, _: Request) -> Response:
        return PlainTextResponse(
            "Ok.\n", headers={"X-ClickHouse-Server-Display-Name": self._owner.display_name}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request for /."""
        exchange = _Exchange(Request(scope, receive), self._owner.display_name)
        async with AsyncExitStack() as held:
            try:
                exchange.statement.by_writer = writer = self._is_writer(exchange.request)
                bodies, most = self._bodies[writer], _most_bytes(writer)
                body = await held.enter_async_context(bodies.received(exchange.request, most))
            except ClientDisconnect:
                return
            except Exception as error:
                await exchange.refused(error)(scope, receive, send)
                return
            async with self._stopped_when_left(receive, exchange.statement):
                try:
                    answer = await run_in_threadpool(self._answer, exchange, body)
                    await answer(scope, receive, send)
                finally:
                    self._running.remove(exchange.statement)

    def _is_writer(self, request: Request) -> bool:
        user, password = read_credentials(request)
        if user != WRITER:
            return False
        if not hmac.compare_digest(password.encode(), self._owner.password.encode()):
            raise EngineError(
                516, "writer: Authentication failed: password is incorrect.", "AUTHENTICATION_FAILED"
            )
        return True

    @asynccontextmanager
    async def _stopped_when_left(self, receive: Receive, statement: Statement) -> AsyncIterator[None]:
        """Stop the statement when its client leaves meanwhile, unless it may be changing something."""

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not statement.by_writer or selects(statement.sql):
                await asyncio.get_running_loop().run_in_executor(self._stopper, self._engine.stop, statement)

        watcher = asyncio.create_task(watch())
        try:
            yield
        finally:
            watcher.cancel()

    def _answer(self, exchange: _Exchange, body: bytes) -> Response:
        """Runs the statement up to its first block, in a thread."""
        statement, writer = exchange.statement, exchange.statement.by_writer
        try:
            body = decode_body(
                body,
                exchange.request.headers.get("content-encoding", "identity"),
                exchange.says("decompress"),
                _most_bytes(writer),
            )
            call = read_call(exchange.request, body, self._database)
            if not call.sql:
                return PlainTextResponse("Ok.\n", headers=exchange.headers)
            statement.sql = call.sql
            if answer := self._running.kill(call.sql, by_writer=writer):
                return self._query(replace(call, sql=answer), exchange, writer=False)
            self._running.add(statement)
            if not writer:
                return self._query(self._permitted(call), exchange, writer=False)
            return self._write(call, exchange)
        except Exception as error:
            return exchange.refused(error)

    def _permitted(self, call: Call) -> Call:
        """A reader's call, with bounds lowered to ours; raises EngineError for what a reader may not do."""
        if call.insert_format:
            refuse("a reader may not insert")
        check_database(call.database)
        settings = self._guard.bounded(call.settings)
        self._guard.check(call.sql)
        return replace(call, settings=settings)

    def _write(self, call: Call, exchange: _Exchange) -> Response:
        # GET must change nothing, and a client may ask for that itself: the readers' handles see to it
        if exchange.request.method != "POST" or exchange.request.query_params.get("readonly") in ("1", "2"):
            if call.insert_format:
                raise EngineError(164, "Cannot execute query in readonly mode: use POST", "READONLY")
            return self._query(call, exchange, writer=False)
        if _LASTING.match(call.sql):
            raise EngineError(
                48,
                "nothing is kept from one call to the next: settings go into the URL or the statement,"
                " tables have to be permanent",
                "NOT_IMPLEMENTED",
            )
        if not call.insert_format:
            return self._query(call, exchange, writer=True)
        rows = self._engine.insert(
            call.sql, call.insert_format, call.data, database=call.database, settings=call.settings
        )
        written = json.dumps({"written_rows": str(rows)})
        return Response(headers=exchange.headers | {"X-ClickHouse-Summary": written})

    def _query(self, call: Call, exchange: _Exchange, *, writer: bool) -> Response:
        def run(sql: str, output_format: str) -> Blocks:
            return self._engine.query(
                sql,
                output_format,
                writer=writer,
                database=call.database,
                params=call.params,
                settings=call.settings,
                statement=exchange.statement,
            )

        output_format = self._engine.output_format(call.output_format)
        if output_format == "Native" and exchange.revision >= CUSTOM_SERIALIZATION_REVISION:
            blocks = protocol_blocks(call.sql, run)
        else:
            blocks = run(call.sql, output_format)
        whole = exchange.says("wait_end_of_query")
        blocks = completed(blocks, str(self._engine.directory)) if whole else started(blocks)
        if zone := call.settings.get("session_timezone"):
            exchange.headers["X-ClickHouse-Timezone"] = zone
        headers = exchange.headers | {"X-ClickHouse-Format": output_format}
        answer = Answer(blocks, exchange.encoding, headers, self._engine.limits.stall_seconds)
        reports = exchange.says("send_progress_in_http_headers")
        for name, value in progress_headers(exchange.statement, with_reports=reports):
            answer.headers.append(name, value)
        return answer


class _Exchange:
    """One request, how it wants its answer, and the statement in it."""

    def __init__(self, request: Request, display_name: str) -> None:
        url = request.query_params
        self.request = request
        self.encoding = Encoding.asked_by(request)
        self.revision = _number(url.get("client_protocol_version"), 0)
        asked_id = url.get("query_id") or request.headers.get("x-clickhouse-query-id", "")
        query_id = asked_id if _QUERY_ID.fullmatch(asked_id) else str(uuid.uuid4())
        interval_ms = _number(url.get("http_headers_progress_interval_ms"), 100)
        self.statement = Statement(query_id, report_every_ms=interval_ms)
        self.headers = {
            "X-ClickHouse-Server-Display-Name": display_name,
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Timezone": "UTC",
        }

    def says(self, name: str) -> bool:
        """Whether a switch of the URL is on."""
        return self.request.query_params.get(name, "").lower() in ("1", "true")

    def refused(self, error: Exception) -> Response:
        """The answer to a statement that has no result."""
        return error_answer(told(error), self.encoding, self.headers)


def _most_bytes(writer: bool) -> int:
    return WRITER_BODY_BYTES if writer else READER_BODY_BYTES


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else default
