"""One call of a server's HTTP API, timed as its answer streams in, bounded in time and bytes."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from cachemodel.address import bearer_key
from collector import usage
from collector.usage import stream

MAX_BYTES = 16 << 20
NO_ANSWER = "no answer"
_CHUNK = 1 << 16
_IDLE_S = 2.0  # below what servers wait before they close, so that no request meets a closing connection
_MAX_ERROR = 300
_TEXTS = ("content", "text", "reasoning_content", "reasoning", "tool_calls")
_Json = Mapping[str, Any]


@dataclass(slots=True)
class Answer:
    """What came back.

    status: None where no HTTP answer came. ttft_s: seconds from sending to the first generated piece of a stream, or to
    the whole answer where it came in one piece (`streamed` tells). told: what it says of its tokens, as collector.usage
    reads it. error: why there is no usable answer, in the server's words where it has some; empty where there is one.
    retry_after_s: how long the server asks to stay away. body: of an answer in one piece. pieces: of a stream, those
    that brought text: no token brings more than one.
    """

    status: int | None = None
    ttft_s: float | None = None
    streamed: bool = False
    told: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    retry_after_s: float | None = None
    body: _Json = field(default_factory=dict)
    pieces: int = 0


class Transport(Protocol):
    """Sends one request, never two; never raises but for KeyboardInterrupt."""

    def send(
        self,
        path: str,
        body: _Json | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        fresh: bool = False,
    ) -> Answer:
        """POST `body` (None: GET). fresh: over a connection of its own, which a balancer may lead elsewhere."""
        ...


class HttpTransport:
    """Over one connection that is kept open, to the API at `url` (without /v1). api_key: sent as a bearer token,
    without the blanks around it. Raises UsageError, which does not show it, where no header can carry it."""

    def __init__(self, url: str, api_key: str = "") -> None:
        self._parts = urlsplit(url)
        self._headers = {
            "User-Agent": "hitmap",
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
        }
        if api_key := bearer_key(api_key):
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0

    def send(
        self,
        path: str,
        body: _Json | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        fresh: bool = False,
    ) -> Answer:
        payload = None if body is None else msgspec.json.encode(body)
        answer = Answer()
        deadline = time.monotonic() + timeout_s
        if fresh or time.monotonic() - self._used_at > _IDLE_S:
            self.close()
        try:
            connection = self._connected(timeout_s)
            with _until(connection, deadline - time.monotonic()):
                sent = time.perf_counter()
                method = "GET" if payload is None else "POST"
                connection.request(method, self._parts.path + path, payload, {**self._headers, **headers})
                with connection.getresponse() as response:  # closed, the connection takes the next request
                    _read(response, answer, sent)
            late = bool(answer.error) and time.monotonic() >= deadline  # it was hung up on
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = time.monotonic() >= deadline or isinstance(error, TimeoutError)
            answer.error = answer.error or f"{NO_ANSWER}: {_words(error)}"
            self.close()
        except BaseException:
            self.close()
            raise
        if late:
            answer.error = f"no whole answer within {timeout_s:.3g} s"
        if late or fresh:
            self.close()
        self._used_at = time.monotonic()
        return answer

    def close(self) -> None:
        """Hang up."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        """Connected before the clock of a request runs."""
        if self._connection is None or self._connection.sock is None:
            secure = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(str(self._parts.hostname), self._parts.port, timeout=timeout_s)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection


@contextmanager
def _until(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Hang up after so many seconds, however slowly the server spreads its answer over them."""
    sock = connection.sock
    sock.settimeout(max(seconds, 0.001))

    def hang_up() -> None:
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(max(seconds, 0.001), hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _read(response: http.client.HTTPResponse, answer: Answer, sent: float) -> None:
    """Fill in the answer. Raises ValueError, OSError or HTTPException where it cannot be read to its end."""
    answer.status = response.status
    if response.status != 200:
        answer.retry_after_s = _seconds(response.getheader("Retry-After"))
        answer.error = _complaint(response.status, b"".join(_pieces(response)))
    elif response.getheader("Content-Type", "").lower().startswith("text/event-stream"):
        answer.streamed = True
        _read_stream(response, answer, sent)
    else:
        whole = b"".join(_pieces(response))
        if response.length:
            raise ValueError("the answer was cut")
        answer.ttft_s = time.perf_counter() - sent
        body = _decoded(whole)
        answer.body = body
        answer.told = usage.read(body)


def _read_stream(response: http.client.HTTPResponse, answer: Answer, sent: float) -> None:
    chunks: list[_Json] = []
    done = False
    for data in _events(response):
        now = time.perf_counter()
        if data == b"[DONE]":
            done = True
            continue
        chunk = _decoded(data)
        if error := chunk.get("error"):
            answer.error = _sentence(error)
        answer.pieces += _brings_text(chunk)
        if answer.ttft_s is None and _generated(chunk):
            answer.ttft_s = now - sent
        done = done or any(choice.get("finish_reason") for choice in _choices(chunk))
        chunks.append(chunk)
    answer.told = usage.read(stream.joined(chunks))
    if not answer.error and (not done or answer.ttft_s is None):
        answer.error = "the stream ended before its first token"


def _generated(chunk: _Json) -> bool:
    """Whether it brings text or says that there is no more: the first chunk of a chat only names the role."""
    return _brings_text(chunk) or any(choice.get("finish_reason") for choice in _choices(chunk))


def _brings_text(chunk: _Json) -> bool:
    for choice in _choices(chunk):
        delta = choice.get("delta")
        part = delta if isinstance(delta, dict) else choice
        if any(part.get(name) for name in _TEXTS):
            return True
    return False


def _choices(chunk: _Json) -> Sequence[_Json]:
    choices = chunk.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else ()


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The data of each event, when its line is there."""
    begun: list[bytes] = []  # a line's pieces, joined once it is whole: it can come byte by byte
    for piece in _pieces(response):
        first, *rest = piece.split(b"\n")
        begun.append(first)
        for more in rest:
            yield from _data(b"".join(begun))
            begun = [more]
    yield from _data(b"".join(begun))


def _data(line: bytes) -> Iterator[bytes]:
    if line.startswith(b"data:"):
        yield line.removeprefix(b"data:").strip()


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    total = 0
    while piece := response.read1(_CHUNK):
        total += len(piece)
        if total > MAX_BYTES:
            raise ValueError(f"the answer is longer than {MAX_BYTES >> 20} MiB")
        yield piece


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(told, dict):
        raise ValueError("not a JSON object")
    return told


def _complaint(status: int, body: bytes) -> str:
    """An error response in one line."""
    try:
        told: Any = _decoded(body)
        told = told.get("error", told)
    except ValueError:
        told = body.decode("utf-8", "replace")
    said = _sentence(told)
    return f"HTTP {status}: {said}" if said else f"HTTP {status}"


def _sentence(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return " ".join(str(error).split())[:_MAX_ERROR]


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def _seconds(retry_after: str | None) -> float | None:
    """Of a Retry-After header: seconds, or a date."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(retry_after)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
