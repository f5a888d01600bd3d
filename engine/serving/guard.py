"""Who is let in over HTTP, and how those are refused who are not, here and elsewhere."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import Overloaded, RequestError
from engine.serving import answers


class Unauthorized(RequestError):
    """The token is missing or another."""

    status = 401


class Forbidden(RequestError):
    """It comes from where nobody is let in."""

    status = 403


class Guarded:
    """Lets pass who shows the token; /health is for everybody.

    Without a token every program of this machine passes, but no page in a browser: none from another origin, and none
    whose host's name was made to resolve to loopback.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = None if scope["path"] == "/health" else self._refusal(dict(scope["headers"]))
        await (error_response(error) if error else self._app)(scope, receive, send)

    def _refusal(self, headers: Mapping[bytes, bytes]) -> RequestError | None:
        if self._expected is None:
            if b"origin" not in headers and is_loopback(_host(headers)):
                return None
            return Forbidden("This server is for programs of its own machine; a --token opens it to others.")
        if hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
            return None
        return Unauthorized(
            "This server asks for its token: 'Authorization: Bearer TOKEN'.", code="invalid_api_key"
        )


def is_loopback(host: str) -> bool:
    """Whether a name or an address, in brackets or not, can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host(headers: Mapping[bytes, bytes]) -> str:
    """The name that was asked for, without its port."""
    host = headers.get(b"host", b"localhost").decode("latin-1")
    name, _, port = host.rpartition(":")
    return name if port.isdecimal() else host


def error_response(error: RequestError) -> Response:
    """The error object, with Retry-After where trying again can help."""
    headers = (
        {"retry-after": str(max(1, round(error.retry_after_s)))} if isinstance(error, Overloaded) else None
    )
    return Response(
        msgspec.json.encode(answers.error(error)), error.status, headers, media_type="application/json"
    )
