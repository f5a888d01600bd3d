"""Keeps what a publisher's streams hold: tells it as gauges every 10 s, writes it to a file every minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from cachemodel.content import ContentHasher
from collector.kv.gauges import Gauges, summary
from collector.kv.snapshot import SavedStream, SnapshotError, load, save
from collector.kv.stream import KvStream
from collector.sink import Entry

log = logging.getLogger(__name__)

GAUGES_S = 10.0
SAVE_S = 60.0


class IndexKeeper:
    """path: of the file, None for none. note: what a person should know of the file, empty for nothing."""

    def __init__(self, server: str, hasher: ContentHasher, path: Path | None) -> None:
        self.note = ""
        self._server, self._hasher, self._path = server, hasher, path
        self._gauges = Gauges(server)
        self._told_at = self._saved_at = time.monotonic()
        self._saved: list[tuple[str, float, int]] = []

    def load(self) -> Mapping[str, SavedStream]:
        """What an earlier run left, by source; nothing where that cannot be used."""
        if self._path is None:
            return {}
        try:
            return load(self._path, self._server, self._hasher)
        except FileNotFoundError:
            return {}
        except SnapshotError as error:
            self.ignored(str(error))
            return {}

    def ignored(self, why: str) -> None:
        """The file, or a part of it, is not used."""
        self.note = f"index file {self._path} ignored: {why}"
        log.warning("%s: %s", self._server, self.note)

    def due(self, streams: Iterable[KvStream]) -> list[Entry]:
        """The gauges where it is time for them."""
        if time.monotonic() < self._told_at + GAUGES_S:
            return []
        self._told_at = time.monotonic()
        indexes = ((stream.source, rank, index) for stream in streams for rank, index in stream.ranks.items())
        return self._gauges.entries(indexes, round(time.time(), 6))

    def save(self, streams: Iterable[KvStream], *, now: bool = False) -> None:
        """Write the file where it is time for it, or `now`, and there is something new. Never fails: it is told."""
        if self._path is None or (not now and time.monotonic() < self._saved_at + SAVE_S):
            return
        self._saved_at = time.monotonic()
        states = {stream.source: state for stream in streams if (state := stream.state())}
        new = [(source, state.epoch, state.last) for source, state in states.items()]
        if new == self._saved:
            return
        try:
            save(self._path, self._server, self._hasher, states)
            self._saved = new
        except OSError as error:
            self.note = f"the index is not kept: {self._path}: {error.strerror}"
            log.warning("%s: %s", self._server, self.note)

    def told(self, streams: Iterable[KvStream]) -> str:
        """One line for a person, empty for nothing."""
        held = summary(index for stream in streams for index in stream.ranks.values())
        return "; ".join(part for part in (held, self.note) if part)
