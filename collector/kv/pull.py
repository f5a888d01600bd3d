"""Drains the KV-cache events of a TensorRT-LLM server over HTTP. Read, not run live.

`POST /kv_cache_events` gives what has happened since somebody asked last, and forgets it: with two readers each gets a
part. So this runs only where a person asked for it. What the server dropped before it was read (its buffer has
`event_buffer_max_size` events) or what others took shows as a gap in the event ids; nothing can be replayed. An id that
comes again after a later one tells of a restart. The server tells no times: an event's time here is that of its answer.

Source: tensorrt_llm/serve/openai_server.py; NVIDIA/TensorRT-LLM docs/source/features/kvcache.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from cachemodel.content import ContentHasher
from cachemodel.errors import UserError
from cachemodel.kv_events import KVEventBatch
from cachemodel.kv_events.trtllm import Drain, Drained
from collector.fetch import FetchError, get
from collector.kv.keeper import IndexKeeper
from collector.kv.stream import COUNTED, MAX_RANKS, KvStream, Message, Position
from collector.sink import Entry, Sink
from collector.source import FAILING, RUNNING, WAITING, PollingSource

PATH = "/kv_cache_events"
SOURCE = "kv_cache_events"
"""What stands in the rows as their source."""
MAX_BYTES = 64 << 20
_ENTRY_ROWS = 20_000

Positions = Callable[[int], Mapping[str, Position]]


class KvPull(PollingSource):
    """Drains one server until stopped.

    url: base address of the server. token: bearer token, empty for none. positions: what the store knows of a rank's
    streams by source, asked once a rank, for rank 0 before anything is drained; it lets a life of the server go on
    across restarts of the collector. hasher: of the installation.
    """

    def __init__(
        self,
        server: str,
        url: str,
        sink: Sink,
        *,
        interval_s: float = 1.0,
        timeout_s: float = 10.0,
        token: str = "",
        positions: Positions = lambda rank: {},
        hasher: ContentHasher,
    ) -> None:
        super().__init__(f"kv events {server} (drained)", sink, interval_s)
        self._server = server
        self._url = url.rstrip("/") + PATH
        self._timeout_s, self._token = timeout_s, token
        self._ask_position = positions
        self._hasher = hasher
        self._keeper = IndexKeeper(server, hasher, None)
        self._drain = Drain()
        self._streams: dict[int, KvStream] = {}

    def start(self) -> None:
        """Begin. Raises UserError where the address cannot be one."""
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"{self._url} is not the address of a server: give one such as http://127.0.0.1:8000"
            )
        self.tell(WAITING, f"no event yet from {self._url}")
        super().start()

    def poll(self) -> None:
        """Drain once and store what came."""
        self._stream(0)
        self.counts["polls"] += 1
        try:
            items, nameless = self._drain.decode(self._answer())
        except (FetchError, ValueError) as error:
            self.failures += 1
            self.tell(FAILING, f"{self._url}: {error}")
            self.counts["failed"] += 1
            return
        self.failures = 0
        self.counts["malformed"] += nameless
        for entry in _joined(self._entries(items, time.time())):
            if not self.deliver([entry]):
                return
        if gauges := self._keeper.due(self._streams.values()):
            self.deliver(gauges)
        self._report()

    def _answer(self) -> bytes:
        answer = get(
            self._url, timeout_s=self._timeout_s, max_bytes=MAX_BYTES, token=self._token, method="POST"
        )
        if answer.status in (401, 403):
            raise FetchError(f"HTTP {answer.status}: it wants a key, pass --api-key")
        if answer.status != 200:
            raise FetchError(f"HTTP {answer.status}")
        if not answer.whole:
            raise FetchError("the body broke off")
        return answer.body

    def _entries(self, items: Iterable[Drained], received: float) -> Iterator[Entry]:
        for item in items:
            ts = round(received, 6)
            batch = None if item.error else KVEventBatch(ts, item.events, item.rank)
            stream = self._stream(item.rank or 0)
            if stream is not None:
                yield from stream.take(Message(item.event_id, received, ts, batch, item.error))

    def _stream(self, rank: int) -> KvStream | None:
        """The stream of a rank; None for a new one that there is no room for."""
        stream = self._streams.get(rank)
        if stream is None and len(self._streams) >= MAX_RANKS:
            self.counts["left_out"] += 1
        elif stream is None:
            try:
                position = self._ask_position(rank).get(SOURCE)
            except Exception:
                if not rank:
                    raise  # nothing is drained yet: it is tried again
                self.counts["positions_unknown"] += 1
                position = None
            stream = self._streams[rank] = KvStream(self._server, SOURCE, rank, position, hasher=self._hasher)
        return stream

    def _report(self) -> None:
        totals = {name: sum(s.counts[name] for s in self._streams.values()) for name in COUNTED}
        self.counts.update({name: total - self.counts[name] for name, total in totals.items()})
        if not totals["messages"]:
            # also what a server answers that has no event buffer, or publishes over ZeroMQ instead
            self.tell(
                WAITING,
                f"{self._url} answers, without an event so far: it needs kv_cache_config.event_buffer_max_size > 0",
            )
            return
        missing = (
            f", {totals['missing']} missing: dropped, or read by somebody else" if totals["missing"] else ""
        )
        last = max(stream.last for stream in self._streams.values())
        if left_out := self.counts["left_out"]:
            missing += f", {left_out} left out: of more than {MAX_RANKS} ranks"
        self.tell(
            RUNNING, f"{totals['messages']} events, last number {last}{missing}; times are those of reading"
        )


def _joined(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The same rows in fewer entries: nothing is drained twice, so that no single event must be recognised again."""
    payloads: list[bytes] = []
    rows = 0
    for entry in entries:
        payloads.append(entry.payload)
        rows += entry.rows
        if rows >= _ENTRY_ROWS:
            yield Entry("kv_events", b"".join(payloads), rows)
            payloads, rows = [], 0
    if payloads:
        yield Entry("kv_events", b"".join(payloads), rows)
