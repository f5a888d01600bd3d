"""A small OpenAI-compatible server on a real socket, which can be slow, refuse, fail or hang up."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import web

Body = dict[str, Any]
WORDS = ("One ", "two ", "drei", ".")


class LlmServer:
    """Answers every request with WORDS, as chat or completion; `behaviour` of a body says how.

    Behaviours: ok, slow (waits `release`), refuse (503), error (in the stream), cut (ends early), reset (closes the
    socket after two words), nonsense, silent (no usage), or any JSON: that, in the stream or whole.
    """

    def __init__(self, behaviour: Callable[[Body], str] = lambda _body: "ok") -> None:
        self.behaviour = behaviour
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.tokenizes = True
        self.release = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def close(self) -> None:
        self.release.set()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stopping.wait()
        await runner.cleanup()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "small"}, {"id": "large"}]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if not self.tokenizes:
            raise web.HTTPNotFound
        words = str((await request.json())["prompt"]).split()
        return web.json_response({"tokens": [1000 + len(word) * 100 + ord(word[0]) for word in words]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(request, body)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request, body: Body) -> web.StreamResponse:
        how = self.behaviour(body)
        name = "cmpl-" + request.headers["X-Request-Id"]
        if how == "slow":
            await asyncio.to_thread(self.release.wait, 30)
        if how.startswith(("{", "[")):
            if not body["stream"]:
                return web.Response(text=how, content_type="application/json")
            return web.Response(text=f"data: {how}\n\ndata: [DONE]\n\n", content_type="text/event-stream")
        if how == "refuse":
            return web.json_response({"error": {"message": "too many\nrequests"}}, status=503)
        usage: Body | None = {
            "prompt_tokens": 100,
            "completion_tokens": len(WORDS),
            "prompt_tokens_details": {"cached_tokens": 25},
        }
        if how == "silent":
            usage = None
        if not body["stream"]:
            text = "".join(WORDS)
            choice = {"index": 0, "message": {"content": text}, "text": text, "finish_reason": "stop"}
            return web.json_response({"id": name, "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if how == "nonsense":
            await response.write(b'data: {"choices": 3}\n\n')
            return response
        for number, word in enumerate(WORDS):
            await response.write(_event({"id": name, "choices": [_choice(body, word)]}))
            if how == "reset" and number == 1:
                assert request.transport
                request.transport.abort()
                return response
        if how == "error":
            await response.write(_event({"error": {"message": "out of blocks", "code": 500}}))
        if how in ("error", "cut"):
            return response
        await response.write(
            _event({"id": name, "choices": [_choice(body, "") | {"finish_reason": "length"}]})
        )
        if body.get("stream_options", {}).get("include_usage"):
            await response.write(_event({"id": name, "choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        return response


def _choice(body: Body, word: str) -> Body:
    told = {"delta": {"content": word}} if "messages" in body else {"text": word}
    return {"index": 0, "finish_reason": None, **told}


def _event(chunk: Body) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
