"""Who may talk to the pages: browsers that were pointed at this machine by its own name.

Without it any web site could read the store through the browser of whoever runs the dashboard: over a WebSocket, which
knows no same-origin rule, or with a DNS name that it lets point at 127.0.0.1.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
# Pages load nothing from elsewhere and may not be framed. Streamlit sets styles inline, compiles schemas to functions
# and draws into blobs; the rest is off.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' ws://{host}; worker-src 'self' blob:; "
    "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)


class Guard:
    """ASGI middleware: refuses hosts and origins of other names, and tells browsers to load nothing from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes from this machine's own pages."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not (_own(f"//{host}") and _own(headers.get("origin") or f"//{host}")):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await PlainTextResponse("hitmap answers to localhost only\n", 403)(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                response = MutableHeaders(scope=message)
                response["Content-Security-Policy"] = POLICY.format(host=host)
                response["Referrer-Policy"] = "no-referrer"
                response["X-Content-Type-Options"] = "nosniff"
            await send(message)

        await self._app(scope, receive, told)


def _own(url: str) -> bool:
    try:
        return urlsplit(url).hostname in NAMES
    except ValueError:
        return False
