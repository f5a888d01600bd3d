"""What the tests of the sources share: a scriptable HTTP server and a look into a spool."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cachemodel.content import ContentHasher
from collector.spool import Spool

HASHER = ContentHasher(b"the key of the tests")

Answer = Callable[[BaseHTTPRequestHandler], None]


def text(
    body: bytes | str, *, status: int = 200, content_type: str = "text/plain; version=0.0.4; charset=utf-8"
) -> Answer:
    """Answers with a body, properly."""
    data = body.encode() if isinstance(body, str) else body

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def cut(body: bytes, at: int) -> Answer:
    """Announces a body and dies in the middle of it."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:at])

    return answer


class Server:
    """A real HTTP server on a free port; `answers` maps a path to what it does (`POST /path` to what a POST
    does); everything else is 404."""

    def __init__(self, answers: dict[str, Answer] | None = None) -> None:
        self.answers = answers or {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append((self.path, dict(self.headers)))
                server.answers.get(self.path, text("nothing here", status=404))(self)

            def do_POST(self) -> None:
                self.question = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.requests.append((f"POST {self.path}", dict(self.headers)))
                server.answers.get(f"POST {self.path}", text("nothing here", status=404))(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def take(spool: Spool, kind: str) -> list[dict[str, Any]]:
    """The rows of one kind that the spool accepted since the last look."""
    rows = []
    while batch := spool.seal(kind, 1_000_000, 1 << 30):
        rows += [json.loads(line) for line in spool.payload(batch).splitlines()]
        spool.done(batch)
    return rows


def wait_until(true: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for something that another thread brings about."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)
