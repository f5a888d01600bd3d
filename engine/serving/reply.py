"""The answer to a generating HTTP request: sent as it is generated or in one piece, given up when its caller goes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
from starlette.types import Receive, Scope, Send

from engine.errors import EngineFailed
from engine.request import FinishReason
from engine.serving import answers
from engine.serving.answers import Form, Json
from engine.serving.frontend import Call

_DONE = b"data: [DONE]\n\n"


class Reply:
    """An ASGI response out of a call. usage: whether a stream ends with it."""

    def __init__(self, call: Call, form: Form, request_id: str, *, stream: bool, usage: bool) -> None:
        self._call, self._form = call, form
        self._header = (b"x-request-id", request_id.encode("latin-1"))
        self._stream, self._usage = stream, usage
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(self._watch(receive))
        try:
            await (self._send_stream(send) if self._stream else self._send_whole(send))
        finally:
            watcher.cancel()
            self._call.close()
            with suppress(asyncio.CancelledError):
                await watcher

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._call.abandon()

    async def _send_whole(self, send: Send) -> None:
        requests = self._call.requests
        texts: list[list[str]] = [[] for _ in requests]
        reasons = [FinishReason.ABORT for _ in requests]
        status = 200
        try:
            async for piece in self._call.pieces():
                texts[piece.index].append(piece.text)
                reasons[piece.index] = piece.finish_reason or reasons[piece.index]
            answer = self._form.whole(["".join(text) for text in texts], reasons, requests)
        except EngineFailed as failed:
            status, answer = failed.status, answers.error(failed)
        if self._gone:
            return
        body = msgspec.json.encode(answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self._start(send, status, headers)
        await self._send(send, body)
        await self._end(send)

    async def _send_stream(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await self._start(send, 200, headers)
        await self._send(send, b"".join(map(self._event, self._form.opening())))
        try:
            async for piece in self._call.pieces():
                if chunks := self._form.chunks(piece):
                    await self._send(send, b"".join(map(self._event, chunks)))
        except EngineFailed as failed:
            await self._send(send, _sse(answers.error(failed)) + _DONE)
        else:
            last = _sse(self._form.last(self._call.requests)) if self._usage else b""
            await self._send(send, last + _DONE)
        await self._end(send)

    def _event(self, chunk: Json) -> bytes:
        """By OpenAI's rule, the chunks before the one with the usage say that it is still to come."""
        return _sse(chunk | {"usage": None} if self._usage else chunk)

    async def _start(self, send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [*headers, self._header]})

    async def _send(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _end(self, send: Send) -> None:
        """An empty message of its own: it is taken when all before it was handed to the kernel."""
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _sse(event: Json) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
