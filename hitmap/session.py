"""What `hitmap up`, `collect` and `attach` run: a store, a spool with its writer, doors for OTLP, watched servers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cachemodel.printable import printable
from collector.chains.memory import BYTES_A_BLOCK, MAX_BLOCKS
from collector.otlp.intake import Limits
from collector.pipeline import Pipeline, Stats
from collector.resume import Stored
from collector.source import SourceStatus
from collector.writer import Flush
from hitmap.config.model import CollectorConfig, StoreConfig
from hitmap.doors import Doors, open_doors
from hitmap.signals import stopped_by_signals
from store.client import connect
from store.embedded import Embedded, ensure, home

BASE_BYTES = 160 << 20  # the process without traffic, libraries included
FIRST_LOOK_S, LOG_EVERY_S = 2.0, 10.0
DRAIN_S = 5.0  # at the end, for what is not in the store yet
FLUSH = Flush()


def snapshots() -> Path:
    """The folder in which what a server's caches hold outlives the collector."""
    return home() / "index"


class Watched(Protocol):
    """A server that is watched: `collector.attach.Attachment` or `collector.joining.Joining`."""

    @property
    def memory_bytes(self) -> int: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def status(self) -> list[SourceStatus]: ...


Words = Callable[[str], str]
Servers = Callable[[Pipeline, Stored | None, Doors], Sequence[Watched]]
"""Makes what is watched, with what an earlier run stored, None where that is not known, and the open doors."""


@dataclass(frozen=True)
class Session:
    """What runs. reader_url: where the embedded store can be read, empty for a ClickHouse server."""

    pipeline: Pipeline
    doors: Doors
    watched: Sequence[Watched]
    reader_url: str

    def status(self) -> Iterator[str]:
        """A line for each source and one for the store."""
        for server in self.watched:
            for status in server.status():
                yield printable(f"{status.source}: {status.state}, {status.detail}")
        yield printable(status_line(self.pipeline.stats()) + self.doors.text_note())


def run(
    name: str,
    store: StoreConfig,
    collector: CollectorConfig,
    console: Console,
    servers: Servers = lambda _pipeline, _stored, _doors: (),
    words: Words = str,
) -> None:
    """Run until interrupted or terminated.

    name: of the command, for messages. servers: makes what is watched. words: puts advice, which names options, in the
    words of the command. Raises UserError where something cannot begin, a door that was asked for included.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.ERROR)
    with stopped_by_signals() as stopping, ExitStack() as stack:
        session = _open(store, collector, servers, stack)
        console.print(f"{name}: {_headline(session, collector)}", soft_wrap=True)
        for error in session.doors.closed.values():
            console.print(words(f"{name}: no OTLP there: {error}"), soft_wrap=True)
        _watch(session, console, stopping, words)
        console.print(f"{name}: stopping; what waits is written to the store")
    if session.pipeline.drained:
        console.print(f"{name}: all of it is in the store")
    else:
        console.print(
            f"{name}: the store did not take all of it within {DRAIN_S:g} s; the rest stays in the spool until the"
            " next start",
            soft_wrap=True,
        )


class _Store:
    """The DSN of a store, now: an embedded one that died comes back on another port."""

    def __init__(self, config: StoreConfig, stack: ExitStack) -> None:
        self._config, self._stack = config, stack
        self._lock = threading.Lock()
        self._embedded: Embedded | None = None

    def dsn(self) -> str:
        if self._config.dsn:
            return self._config.dsn.get_secret_value()
        with self._lock:
            if self._embedded is None or not self._embedded.owner.answers():
                if self._embedded:
                    self._embedded.close()
                self._embedded = self._stack.enter_context(ensure(self._config.directory, self._config.port))
            return self._embedded.dsn

    @property
    def reader_url(self) -> str:
        """Where anybody on this machine may read, empty for a ClickHouse server."""
        return self._embedded.reader_dsn if self._embedded else ""


def _open(
    config: StoreConfig,
    collector: CollectorConfig,
    servers: Servers,
    stack: ExitStack,
) -> Session:
    """Everything begun, in the order in which one needs the other; `stack` ends it the other way round."""
    store = _Store(config, stack)
    pipeline = Pipeline(
        store.dsn,
        collector.spool or home() / "spool",
        spool_limit_bytes=collector.spool_limit << 20,
        fsync=collector.fsync,
        flush=FLUSH,
    )
    stack.callback(pipeline.close, DRAIN_S)
    doors = open_doors(collector, pipeline, stack)
    doors.require(collector.model_fields_set)
    stored = Stored(lambda: connect(store.dsn())) if _drained(pipeline) else None
    watched = servers(pipeline, stored, doors)
    if not watched:
        doors.require_one()
    for server in watched:
        server.start()
        stack.callback(server.stop)
    return Session(pipeline, doors, watched, store.reader_url)


def _drained(pipeline: Pipeline, timeout_s: float = 10.0) -> bool:
    """Wait until all that an earlier run left in the spool is in the store; whether it came to that in time."""
    deadline = time.monotonic() + timeout_s
    while any(pipeline.stats().pending.values()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _headline(session: Session, collector: CollectorConfig) -> str:
    parts = [f"store at {session.reader_url}"] if session.reader_url else []
    parts += [str(session.doors)] if session.doors.opened else []
    chains = sum(server.memory_bytes for server in session.watched)
    chains += MAX_BLOCKS * BYTES_A_BLOCK if chains else 0
    flushed = 3 * (FLUSH.max_bytes + Limits().message_bytes)
    memory = (BASE_BYTES + session.doors.memory_bytes + flushed + chains) >> 20
    parts.append(f"memory stays below {memory} MB, the spool below {collector.spool_limit} MB")
    return "; ".join(parts)


def _watch(session: Session, console: Console, stopping: threading.Event, words: Words) -> None:
    """Show how things stand until `stopping` is set: live on a terminal, else a change now and then."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            while not stopping.wait(1.0):
                live.update(Text(words("\n".join(session.status()))), refresh=True)
        return
    shown: list[str] = []
    wait_s = FIRST_LOOK_S  # what cannot work is told soon
    while not stopping.wait(wait_s):
        wait_s = LOG_EVERY_S
        lines = list(session.status())
        if lines != shown:
            console.print(words("\n".join(lines)), soft_wrap=True, markup=False)
        shown = lines


def status_line(stats: Stats) -> str:
    """One line: what was accepted, written, refused and what waits."""
    parts = []
    for kind, tally in sorted(stats.kinds.items()):
        part = f"{kind}: {tally.written:,} written of {tally.accepted:,}"
        if tally.duplicates:
            part += f", {tally.duplicates:,} repeated"
        if tally.rejected:
            reasons = ", ".join(f"{rows:,} x {reason}" for reason, rows in tally.rejected.items())
            part += f", refused {reasons}"
        if tally.last_error:
            part += f", waiting: {tally.last_error}"
        parts.append(part)
    used = stats.spool_bytes / stats.spool_limit_bytes
    return "; ".join(parts or ["nothing received yet"]) + f"; spool {used:.0%} full"
