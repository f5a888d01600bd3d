"""Counters of the calling thread, to be read at the edges of what it does (probes.kernel.thread.ThreadCounters)."""

from __future__ import annotations

from collections.abc import Mapping

from probes.perf import events, scaling
from probes.perf.events import Kernel, Opened, Refused
from probes.pmu.events import Groups, tried

Raw = tuple[tuple[int, ...], ...]


class ThreadGroup:
    """Opened by the thread that is counted, for as long as it lives. `metrics` is empty where the CPU offers nothing:
    then leave it out, and spare two system calls a reading."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._kernel = kernel or events.Syscalls()
        self._opened: list[Opened] = []
        opened: list[tuple[events.Event, ...]] = []
        wanted, self.refusals = tried(self._kernel)
        for group in wanted:
            try:
                self._opened.append(events.open_group(self._kernel, group, 0))
            except Refused as refused:
                self.refusals |= dict.fromkeys(group, refused)
                continue
            opened.append(group)
        self._groups: Groups = tuple(opened)
        self.metrics = tuple(event.metric for group in opened for event in group)

    @property
    def user_only(self) -> bool:
        """Whether work in the kernel is left out, for want of privilege."""
        return any(opened.user_only for opened in self._opened)

    def read(self) -> Raw | None:
        """(nanoseconds enabled, running, values...) of each group; None where they no longer answer. One system call a
        group."""
        kernel = self._kernel
        try:
            return tuple(
                tuple(memoryview(kernel.read(opened.fds[0], 24 + 8 * len(opened.fds))).cast("Q")[1:])
                for opened in self._opened
            )
        except (OSError, IndexError):
            return None

    def scaled(self, before: Raw, after: Raw) -> Mapping[str, float | None]:
        """Counts from one reading to the other by metric; None where the group had no turn in between."""
        found: dict[str, float | None] = {}
        for group, first, last in zip(self._groups, before, after, strict=True):
            for event, start, end in zip(group, first[2:], last[2:], strict=True):
                found[event.metric] = scaling.between(
                    scaling.Raw(start, first[0], first[1]), scaling.Raw(end, last[0], last[1])
                )
        return found

    def close(self) -> None:
        """Can be called again."""
        for opened in self._opened:
            for fd in opened.fds:
                self._kernel.close(fd)
        self._opened = []
