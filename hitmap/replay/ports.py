"""The ports of a played server: HTTP, the KV-event publisher with its replay socket, and the exporter's gRPC call."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import zmq

from cachemodel.errors import UserError
from hitmap.replay.capture import Capture

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
RETRY_FOR_S = 60.0
_RETRYABLE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
_LOOK_S = 0.2  # between looks at whether to stop
END_OF_REPLAY = b"\xff" * 8


class Exporter:
    """Sends export bodies to a collector and, like a real exporter, again when told that it is not ready.

    tell: told, in words for a person, when it begins to wait for the collector and when that is over.
    """

    def __init__(self, address: str, tell: Callable[[str], None] = lambda _: None) -> None:
        self._address = address
        self._tell = tell
        self._channel = grpc.insecure_channel(address)
        self._call = self._channel.unary_unary(EXPORT)

    def send(self, body: bytes, stopping: threading.Event) -> bool:
        """Whether the collector has acknowledged; False when told to stop while it was not ready.

        Raises UserError when it refuses, or is not ready for a minute.
        """
        deadline, pause = time.monotonic() + RETRY_FOR_S, 0.2
        waited = False
        while True:
            try:
                self._call(body, timeout=10)
                if waited:
                    self._tell(f"the collector at {self._address} takes spans now")
                return True
            except grpc.RpcError as error:
                if error.code() not in _RETRYABLE or time.monotonic() > deadline:
                    raise UserError(
                        f"the collector at {self._address} does not take the spans:"
                        f" {error.code().name}, {error.details()}"
                    ) from None
                if not waited:
                    waited = True
                    self._tell(
                        f"the collector at {self._address} does not take spans yet ({error.code().name}):"
                        f" trying again for up to {RETRY_FOR_S:g} s; hitmap attach starts one"
                    )
            if stopping.wait(pause):
                return False
            pause = min(2 * pause, 5.0)

    def close(self) -> None:
        """Give the connection back."""
        self._channel.close()


class HttpPort:
    """/metrics, /health and `pages`, by path; a path that is not there is not found, as on a server without it.

    Who takes any type (`Accept: */*`: curl, and hitmap finding out what a server is) only looks at /metrics. A scraper
    names the formats that it reads.
    """

    def __init__(self, pages: Mapping[str, object], port: int) -> None:
        self.scrapes_served = 0
        self._texts: deque[bytes] = deque()
        self._fetched = False
        self._asked_at = time.monotonic()
        self._served = threading.Condition()
        self._turn = threading.Lock()
        self._pages = {path: json.dumps(page).encode() for path, page in pages.items()} | {"/health": b""}
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used ({error.strerror}); choose another with --http-port"
            ) from None
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def show(self, metrics: str) -> None:
        """Serve this text as /metrics once those before it have been scraped.

        A text is in force until it was scraped once, however slowly a scraper asks: its samples carry their own times,
        and one left out would make two plays of a recording differ.
        """
        text = metrics.encode()
        with self._served:
            if self._texts and self._texts[-1] == text:
                return
            if self._fetched:
                self._texts.clear()
            self._texts.append(text)
            self._fetched = False

    def page(self, path: str, content: object) -> None:
        """Serve this as `path` from now on."""
        self._pages[path] = json.dumps(content).encode()

    @property
    def texts_left(self) -> int:
        """How many texts were shown and not scraped yet."""
        with self._served:
            return 0 if self._fetched else len(self._texts)

    def wait_served(self, idle_s: float, stopping: threading.Event | None = None) -> bool:
        """Wait until every text shown has been scraped, or nobody has scraped for `idle_s`; whether all were.

        However many wait and however slow the scraper: while it comes, they get there.
        """
        began = time.monotonic()
        with self._served:
            while not self._fetched and not (stopping and stopping.is_set()):
                left_s = max(began, self._asked_at) + idle_s - time.monotonic()
                if left_s <= 0:
                    break
                self._served.wait(min(left_s, _LOOK_S))
            return self._fetched

    def _text(self) -> bytes | None:
        with self._served:
            return self._texts[0] if self._texts else None

    def _was_fetched(self, text: bytes) -> None:
        with self._served:
            self.scrapes_served += 1
            self._asked_at = time.monotonic()
            if text is self._texts[0]:
                if len(self._texts) > 1:
                    self._texts.popleft()
                else:
                    self._fetched = True
            self._served.notify_all()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        port = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    # One at a time: who asks again at once is not to get the text he has just been given.
                    with port._turn:
                        self._metrics()
                elif path in port._pages:
                    self._answer(port._pages[path], "application/json")
                else:
                    self.send_error(404)

            def _metrics(self) -> None:
                text = port._text()
                if text is None:
                    self.send_error(404)
                    return
                # Version 0.0.4 has millisecond timestamps; the recorded header, 1.0.0, would leave it open.
                self._answer(text, "text/plain; version=0.0.4; charset=utf-8")
                if self.headers.get("Accept") != "*/*":
                    port._was_fetched(text)

            def _answer(self, body: bytes, content_type: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """A played server keeps no access log."""

        return Handler


class KvPort:
    """A PUB socket and the ROUTER that replays what was published, as vLLM has them; one thread owns both."""

    def __init__(self, port: int, replay_port: int) -> None:
        self._context = zmq.Context()
        # XPUB is PUB that tells of its subscribers: whoever plays can wait for the first.
        self._publisher = self._context.socket(zmq.XPUB)
        self._publisher.set_hwm(100_000)
        self._router = self._context.socket(zmq.ROUTER)
        try:
            self.endpoint = _bind(self._publisher, port, "--kv-port")
            self.replay_endpoint = _bind(self._router, replay_port, "--replay-port")
        except UserError:
            self._context.destroy(linger=0)
            raise
        self.subscribed = threading.Event()
        self._outbox: queue.SimpleQueue[tuple[bytes, int, bytes]] = queue.SimpleQueue()
        self._published: list[tuple[bytes, int, bytes]] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def publish(self, topic: bytes, seq: int, payload: bytes) -> None:
        """Hand a message to the publisher's thread."""
        self._outbox.put((topic, seq, payload))

    def close(self) -> None:
        """Send what waits, then close both sockets."""
        self._closing.set()
        self._thread.join()
        self._context.destroy(linger=2000)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._publisher, zmq.POLLIN)
        poller.register(self._router, zmq.POLLIN)
        while not (self._closing.is_set() and self._outbox.empty()):
            ready = dict(poller.poll(5))
            if self._publisher in ready and self._publisher.recv()[:1] == b"\x01":
                self.subscribed.set()
            if self._router in ready:
                self._replay(self._router.recv_multipart())
            while not self._outbox.empty():
                topic, seq, payload = message = self._outbox.get()
                self._published.append(message)
                self._publisher.send_multipart([topic, seq.to_bytes(8, "big"), payload])

    def _replay(self, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[2]) != 8:
            return
        client, first = frames[0], int.from_bytes(frames[2], "big")
        for topic, seq, payload in self._published:
            if seq >= first:
                self._router.send_multipart([client, b"", topic, seq.to_bytes(8, "big"), payload])
        self._router.send_multipart([client, b"", b"", END_OF_REPLAY, b""])


def _bind(socket: zmq.Socket[bytes], port: int, option: str) -> str:
    try:
        socket.bind(f"tcp://127.0.0.1:{port or '*'}")
    except zmq.ZMQError as error:
        raise UserError(
            f"port {port} cannot be used ({zmq.strerror(error.errno or 0)}); choose another with {option}"
        ) from None
    return str(socket.getsockopt_string(zmq.LAST_ENDPOINT))


def recorded_pages(capture: Capture, kv: KvPort) -> dict[str, object]:
    """What the server said of itself, where that was recorded; its KV events are now to be had from `kv`."""
    pages: dict[str, object] = {}
    if capture.version:
        pages["/version"] = {"version": capture.version}
    if capture.model:
        owner = "llamacpp" if capture.props else "vllm"
        model = {"id": capture.model, "object": "model", "owned_by": owner}
        pages["/v1/models"] = {"object": "list", "data": [model]}
    if capture.props:
        pages["/props"] = capture.props
    for rank, source in list((capture.kv_sources or {}).items())[:1]:  # a recording is of one publisher
        # With a star, as vLLM writes the endpoint of a publisher that binds.
        here = {"endpoint": _starred(kv.endpoint), "replay_endpoint": _starred(kv.replay_endpoint)}
        pages["/kv_event_sources"] = {rank: {**source, **here}}
    return pages


def _starred(endpoint: str) -> str:
    return endpoint.replace("127.0.0.1", "*")
