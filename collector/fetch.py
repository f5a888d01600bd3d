"""One HTTP request, bounded in time and bytes, without redirects; it says whether the body came whole."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

_CHUNK = 1 << 16


class FetchError(Exception):
    """No usable answer. The message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Response:
    """status: the HTTP code; content_type: lower case, with parameters; whole: the body ended where announced."""

    status: int
    content_type: str
    body: bytes
    whole: bool


def get(
    url: str,
    *,
    timeout_s: float = 5.0,
    max_bytes: int = 16 << 20,
    accept: str = "*/*",
    token: str = "",
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Ask for `url` within `timeout_s` seconds, however the server spreads its answer over them.

    token: sent as a bearer token where not empty. body: JSON to send with a POST. headers: further ones. Raises
    FetchError where there is no answer, where it is larger than `max_bytes` or where it takes too long. Asks for no
    compression: it would cost the server time.
    """
    connection, path = _connection(url, timeout_s)
    said = {"Accept": accept, "User-Agent": "hitmap", "Connection": "close", **(headers or {})}
    if token:
        said["Authorization"] = f"Bearer {token}"
    if body is not None:
        said["Content-Type"] = "application/json"
    try:
        connection.request(method, path, body=body, headers=said)
        with connection.getresponse() as response:
            answer, whole = _body(response, max_bytes)
            return Response(response.status, response.getheader("Content-Type", "").lower(), answer, whole)
    except TimeoutError as error:
        raise FetchError(f"no answer within {timeout_s:g} s") from error
    except ssl.SSLError as error:
        raise FetchError(f"TLS failed: {error.reason or error}") from error
    except http.client.HTTPException as error:
        raise FetchError(f"not an HTTP answer ({type(error).__name__})") from error
    except OSError as error:
        raise FetchError(error.strerror or str(error)) from error
    finally:
        connection.close()


def _connection(url: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise FetchError(f"not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError("not an http:// or https:// URL")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = parts.path or "/"
    connection = kind(parts.hostname, port, timeout=timeout_s)
    connection.response_class = partial(_Answer, time.monotonic() + timeout_s)  # type: ignore[assignment]
    return connection, f"{path}?{parts.query}" if parts.query else path


class _Answer(http.client.HTTPResponse):
    """A response that ends at a deadline: a socket's own timeout begins anew with every byte that comes."""

    def __init__(self, deadline: float, sock: socket.socket, *more: Any, **named: Any) -> None:
        super().__init__(sock, *more, **named)
        self.fp = io.BufferedReader(_Until(deadline, sock, self.fp.detach()))


class _Until(io.RawIOBase):
    """The stream of a socket; each read waits for what is left of the time at most. Raises TimeoutError."""

    def __init__(self, deadline: float, sock: socket.socket, stream: io.RawIOBase) -> None:
        self._deadline, self._sock, self._stream = deadline, sock, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _body(response: http.client.HTTPResponse, max_bytes: int) -> tuple[bytes, bool]:
    """What came of the body, and whether that is all of it."""
    body = bytearray()
    announced = response.length
    try:
        while chunk := response.read1(_CHUNK):
            body += chunk
            if len(body) > max_bytes:
                raise FetchError(f"the answer is larger than {max_bytes >> 20} MiB")
    except (http.client.HTTPException, ConnectionError):
        return bytes(body), False
    if announced is not None:
        return bytes(body), len(body) == announced
    # Chunked transfer that ended without an exception is whole; without a length, the connection's end is the end.
    return bytes(body), response.chunked or body.endswith(b"\n")
