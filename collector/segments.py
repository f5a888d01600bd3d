"""Append-only files for the payloads of one kind in a spool.

Writing a payload to a plain file and reading it back costs a fifth of what a database page by page costs. The spool's
database says which ranges count: what a crash left behind the last of them is never looked at.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

SEGMENT_BYTES = 32 << 20


class PayloadLostError(Exception):
    """A file ends before a payload that is in the books: the machine lost power before the disk had it."""


class Place(NamedTuple):
    """Where a payload is."""

    segment: int
    offset: int
    length: int


class Segments:
    """Files `<kind>.<number>` in `folder`; `after` is the last number that is in use."""

    def __init__(self, folder: Path, kind: str, after: int, *, fsync: bool) -> None:
        self._folder, self._kind, self._fsync = folder, kind, fsync
        self._number, self._end, self._fd = after, 0, -1
        for path in self._files():
            if int(path.suffix[1:]) > after:
                path.unlink()

    def append(self, payloads: Sequence[bytes]) -> list[Place]:
        """Write payloads one after the other. Raises OSError, and nothing was written, when the disk is full."""
        if self._fd < 0 or self._end >= SEGMENT_BYTES:
            self._next()
        places, end = [], self._end
        try:
            for payload in payloads:
                _write_all(self._fd, payload)
                places.append(Place(self._number, end, len(payload)))
                end += len(payload)
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        self._end = end
        return places

    def read(self, places: Iterable[Place]) -> bytes:
        """The payloads at these places, in the order given, joined. Raises PayloadLostError."""
        data = io.BytesIO()  # grows in place and gives its bytes away: a join would take them twice
        for number, group in groupby(places, itemgetter(0)):
            try:
                with self._path(number).open("rb", buffering=0) as file:
                    for place in group:
                        data.write(_read_all(file.fileno(), place))
            except FileNotFoundError:
                raise PayloadLostError(f"{self._path(number)} is missing") from None
        return data.getvalue()

    def keep_from(self, number: int | None) -> None:
        """Delete the segments before `number`; None: nothing is in use."""
        if number is None and self._fd >= 0:
            os.ftruncate(self._fd, 0)
            self._end = 0
        for path in self._files():
            if int(path.suffix[1:]) < (self._number if number is None else number):
                path.unlink()

    def close(self) -> None:
        """Close the file that is being written."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _next(self) -> None:
        self.close()
        self._number += 1
        self._end = 0
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path(self._number), flags, 0o600)

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"{self._kind}.[0-9]*"))

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._kind}.{number:08d}"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_all(fd: int, place: Place) -> bytes:
    data = os.pread(fd, place.length, place.offset)
    if len(data) < place.length:
        raise PayloadLostError(f"{place.length - len(data)} bytes of a payload are missing")
    return data
