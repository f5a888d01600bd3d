"""The spool: where data waits, on disk, between the acknowledgement to its sender and the store.

A folder that one process holds: a SQLite file in WAL mode for the books, append-only files for the payloads. An entry
is written, together with the hash of its content, before `put` returns; runs of entries of one kind are sealed into
batches; a batch leaves once the store has it.

A killed process loses nothing. After a power cut the last moments may be missing, as with ClickHouse itself;
`fsync=True` closes that gap at the price of two disk flushes a `put`.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import NamedTuple

from collector.batch import Batch
from collector.segments import PayloadLostError, Place, Segments
from collector.set_aside import set_aside
from collector.sink import Backpressure, Entry
from collector.spool_file import open_database
from collector.tally import Tally

log = logging.getLogger(__name__)

RETRY_AFTER_S = 2.0


class Backlog(NamedTuple):
    """What of one kind waits to be sealed; `since` is time.monotonic() of the oldest."""

    rows: int
    since: float


class Spool:
    """The production Sink, in `folder`. Thread-safe. Raises UserError when the folder cannot be used."""

    def __init__(
        self,
        folder: Path,
        tally: Tally | None = None,
        *,
        limit_bytes: int = 1 << 30,
        seen_limit: int = 1_000_000,
        fsync: bool = False,
    ) -> None:
        self.limit_bytes = limit_bytes
        self._folder, self._fsync, self._seen_limit = folder, fsync, seen_limit
        self._tally = tally or Tally()
        self._changed = Condition()  # its lock guards the connection and all that follows
        self._db = open_database(folder / "spool.db", fsync=fsync)
        self._uuid: str = self._db.execute("SELECT uuid FROM spool").fetchone()[0]
        self._last_id: int = self._db.execute("SELECT coalesce(max(id), 0) FROM entry").fetchone()[0]
        self._size: int = self._db.execute("SELECT coalesce(sum(length), 0) FROM entry").fetchone()[0]
        self._sealed: dict[str, int] = dict(
            self._db.execute("SELECT kind, max(last) FROM batch GROUP BY kind")
        )
        self._segments: dict[str, Segments] = {}
        self._backlog: dict[str, Backlog] = {}
        for (kind,) in self._db.execute("SELECT DISTINCT kind FROM entry").fetchall():
            self._recount(kind, time.monotonic())

    # -- intake ----------------------------------------------------------------------------------------------------

    def put(self, entries: Sequence[Entry]) -> int:
        """Make the entries durable, all or none; see `Sink.put`."""
        hashes = [content_hash(entry) for entry in entries]
        with self._changed:
            if self._size + sum(len(entry.payload) for entry in entries) > self.limit_bytes:
                raise Backpressure(RETRY_AFTER_S)
            try:
                with self._transaction():
                    fresh = [self._remember(content) for content in hashes]
                    new = [entry for entry, is_new in zip(entries, fresh, strict=True) if is_new]
                    self._append(new)
            except (sqlite3.Error, OSError) as error:
                # the disk is full or failing: the sender keeps its data
                log.warning("the spool cannot write: %s", error)
                raise Backpressure(RETRY_AFTER_S) from error
            self._last_id += len(new)
            for entry in new:
                waiting = self._backlog.get(entry.kind) or Backlog(0, time.monotonic())
                self._backlog[entry.kind] = waiting._replace(rows=waiting.rows + entry.rows)
                self._size += len(entry.payload)
            self._changed.notify_all()
        for entry, is_new in zip(entries, fresh, strict=True):
            self._tally.accepted(entry.kind, entry.rows, entry.rows if is_new else 0)
        return sum(entry.rows for entry in new)

    def _append(self, entries: Sequence[Entry]) -> None:
        for id_, entry in enumerate(entries, self._last_id + 1):
            (place,) = self._files(entry.kind).append([entry.payload])
            self._db.execute(
                "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", (entry.kind, id_, entry.rows, *place)
            )

    def _remember(self, content: bytes) -> bool:
        """Whether this content is new; the oldest hash beyond the limit is forgotten."""
        if not self._db.execute("INSERT OR IGNORE INTO seen (hash) VALUES (?)", (content,)).rowcount:
            return False
        self._db.execute("DELETE FROM seen WHERE id <= (SELECT max(id) FROM seen) - ?", (self._seen_limit,))
        return True

    # -- batches ---------------------------------------------------------------------------------------------------

    def backlog(self) -> dict[str, Backlog]:
        """What waits to be sealed, by kind."""
        with self._changed:
            return dict(self._backlog)

    @property
    def size(self) -> int:
        """Payload bytes in the spool, sealed or not. A kind's last file may be up to 32 MiB longer."""
        return self._size

    def pending(self) -> dict[str, int]:
        """Rows not yet in the store by kind, sealed or not."""
        with self._changed:
            return dict(self._db.execute("SELECT kind, sum(rows) FROM entry GROUP BY kind"))

    def wait(self, timeout_s: float) -> None:
        """Sleep until something was put or the time is over."""
        with self._changed:
            self._changed.wait(timeout_s)

    def wake(self) -> None:
        """End all waiting."""
        with self._changed:
            self._changed.notify_all()

    def batches(self) -> list[Batch]:
        """Sealed batches that the store does not have for certain, oldest first."""
        with self._changed:
            rows = self._db.execute(
                "SELECT id, kind, first, last, entries, rows, attempt FROM batch ORDER BY id"
            )
            return [self._batch(*row) for row in rows]

    def seal(self, kind: str, max_rows: int, max_bytes: int) -> Batch | None:
        """Make a batch of the oldest waiting entries of a kind: up to the first limit reached, at least one entry."""
        with self._changed:
            rows = size = entries = first = last = 0
            waiting = self._db.execute(
                "SELECT id, rows, length FROM entry WHERE kind = ? AND id > ? ORDER BY id",
                (kind, self._sealed.get(kind, 0)),
            )
            for id_, entry_rows, length in waiting:
                if entries and (rows >= max_rows or size + length > max_bytes):
                    break
                first = first or id_
                last = id_
                rows, size, entries = rows + entry_rows, size + length, entries + 1
            if not entries:
                return None
            with self._transaction():
                batch = self._add_batch(kind, first, last, entries, rows)
            self._sealed[kind] = last
            self._recount(kind, time.monotonic())
            return batch

    def payload(self, batch: Batch) -> bytes:
        """The entries of a batch, one after the other; raises PayloadLostError."""
        with self._changed:
            places = self._db.execute(
                "SELECT segment, offset, length FROM entry WHERE kind = ? AND id BETWEEN ? AND ? ORDER BY id",
                (batch.kind, batch.first, batch.last),
            ).fetchall()
            files = self._files(batch.kind)
        return files.read(Place(*place) for place in places)

    def done(self, batch: Batch) -> None:
        """The store has it: forget the batch and its entries."""
        with self._changed:
            with self._transaction():
                self._remove(batch)
            self._forget_files(batch.kind)

    def renew(self, batch: Batch) -> Batch:
        """The same batch under a token the store has not seen."""
        with self._changed, self._transaction():
            self._db.execute("UPDATE batch SET attempt = attempt + 1 WHERE id = ?", (batch.id,))
            return batch._replace(attempt=batch.attempt + 1)

    def split(self, batch: Batch) -> list[Batch]:
        """Two batches in the place of one, to find the entry the store cannot read."""
        with self._changed, self._transaction():
            inside = (batch.kind, batch.first, batch.last)
            rows = self._db.execute(
                "SELECT id, rows FROM entry WHERE kind = ? AND id BETWEEN ? AND ? ORDER BY id", inside
            ).fetchall()
            self._db.execute("DELETE FROM batch WHERE id = ?", (batch.id,))
            middle = len(rows) // 2
            return [
                self._add_batch(batch.kind, half[0][0], half[-1][0], len(half), sum(n for _, n in half))
                for half in (rows[:middle], rows[middle:])
            ]

    def reject(self, batch: Batch, reason: str) -> None:
        """Set a batch aside that the store will never take; see collector.set_aside. Raises OSError."""
        try:
            data = self.payload(batch)
        except PayloadLostError:
            data = b""
        set_aside(self._folder, batch.name, batch.kind, batch.rows, reason, data)
        self.done(batch)

    def close(self) -> None:
        """Give the file back; whatever is in it waits for the next start."""
        with self._changed:
            for files in self._segments.values():
                files.close()
            self._db.close()

    # -- inner -----------------------------------------------------------------------------------------------------

    def _batch(
        self, id_: int, kind: str, first: int, last: int, entries: int, rows: int, attempt: int
    ) -> Batch:
        return Batch(id_, kind, first, last, entries, rows, attempt, f"{self._uuid}-{id_:08d}")

    def _add_batch(self, kind: str, first: int, last: int, entries: int, rows: int) -> Batch:
        added = self._db.execute(
            "INSERT INTO batch (kind, first, last, entries, rows) VALUES (?, ?, ?, ?, ?)",
            (kind, first, last, entries, rows),
        )
        return self._batch(int(added.lastrowid or 0), kind, first, last, entries, rows, 0)

    def _remove(self, batch: Batch) -> None:
        inside = (batch.kind, batch.first, batch.last)
        self._db.execute("DELETE FROM entry WHERE kind = ? AND id BETWEEN ? AND ?", inside)
        self._db.execute("DELETE FROM batch WHERE id = ?", (batch.id,))

    def _forget_files(self, kind: str) -> None:
        """Delete what no entry of a kind needs any more, after the entries are gone for certain."""
        self._size = self._db.execute("SELECT coalesce(sum(length), 0) FROM entry").fetchone()[0]
        oldest = self._db.execute(
            "SELECT segment FROM entry WHERE kind = ? ORDER BY id LIMIT 1", (kind,)
        ).fetchone()
        self._files(kind).keep_from(oldest[0] if oldest else None)

    def _files(self, kind: str) -> Segments:
        if kind not in self._segments:
            last = self._db.execute(
                "SELECT coalesce(max(segment), 0) FROM entry WHERE kind = ?", (kind,)
            ).fetchone()[0]
            self._segments[kind] = Segments(self._folder, kind, last, fsync=self._fsync)
        return self._segments[kind]

    def _recount(self, kind: str, since: float) -> None:
        (rows,) = self._db.execute(
            "SELECT sum(rows) FROM entry WHERE kind = ? AND id > ?", (kind, self._sealed.get(kind, 0))
        ).fetchone()
        if rows is None:
            self._backlog.pop(kind, None)
        else:
            self._backlog[kind] = Backlog(rows, since)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.rollback()
            raise
        self._db.commit()


def content_hash(entry: Entry) -> bytes:
    """16 bytes that stand for an entry's kind and payload."""
    digest = hashlib.sha256(entry.kind.encode() + b"\0")
    digest.update(entry.payload)
    return digest.digest()[:16]
