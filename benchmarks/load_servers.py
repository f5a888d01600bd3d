"""Stub servers for benchmarks.load, in a process of their own: /metrics to scrape, KV events to follow.

    python -m benchmarks.load_servers SERVERS PUBLISHERS PUBLISHED

prints where they are as a line of JSON; publishes until it reads a line, then prints what was scraped and published,
and goes on to answer replays until its input ends. The file PUBLISHED has the messages of each publisher so far.
The servers look like vLLM; the publishers speak its wire.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path

import msgspec
import numpy as np
import zmq

MESSAGES_S = 20.0  # of each publisher
EVENTS = 4  # a message
BLOCK_SIZE = 16
REPLAYED = 10_000  # messages a publisher can repeat
END_OF_REPLAY = b"\xff" * 8
BUCKETS = ("0.01", "0.1", "0.5", "1.0", "5.0", "+Inf")
HISTOGRAMS = ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds")
COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
)
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


def metrics(scrapes: int) -> bytes:
    """What the `scrapes`-th scrape of a server reads."""
    lines = []
    label = 'model_name="stub",engine="0"'
    for name in COUNTERS:
        lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{{{label}}} {scrapes * 100}"]
    for name in GAUGES:
        lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{label}}} {scrapes % 7}"]
    for name in HISTOGRAMS:
        lines.append(f"# TYPE vllm:{name} histogram")
        lines += [
            f'vllm:{name}_bucket{{{label},le="{le}"}} {scrapes * 10 * at}' for at, le in enumerate(BUCKETS, 1)
        ]
        lines += [
            f"vllm:{name}_sum{{{label}}} {scrapes * 3.5}",
            f"vllm:{name}_count{{{label}}} {scrapes * 60}",
        ]
    return "\n".join([*lines, ""]).encode()


class Servers:
    """HTTP servers on ports of their own, in one event loop."""

    def __init__(self) -> None:
        self.scrapes: Counter[int] = Counter()

    async def open(self, count: int) -> list[str]:
        """Start them; their URLs."""
        opened = [await asyncio.start_server(self._answer, "127.0.0.1", 0) for _ in range(count)]
        self._opened = opened
        return [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in opened]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
            port = writer.get_extra_info("sockname")[1]
            body, kind, status = b"{}", b"application/json", b"200 OK"
            if path == b"/metrics":
                self.scrapes[port] += 1
                body, kind = metrics(self.scrapes[port]), b"text/plain; version=0.0.4"
            elif path == b"/v1/models":
                body = b'{"data":[{"id":"stub","owned_by":"vllm"}]}'
            elif path == b"/version":
                body = b'{"version":"0.32.0"}'
            else:
                status = b"404 Not Found"
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                % (status, kind, len(body), body)
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class Publisher:
    """A PUB and a ROUTER, as in vLLM."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._pub = context.socket(zmq.PUB)
        self._pub.setsockopt(zmq.SNDHWM, 100_000)
        self.router = context.socket(zmq.ROUTER)
        self.events, self.replay = (
            f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
            for socket in (self._pub, self.router)
        )
        self.published = 0
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=REPLAYED)

    def publish(self) -> None:
        """One message: blocks stored, each behind the one before."""
        first = self.published * EVENTS
        events = [
            ["BlockStored", [block + 1], block or None, [7] * BLOCK_SIZE, BLOCK_SIZE, None, "GPU"]
            for block in range(first, first + EVENTS)
        ]
        frames = self.published.to_bytes(8), msgspec.msgpack.encode([time.time(), events, 0])
        self._kept.append(frames)
        self._pub.send_multipart([b"kv", *frames])
        self.published += 1

    def answer(self) -> None:
        """A request for replay."""
        client, empty, start = self.router.recv_multipart()
        for number, payload in list(self._kept):
            if number >= start:
                self.router.send_multipart([client, empty, b"kv", number, payload])
        self.router.send_multipart([client, empty, b"", END_OF_REPLAY, b""])


class Publishers:
    """Publishers in a thread, each at its rate. counts: where others can read how many messages each published."""

    def __init__(self, count: int, counts: Path) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.all = [Publisher(context) for _ in range(count)]
        self._counts = np.memmap(counts, np.uint64, "w+", shape=(count,))
        self.publishing = threading.Event()
        self.publishing.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        poller = zmq.Poller()
        for publisher in self.all:
            poller.register(publisher.router, zmq.POLLIN)
        by_socket = {publisher.router: publisher for publisher in self.all}
        due = time.monotonic()
        while True:
            for socket, _ in poller.poll(max(0, (due - time.monotonic()) * 1000)):
                by_socket[socket].answer()
            if time.monotonic() >= due:
                due += 1 / MESSAGES_S
                if self.publishing.is_set():
                    for number, publisher in enumerate(self.all):
                        publisher.publish()
                        self._counts[number] = publisher.published


async def serve(servers: int, publishers: int, counts: Path) -> None:
    http, kv = Servers(), Publishers(publishers, counts)
    urls = await http.open(servers)
    kv.start()
    print(json.dumps({"urls": urls, "kv": [(p.events, p.replay) for p in kv.all]}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    kv.publishing.clear()
    await asyncio.sleep(0.2)
    print(
        json.dumps({"scrapes": http.scrapes.total(), "published": [p.published for p in kv.all]}), flush=True
    )
    await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))


if __name__ == "__main__":
    main()
