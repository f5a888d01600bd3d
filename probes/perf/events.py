"""perf_event_open(2) by ctypes: which event, opened how, and what a refusal means.

Source: perf_event_open(2) and include/uapi/linux/perf_event.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from enum import StrEnum
from typing import NamedTuple, Protocol

from probes.perf.scaling import Raw

HARDWARE, SOFTWARE, CACHE = 0, 1, 3
"""perf_type_id."""

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTR = struct.Struct("=IIQQQQQIIQQQQIiQIHH")  # perf_event_attr as of PERF_ATTR_SIZE_VER5, 112 bytes
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV, _INHERIT_THREAD = (1 << bit for bit in (0, 1, 5, 6, 35))
_TOTAL_TIME_ENABLED, _TOTAL_TIME_RUNNING, _GROUP = 1, 2, 8
_CLOSE_ON_EXEC = 8


class Event(NamedTuple):
    """type: HARDWARE, SOFTWARE or CACHE. metric: what readings of it are called."""

    metric: str
    type: int
    config: int


def cache_event(metric: str, cache: int, miss: bool) -> Event:
    """Read accesses, or those of them that missed, of a cache of enum perf_hw_cache_id."""
    read, result = 0, 1 if miss else 0
    return Event(metric, CACHE, cache | read << 8 | result << 16)


class Refusal(StrEnum):
    """Why an event is not counted."""

    UNSUPPORTED = "unsupported"  # this CPU, hypervisor or kernel does not have it
    DENIED = "denied"  # not for this user
    GONE = "gone"  # the thread exited
    FULL = "full"  # no descriptor left
    FAILED = "failed"


_MEANING = {
    errno.ENOENT: Refusal.UNSUPPORTED,
    errno.EOPNOTSUPP: Refusal.UNSUPPORTED,
    errno.ENODEV: Refusal.UNSUPPORTED,
    errno.ENXIO: Refusal.UNSUPPORTED,
    errno.ENOSYS: Refusal.UNSUPPORTED,
    errno.EACCES: Refusal.DENIED,
    errno.EPERM: Refusal.DENIED,
    errno.ESRCH: Refusal.GONE,
    errno.EMFILE: Refusal.FULL,
    errno.ENFILE: Refusal.FULL,
}


class Refused(Exception):
    """An event that could not be opened; `why` says what kind of reason, `code` is the errno."""

    def __init__(self, code: int) -> None:
        super().__init__(os.strerror(code))
        self.code = code
        self.why = _MEANING.get(code, Refusal.FAILED)


class Kernel(Protocol):
    """What is asked of the kernel; tests put another in its place."""

    def open(self, attr: bytes, tid: int, leader: int) -> int:
        """perf_event_open on any CPU; tid 0 is the calling thread, leader -1 none. Raises OSError."""

    def read(self, fd: int, size: int) -> bytes: ...

    def close(self, fd: int) -> None: ...


class Syscalls:
    """The real one."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._number = _SYSCALL.get(platform.machine())

    def open(self, attr: bytes, tid: int, leader: int) -> int:
        if self._number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        args = (ctypes.c_int(tid), ctypes.c_int(-1), ctypes.c_int(leader), ctypes.c_ulong(_CLOSE_ON_EXEC))
        fd = int(self._libc.syscall(ctypes.c_long(self._number), attr, *args))
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return fd

    read = staticmethod(os.read)
    close = staticmethod(os.close)


class Opened(NamedTuple):
    """Descriptors of one group, leader first. user_only: what ran in the kernel is not counted."""

    fds: tuple[int, ...]
    user_only: bool


def open_group(
    kernel: Kernel,
    events: tuple[Event, ...],
    tid: int,
    *,
    inherit: bool = False,
    user_only_will_do: bool = True,
) -> Opened:
    """Events that count at the same times. Raises Refused, and leaves nothing open.

    A refusal for lack of privilege is tried again without the kernel's part, where that will do: it also hides that the
    CPU has no such event. inherit: threads that this one starts from now on are counted with it; such a group cannot
    be read as one.
    """
    try:
        return Opened(_open_all(kernel, events, tid, inherit, user_only=False), user_only=False)
    except Refused as refused:
        if refused.why is not Refusal.DENIED or not user_only_will_do:
            raise
    return Opened(_open_all(kernel, events, tid, inherit, user_only=True), user_only=True)


def _open_all(
    kernel: Kernel, events: tuple[Event, ...], tid: int, inherit: bool, user_only: bool
) -> tuple[int, ...]:
    fds: list[int] = []
    try:
        for event in events:
            fds.append(_open(kernel, event, tid, fds[0] if fds else -1, inherit, user_only))
    except OSError as error:
        for fd in fds:
            kernel.close(fd)
        raise Refused(error.errno or errno.EINVAL) from error
    return tuple(fds)


def _open(kernel: Kernel, event: Event, tid: int, leader: int, inherit: bool, user_only: bool) -> int:
    flags = (_EXCLUDE_KERNEL | _EXCLUDE_HV) if user_only else 0
    if not inherit:
        return kernel.open(_attr(event, flags, group=True), tid, leader)
    try:  # threads only; before Linux 5.13 child processes came along
        return kernel.open(_attr(event, flags | _INHERIT | _INHERIT_THREAD, group=False), tid, leader)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return kernel.open(_attr(event, flags | _INHERIT, group=False), tid, leader)


def _attr(event: Event, flags: int, group: bool) -> bytes:
    read_format = _TOTAL_TIME_ENABLED | _TOTAL_TIME_RUNNING | (_GROUP if group else 0)
    head = (event.type, _ATTR.size, event.config, 0, 0, read_format, flags)
    return _ATTR.pack(*head, *(0 for _ in range(12)))


def read_group(kernel: Kernel, fds: tuple[int, ...], inherited: bool) -> tuple[Raw, ...]:
    """Of each event. Raises OSError, and ValueError where what comes back is cut short."""
    if inherited:
        return tuple(Raw(*memoryview(kernel.read(fd, 24)).cast("Q")) for fd in fds)
    size = 24 + 8 * len(fds)
    words = memoryview(kernel.read(fds[0], size)).cast("Q")
    if len(words) != 3 + len(fds):
        raise ValueError("a reading is cut short")
    return tuple(Raw(value, words[1], words[2]) for value in words[3:])


def raise_descriptor_limit() -> int:
    """As many open files as may be without privilege; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
