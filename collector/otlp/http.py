"""OTLP over HTTP: POST /v1/traces, /v1/metrics and /v1/logs in protobuf or JSON (`collector.otlp.intake`).

Statuses and bodies are those of the OTLP specification: an error's body is a google.rpc.Status in the form of the
request, 400 is for good, 503 with Retry-After means "again later". Pages in a browser get nothing: no CORS headers, no
preflight, and where no token is asked for no host name but those of loopback, as a page's own name can resolve to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import NamedTuple

from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from collector.otlp.body import ENCODINGS, decompressed
from collector.otlp.check import MalformedError
from collector.otlp.grpc import listen
from collector.otlp.intake import (
    CHECKED_AT_ONCE,
    SIGNALS,
    TIMES_A_CHECK,
    TOKEN_HINT,
    Intake,
    Limits,
    OversizedError,
    Signal,
)
from collector.otlp.json import TIMES_THE_TEXT, from_message, is_too_fine, to_protobuf
from collector.sink import Backpressure, Sink
from collector.tally import Tally
from store.http_door import HttpDoor

log = logging.getLogger(__name__)

WORKERS = 2
BODIES = 8  # of `message_bytes`: what all bodies under way may hold together
BUSY_S = 1.0
BODY_S = 30.0  # for a body to come
DRAINED_BYTES = 64 << 20  # of a refused body: a sender that is still sending does not read the answer
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class _Form(NamedTuple):
    """What a request is written in, and its answer with it."""

    media_type: str
    encode: Callable[[Message], bytes]


PROTOBUF = _Form("application/x-protobuf", lambda message: bytes(message.SerializeToString()))
JSON = _Form("application/json", from_message)
FORMS: Mapping[str, _Form] = {form.media_type: form for form in (PROTOBUF, JSON)}


class _Refusal(Exception):
    """An HTTP status with gRPC's code for the same, and the seconds to wait where it may be tried again."""

    def __init__(
        self, status: int, code: int, message: str, *, retry_after_s: float | None = None, **headers: str
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self, form: _Form, more_to_come: bool) -> Response:
        status = status_pb2.Status(code=self.code, message=str(self))
        if self.retry_after_s is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromNanoseconds(int(self.retry_after_s * 1e9))
            status.details.add().Pack(retry)
            self.headers["retry-after"] = str(max(1, round(self.retry_after_s)))
        if more_to_come:
            self.headers["connection"] = "close"
        return Response(form.encode(status), self.status, self.headers, form.media_type)


class _Gone(Exception):
    """The sender left."""


class _Body:
    """The body of one request as it arrives."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        self.ended = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def drain(self) -> None:
        drained = 0
        while not self.ended and drained < DRAINED_BYTES:
            drained += len(await self.part())


class OtlpHttpReceiver:
    """Listens on `address` (host:port, port 0 for any). Raises UserError when it cannot."""

    def __init__(
        self,
        sink: Sink,
        tally: Tally,
        address: str,
        *,
        limits: Limits | None = None,
        token: str | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self.intake = Intake(sink, tally, self._limits, token)
        host, _, port = address.rpartition(":")
        listener = listen(host, int(port), "OTLP/HTTP")
        self._hosts = None if token else LOOPBACK_NAMES | {host}
        self.port: int = listener.getsockname()[1]
        self.endpoint = f"{host}:{self.port}"
        self._door = HttpDoor(self._serve, listener, body_s=BODY_S)
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="otlp-http")
        self._json = Lock()  # one at a time: it takes many times the bytes of the text
        self.held_bytes = 0  # of bodies, received and not done with
        # bodies, what of them is decompressed, what is being checked, a JSON text
        self.memory_bytes = HttpDoor.memory_bytes + self._limits.message_bytes * (
            BODIES + WORKERS + TIMES_A_CHECK * CHECKED_AT_ONCE + TIMES_THE_TEXT
        )

    def start(self) -> None:
        """Begin to accept exports."""
        self._door.start()

    def stop(self, grace_s: float = 2.0) -> None:
        """Refuse new exports and let those in flight finish."""
        self._door.stop(grace_s)
        self._workers.shutdown()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, body = Headers(scope=scope), _Body(receive)
        form = FORMS.get(_media_type(headers), JSON)
        try:
            try:
                answer = await self._answer(scope, headers, form, body)
            except _Refusal as refusal:
                if "expect" not in headers:  # who sends that waits for our word before the body
                    await body.drain()
                answer = refusal.answer(form, more_to_come=not body.ended)
        except _Gone:
            return
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, headers: Headers, form: _Form, body: _Body) -> Response:
        signal = self._admit(scope, headers)
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ENCODINGS:
            raise _Refusal(
                415,
                code_pb2.INVALID_ARGUMENT,
                f"the content encoding {encoding!r} is not known here; use gzip or none",
                accept_encoding=", ".join(ENCODINGS[1:]),
            )
        data = await self._read(signal, headers, body)
        try:
            work = partial(self._take, signal, form, encoding, data)
            content = await asyncio.get_running_loop().run_in_executor(self._workers, work)
        finally:
            self.held_bytes -= len(data)
        return Response(content, media_type=form.media_type)

    def _admit(self, scope: Scope, headers: Headers) -> Signal:
        """Which signal a request is for, from its head alone; raises _Refusal."""
        if self._hosts is not None and _host(headers) not in self._hosts:
            raise _Refusal(
                421, code_pb2.PERMISSION_DENIED, f"this is {self.endpoint}; send to that host name"
            )
        signal = next((signal for signal in SIGNALS if signal.path == scope["path"]), None)
        if signal is None:
            paths = ", ".join(signal.path for signal in SIGNALS)
            raise _Refusal(404, code_pb2.NOT_FOUND, f"OTLP is received at {paths}")
        if scope["method"] != "POST":
            raise _Refusal(405, code_pb2.UNIMPLEMENTED, "exports are sent by POST", allow="POST")
        if not self.intake.admits(headers.get("authorization", "")):
            raise _Refusal(401, code_pb2.UNAUTHENTICATED, TOKEN_HINT, www_authenticate="Bearer")
        if _media_type(headers) not in FORMS:
            raise _Refusal(
                415, code_pb2.INVALID_ARGUMENT, f"send {' or '.join(FORMS)}", accept=", ".join(FORMS)
            )
        return signal

    async def _read(self, signal: Signal, headers: Headers, body: _Body) -> bytes:
        """The body as sent. Its bytes count as held until the caller has done with them."""
        most = self._limits.message_bytes
        if int(headers.get("content-length", 0)) > most:
            raise self._too_large(signal)
        parts, size = [], 0
        try:
            while not body.ended:
                part = await body.part()
                parts.append(part)
                size += len(part)
                self.held_bytes += len(part)
                if size > most:
                    raise self._too_large(signal)
                if self.held_bytes > BODIES * most:
                    raise _Refusal(
                        503,
                        code_pb2.UNAVAILABLE,
                        "too many requests at once; try again",
                        retry_after_s=BUSY_S,
                    )
        except BaseException:
            self.held_bytes -= size
            raise
        return b"".join(parts)

    def _too_large(self, signal: Signal) -> _Refusal:
        self.intake.refused(signal)
        most = self._limits.message_bytes
        return _Refusal(
            413, code_pb2.RESOURCE_EXHAUSTED, f"a request may have {most} bytes at most; send smaller batches"
        )

    def _take(self, signal: Signal, form: _Form, encoding: str, body: bytes) -> bytes:
        """In a worker thread: the answer to a request, encoded; raises _Refusal."""
        try:
            try:
                payload = decompressed(body, encoding, self._limits.message_bytes)
                if form is JSON:
                    payload = self._from_json(signal, payload)
            except (MalformedError, OversizedError):
                self.intake.refused(signal)
                raise
            return form.encode(self.intake.take(signal, payload))
        except MalformedError as error:
            raise _Refusal(400, code_pb2.INVALID_ARGUMENT, str(error)) from None
        except OversizedError as error:
            raise _Refusal(413, code_pb2.RESOURCE_EXHAUSTED, str(error)) from None
        except Backpressure as full:
            raise _Refusal(503, code_pb2.UNAVAILABLE, str(full), retry_after_s=full.retry_after_s) from None
        except Exception as error:
            log.exception("OTLP/HTTP, %s", signal.kind)
            raise _Refusal(500, code_pb2.INTERNAL, "the collector failed; its log says why") from error

    def _from_json(self, signal: Signal, text: bytes) -> bytes:
        if is_too_fine(text, self._limits.message_bytes):
            raise OversizedError("the request has too many values; send smaller batches")
        with self._json:
            return to_protobuf(signal.request, text)


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _host(headers: Headers) -> str:
    """The name in the Host header, without its port."""
    host = headers.get("host", "").lower()
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
