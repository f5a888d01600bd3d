"""One OpenAI-compatible server as a client sees it: requests sent, answers timed as they stream in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from cachemodel.errors import UserError
from hitmap.load.plan import Body

INTERRUPTED = "interrupted"
TIMEOUT, NO_CONNECTION, HUNG_UP = "timeout", "no connection", "hung up"
ERROR_IN_STREAM, NOT_UNDERSTOOD = "error in stream", "answer not understood"
MAX_ANSWER_BYTES = 16 << 20
_TOO_LONG = f"the answer is longer than {MAX_ANSWER_BYTES >> 20} MiB"
_KEEPALIVE_S = 4.0  # below what servers wait before they close, so that no request meets a closing connection
_ASK_TIMEOUT_S = 10.0
_MAX_ERROR = 300
_STRANGE = (ValueError, TypeError, AttributeError, RecursionError)  # JSON of another shape than the API's
_KEPT = (
    "usage",
    "metrics",
    "timings",
    "system_fingerprint",
    "model",
)  # what a response says besides its text

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Unix nanoseconds whose differences are real even when the wall clock is set."""
    return time.monotonic_ns() + _OFFSET_NS


@dataclass(slots=True)
class Answer:
    """What came back for a request, filled in as it comes. Times in Unix nanoseconds, None for what never came.

    first_ns, last_ns: the first and last piece of generated text, of a streamed answer. failure: a kind of failure,
    empty where the answer came whole; error: its words. said: what the response told beside its text.
    """

    sent_ns: int
    done_ns: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    status: int | None = None
    failure: str = ""
    error: str = ""
    response_id: str = ""
    finish_reason: str = ""
    said: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    def fail(self, kind: str, error: object = "") -> None:
        """It failed, and why; the first reason counts."""
        if not self.failure:
            self.failure, self.error = kind, " ".join(str(error).split())[:_MAX_ERROR]

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take in a chunk of a stream, or a whole response."""
        if error := chunk.get("error"):
            self.fail(ERROR_IN_STREAM, error.get("message") if isinstance(error, dict) else error)
        if isinstance(identity := chunk.get("id"), str):
            self.response_id = identity
        self.said |= {name: chunk[name] for name in _KEPT if chunk.get(name) is not None}
        for choice in chunk.get("choices") or ():
            if text := _text(choice):
                self.last_ns = now_ns()
                self.first_ns = self.first_ns or self.last_ns
                self.text += text
            self.finish_reason = choice.get("finish_reason") or self.finish_reason


def _text(choice: Mapping[str, Any]) -> str:
    """What a choice adds: content, reasoning, or the arguments of a call."""
    delta = choice.get("delta") or choice.get("message") or choice
    text = ""
    for name in ("reasoning_content", "reasoning", "content", "text"):
        if isinstance(delta.get(name), str):
            text += delta[name]
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        text += (function.get("name") or "") + (function.get("arguments") or "")
    return text


class Client:
    """Connections to the server at `url`, kept alive. Requests give up after `timeout_s` seconds."""

    def __init__(self, url: str, *, api_key: str = "", timeout_s: float = 120.0) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s
        self._http: aiohttp.ClientSession
        self._headers = {"User-Agent": "hitmap", "Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=self._headers,
            auto_decompress=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def models(self) -> list[str]:
        """Names of the models it serves. Raises UserError where no OpenAI-compatible server answers."""
        status, told = await self._ask("GET", "/v1/models")
        if status in (401, 403):
            raise UserError(f"{self.url} wants a key: give --api-key or set HITMAP_API_KEY")
        entries = told.get("data") if status == 200 else None
        if not isinstance(entries, list):
            raise UserError(f"{self.url}/v1/models answers {status}: this is no OpenAI-compatible server")
        return [
            entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)
        ]

    async def tokenize(self, model: str, text: str) -> list[int]:
        """Token ids of `text`, without special ones; none where the server does not tell.

        Asked in the words of vLLM and SGLang, then in those of llama.cpp.
        """
        for body in ({"model": model, "prompt": text, "add_special_tokens": False}, {"content": text}):
            status, told = await self._ask("POST", "/tokenize", body)
            tokens = told.get("tokens")
            if status == 200 and isinstance(tokens, list) and all(isinstance(token, int) for token in tokens):
                return tokens
        return []

    async def send(self, body: Body, headers: Mapping[str, str]) -> Answer:
        """Send one request and read its answer to the end. Never raises: a failure is in the answer."""
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        payload = msgspec.json.encode(body)
        answer = Answer(now_ns())
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._http.post(
                    self.url + path, data=payload, headers=headers, allow_redirects=False
                ) as response,
            ):
                answer.status = response.status
                await _read(response, answer)
        except TimeoutError:
            answer.fail(TIMEOUT, f"no whole answer within {self._timeout_s:g} s")
        except asyncio.CancelledError:
            answer.fail(INTERRUPTED)
        except aiohttp.ClientConnectorError as error:
            answer.fail(NO_CONNECTION, error)
        except (aiohttp.ClientError, OSError) as error:
            answer.fail(HUNG_UP, str(error) or type(error).__name__)
        except _STRANGE as error:
            answer.fail(NOT_UNDERSTOOD, error)
        answer.done_ns = now_ns()
        return answer

    async def _ask(self, method: str, path: str, body: Body | None = None) -> tuple[int, dict[str, Any]]:
        payload = None if body is None else msgspec.json.encode(body)
        try:
            async with (
                asyncio.timeout(_ASK_TIMEOUT_S),
                self._http.request(method, self.url + path, data=payload, allow_redirects=False) as response,
            ):
                whole = await _whole(response)
                try:
                    told = msgspec.json.decode(whole)
                except (msgspec.DecodeError, RecursionError):
                    told = None
                return response.status, told if isinstance(told, dict) else {}
        except TimeoutError:
            raise UserError(f"{self.url} does not answer within {_ASK_TIMEOUT_S:g} s") from None
        except aiohttp.InvalidURL:
            raise UserError(f"{self.url!r} is no address: write it as http://127.0.0.1:8000") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UserError(f"no LLM server answers at {self.url}: {reason}") from None


async def _read(response: aiohttp.ClientResponse, answer: Answer) -> None:
    if response.status != 200:
        answer.fail(f"HTTP {response.status}", _message(await _whole(response)))
    elif response.content_type != "text/event-stream":
        answer.add(told := msgspec.json.decode(await _whole(response)))
        if not told.get("choices"):
            answer.fail(NOT_UNDERSTOOD, "the answer has no choices")
        answer.first_ns = answer.last_ns = None  # all of it came at once: nobody can tell
    else:
        done = False
        async for data in events(response.content.iter_any()):
            if data == b"[DONE]":
                done = True
            else:
                answer.add(msgspec.json.decode(data))
        if not (done or answer.finish_reason):
            answer.fail(HUNG_UP, "the answer ended before the model did")


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError(_TOO_LONG)
    return bytes(body)


def _message(body: bytes) -> str:
    """The words of an error response."""
    try:
        told = msgspec.json.decode(body)
        error = told.get("error", told)
        return str(error.get("message") or error.get("detail") or error)
    except _STRANGE:
        return body.decode("utf-8", "replace")


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each event of a text/event-stream, however its bytes are cut. Raises ValueError for too many."""
    line = b""
    total = 0
    async for piece in pieces:
        total += len(piece)
        if total > MAX_ANSWER_BYTES:
            raise ValueError(_TOO_LONG)
        *lines, line = (line + piece).split(b"\n")
        for whole in lines:
            if data := _data(whole):
                yield data
    if data := _data(line):
        yield data


def _data(line: bytes) -> bytes:
    return line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""


def pick_model(models: Sequence[str], wanted: str, url: str) -> str:
    """The model to ask for. Raises UserError where the server has none, or not the wanted one."""
    if not models:
        raise UserError(f"{url} serves no model")
    if wanted and wanted not in models:
        raise UserError(f"{url} serves no model {wanted!r}; it serves {', '.join(models)}")
    return wanted or models[0]
