"""Events of all threads of a process, as totals that never go back.

Two ways. As one (`threads=False`): every thread there is gets counters that its later threads inherit, so that nothing
is missed. By thread (`threads=True`): every thread gets counters of its own, and a new one when the next read finds it:
what it did before, or all it did if it ended before, is not counted.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from probes.perf import events, scaling
from probes.perf.events import Event, Kernel, Opened, Refusal, Refused

PROC = Path("/proc")


class Count(NamedTuple):
    """running: share of the time in which it counted, 1 where the event never had to wait."""

    value: float
    running: float


class _Group:
    """Counters of one thread that count at the same times."""

    def __init__(self, kernel: Kernel, group: tuple[Event, ...], opened: Opened, inherited: bool) -> None:
        self.events, self.user_only = group, opened.user_only
        self._kernel, self._fds, self._inherited = kernel, opened.fds, inherited
        self._scaled = [scaling.Scaled() for _ in group]
        self._now = tuple(scaling.ZERO for _ in group)

    def read(self) -> bool:
        """False where the counters do not answer."""
        try:
            self._now = events.read_group(self._kernel, self._fds, self._inherited)
        except (OSError, ValueError, TypeError):  # gone, or cut short
            return False
        for scaled, now in zip(self._scaled, self._now, strict=True):
            scaled.update(now)
        return True

    def counts(self) -> Iterator[tuple[Event, scaling.Scaled, scaling.Raw]]:
        yield from zip(self.events, self._scaled, self._now, strict=True)

    def close(self) -> None:
        for fd in self._fds:
            self._kernel.close(fd)
        self._fds = ()


class _Sum:
    """Of one event over threads."""

    __slots__ = ("enabled", "running", "total")

    def __init__(self) -> None:
        self.total, self.enabled, self.running = 0.0, 0, 0

    def add(self, scaled: scaling.Scaled, now: scaling.Raw) -> None:
        self.total += scaled.total
        self.enabled += max(now.enabled, scaled.enabled)
        self.running += scaled.running

    def count(self) -> Count | None:
        """None where nothing counted though something ran: no data, not 0."""
        if self.enabled and not self.running:
            return None
        return Count(self.total, min(1.0, self.running / self.enabled) if self.enabled else 1.0)


class ProcessCounters:
    """Counts `groups` in the threads of `pid` from now on. new_threads: by thread, also those that it starts later.

    Raises nothing. `refusals` says of a group why it is not counted, `uncounted` how many threads' were not for want of
    descriptors (nor later: half a count would look like a whole one), `silent` how many groups did not answer.
    """

    def __init__(
        self,
        pid: int,
        groups: Sequence[tuple[Event, ...]],
        *,
        threads: bool,
        new_threads: bool = True,
        user_only_will_do: bool = True,
        kernel: Kernel | None = None,
        proc: Path = PROC,
    ) -> None:
        self.pid, self.refusals = pid, dict[tuple[Event, ...], Refused]()
        self.uncounted, self.silent = 0, 0
        self._groups, self._by_thread, self._new_threads = tuple(groups), threads, new_threads
        self._user_only_will_do = user_only_will_do
        self._kernel, self._task = kernel or events.Syscalls(), proc / str(pid) / "task"
        self._open: dict[int, list[_Group]] = {}
        self._ended: dict[Event, _Sum] = {}
        self._process = _pidfd(pid)
        self._seen = set(self._threads())
        for tid in sorted(self._seen):
            self._attach(tid)

    @property
    def user_only(self) -> bool:
        """Whether work in the kernel is left out, for want of privilege."""
        return any(group.user_only for groups in self._open.values() for group in groups)

    @property
    def ended(self) -> bool:
        """Whether the process exited; its number may be another's by now. Its counters keep what they had."""
        if self._process is None:
            return not self._task.exists()
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return bool(poll.poll(0))

    def read(self) -> None:
        """Takes all counters in; by thread also new threads, and lets go of ended ones after their last reading."""
        self.silent = sum(not group.read() for groups in self._open.values() for group in groups)
        if not self._by_thread or self.ended:
            return
        now = set(self._threads())
        for tid in self._open.keys() - now:
            for group in self._open.pop(tid):
                group.read()
                for event, scaled, raw in group.counts():
                    self._ended.setdefault(event, _Sum()).add(scaled, raw)
                group.close()
        if self._new_threads:
            for tid in sorted(now - self._seen):
                self._attach(tid)
            self._seen = now

    def process(self) -> dict[Event, Count]:
        """Of the whole process as of the last read; events without data are left out."""
        sums: dict[Event, _Sum] = {}
        for event, ended in self._ended.items():
            sums[event] = total = _Sum()
            total.total, total.enabled, total.running = ended.total, ended.enabled, ended.running
        for groups in self._open.values():
            for group in groups:
                for event, scaled, raw in group.counts():
                    sums.setdefault(event, _Sum()).add(scaled, raw)
        return {event: count for event, one in sums.items() if (count := one.count())}

    def threads(self) -> dict[int, dict[Event, Count]]:
        """By thread that runs, as of the last read."""
        found: dict[int, dict[Event, Count]] = {}
        for tid, groups in self._open.items():
            counts = found[tid] = {}
            for group in groups:
                for event, scaled, raw in group.counts():
                    one = _Sum()
                    one.add(scaled, raw)
                    if count := one.count():
                        counts[event] = count
        return found

    def close(self) -> None:
        """Lets all descriptors go."""
        for groups in self._open.values():
            for group in groups:
                group.close()
        self._open.clear()
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def _threads(self) -> list[int]:
        try:
            return sorted(int(entry.name) for entry in self._task.iterdir())
        except (OSError, ValueError):
            return []

    def _attach(self, tid: int) -> None:
        """What is refused for one thread is not asked for the next, which would be refused it too, unless it ended or
        descriptors ran out."""
        opened: list[_Group] = []
        for group in self._groups:
            if (known := self.refusals.get(group)) and known.why is not Refusal.FULL:
                continue
            try:
                one = events.open_group(
                    self._kernel,
                    group,
                    tid,
                    inherit=not self._by_thread,
                    user_only_will_do=self._user_only_will_do,
                )
            except Refused as refused:
                if refused.why is Refusal.GONE:
                    break
                self.refusals[group] = refused
                self.uncounted += refused.why is Refusal.FULL
                continue
            opened.append(_Group(self._kernel, group, one, inherited=not self._by_thread))
        if opened:
            self._open[tid] = opened


def _pidfd(pid: int) -> int | None:
    """Becomes readable when that very process ends; None where there is none, or no descriptor for it."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
