"""perf_event_open without a PMU: what the kernel would say, as the test tells it to."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Opened:
    """One event: its attr's fields, and what it has counted."""

    type: int
    config: int
    flags: int
    read_format: int
    tid: int
    leader: int
    value: int = 0
    enabled: int = 0
    running: int = 0


@dataclass
class FakeKernel:
    """refuse: errno of an event, or 0. Descriptors that are not closed can be counted."""

    refuse: Callable[[Opened], int] = lambda event: 0
    limit: int = 1 << 20
    open_now: dict[int, Opened] = field(default_factory=dict)
    asked: list[Opened] = field(default_factory=list)
    _next: int = 1000

    def open(self, attr: bytes, tid: int, leader: int) -> int:
        kind, size, config, _, _, read_format, flags = struct.unpack_from("=IIQQQQQ", attr)
        assert size == len(attr) == 112
        event = Opened(kind, config, flags, read_format, tid, leader)
        self.asked.append(event)
        code = self.refuse(event) or (errno.EMFILE if len(self.open_now) >= self.limit else 0)
        if code:
            raise OSError(code, os.strerror(code))
        self._next += 1
        self.open_now[self._next] = event
        return self._next

    def read(self, fd: int, size: int) -> bytes:
        if fd not in self.open_now:
            raise OSError(errno.EBADF, "closed")
        event = self.open_now[fd]
        if event.read_format & 8:
            group = [event, *(one for one in self.open_now.values() if one.leader == fd)]
            values = [one.value for one in group]
            return struct.pack(f"={3 + len(group)}Q", len(group), event.enabled, event.running, *values)[
                :size
            ]
        return struct.pack("=3Q", event.value, event.enabled, event.running)[:size]

    def close(self, fd: int) -> None:
        del self.open_now[fd]

    def run(self, nanoseconds: int, share: float = 1.0, per_nanosecond: int = 2) -> None:
        """All events are wanted for so long, and count for that share of it."""
        for event in self.open_now.values():
            event.enabled += nanoseconds
            event.running += int(nanoseconds * share)
            event.value += int(nanoseconds * share) * per_nanosecond
