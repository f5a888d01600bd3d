"""Maps of the kernel's BPF, by bpf(2) itself: what is read many times a second needs no LLVM beside it.

Source: bpf(2) and include/uapi/linux/bpf.h.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
from typing import TypeAlias

_LOOKUP, _UPDATE, _DELETE, _LOOKUP_BATCH = 1, 2, 3, 24
_SYSCALL = {"x86_64": 321, "aarch64": 280}
_ELEMENT = struct.Struct("=IIQQQ")  # map, padding, key, value, flags
_BATCH = struct.Struct("=QQQQIIQQ")  # in, out, keys, values, count, map, element flags, flags
_COUNT_AT = 32

_Bytes: TypeAlias = "ctypes.Array[ctypes.c_char]"


class Map:
    """A hash map of this file descriptor. Keys and values are bytes of fixed sizes. All raise OSError."""

    def __init__(self, fd: int, key_size: int, value_size: int, entries: int) -> None:
        self.fd, self.key_size, self.value_size, self.entries = fd, key_size, value_size, entries
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._number = _SYSCALL[platform.machine()]
        self._key, self._value = (
            ctypes.create_string_buffer(key_size),
            ctypes.create_string_buffer(value_size),
        )
        self._keys: _Bytes | None = None  # as large as the map: pages that no entry needs are never touched
        self._values: _Bytes | None = None

    def lookup(self, key: bytes) -> bytes | None:
        """None where there is no such key."""
        return self._value.raw if self._element(_LOOKUP, key) else None

    def update(self, key: bytes, value: bytes) -> None:
        """Adds or replaces. OSError E2BIG where the map is full."""
        self._value.raw = value
        self._element(_UPDATE, key)

    def delete(self, key: bytes) -> bool:
        """False where there was no such key."""
        return self._element(_DELETE, key)

    def items(self) -> tuple[int, memoryview, memoryview]:
        """How many entries there are, their keys and their values one after the other, good until the next call: one
        system call (Linux 5.6)."""
        if self._keys is None or self._values is None:
            self._keys, self._values = (
                _pages(self.key_size * self.entries),
                _pages(self.value_size * self.entries),
            )
        if self.fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        position = ctypes.create_string_buffer(8)
        at = ctypes.addressof
        attr = ctypes.create_string_buffer(
            _BATCH.pack(0, at(position), at(self._keys), at(self._values), self.entries, self.fd, 0, 0)
        )
        self._bpf(_LOOKUP_BATCH, attr)  # ENOENT says that the end was reached
        count = struct.unpack_from("=I", attr, _COUNT_AT)[0]
        keys, values = memoryview(self._keys), memoryview(self._values)
        return count, keys[: count * self.key_size], values[: count * self.value_size]

    def close(self) -> None:
        """Can be called again."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _element(self, command: int, key: bytes) -> bool:
        self._key.raw = key
        value = (
            0 if command == _DELETE else ctypes.addressof(self._value)
        )  # fields not of a command must be 0
        attr = _ELEMENT.pack(self.fd, 0, ctypes.addressof(self._key), value, 0)
        return self._bpf(command, ctypes.create_string_buffer(attr))

    def _bpf(self, command: int, attr: _Bytes) -> bool:
        size = ctypes.c_uint(len(attr))
        if self._libc.syscall(ctypes.c_long(self._number), ctypes.c_int(command), attr, size) == 0:
            return True
        code = ctypes.get_errno()
        if code == errno.ENOENT:
            return False
        raise OSError(code, os.strerror(code))


def _pages(size: int) -> _Bytes:
    return (ctypes.c_char * size).from_buffer(mmap.mmap(-1, size))
