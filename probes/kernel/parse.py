"""Texts of /proc as values. Pure: who reads the files, and what a vanished one means, stands elsewhere.

Formats: proc(5), and Documentation/networking/proc_net_tcp.rst of the kernel.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from typing import NamedTuple

LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""


class Stat(NamedTuple):
    """/proc/PID/stat, or a thread's. Times in clock ticks; `started` since boot; minor and major of a process include
    threads that exited."""

    pid: int
    name: str
    state: str
    parent: int
    minor_faults: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    threads: int
    started: int
    resident_pages: int


class Status(NamedTuple):
    """/proc/PID/status. Switches are of the one thread; None where the kernel leaves the line out (a kernel thread and
    a zombie have no memory)."""

    tgid: int | None
    resident_bytes: int | None
    voluntary_switches: int | None
    involuntary_switches: int | None


class Socket(NamedTuple):
    """A TCP socket that listens."""

    address: str
    port: int
    inode: int


def stat(text: bytes) -> Stat:
    """The name stands in parentheses and may hold any byte but NUL, also `) R 1`: it ends at the last one. Raises
    ValueError for what is no such line."""
    opened, closed = text.find(b"("), text.rfind(b")")
    rest = text[closed + 1 :].split()
    if opened < 0 or closed < opened or len(rest) < 22:
        raise ValueError(f"not a line of /proc/PID/stat: {text[:80]!r}")
    return Stat(
        pid=int(text[:opened]),
        name=text[opened + 1 : closed].decode(errors="replace"),
        state=rest[0].decode(),
        parent=int(rest[1]),
        minor_faults=int(rest[7]),
        major_faults=int(rest[9]),
        user_ticks=int(rest[11]),
        system_ticks=int(rest[12]),
        threads=int(rest[17]),
        started=int(rest[19]),
        resident_pages=int(rest[21]),
    )


_STATUS = {
    name: re.compile(rb"^" + name + rb":\s*(\d+)", re.MULTILINE)
    for name in (b"Tgid", b"VmRSS", b"voluntary_ctxt_switches", b"nonvoluntary_ctxt_switches")
}


def status(text: bytes) -> Status:
    """Names are escaped here (`\\n`), so a line is a line."""

    def number(name: bytes) -> int | None:
        found = _STATUS[name].search(text)
        return int(found[1]) if found else None

    resident_kib = number(b"VmRSS")
    return Status(
        number(b"Tgid"),
        None if resident_kib is None else resident_kib * 1024,
        number(b"voluntary_ctxt_switches"),
        number(b"nonvoluntary_ctxt_switches"),
    )


def inner_pid(text: str) -> int | None:
    """The pid that a process has in the innermost namespace it is in, of /proc/PID/status; None where the kernel does
    not tell."""
    found = re.search(r"^NSpid:(?:\s+\d+)*\s+(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def switches(text: bytes) -> tuple[int, int] | None:
    """Voluntary and involuntary context switches, the last two lines of a status; quicker than the whole."""
    found = text.rfind(b"\nvoluntary_ctxt_switches:")
    if found < 0:
        return None
    voluntary, _, involuntary = text[found + 1 :].partition(b"\n")
    return int(voluntary.partition(b":")[2]), int(involuntary.partition(b":")[2])


def listening(text: str) -> list[Socket]:
    """Sockets of /proc/net/tcp or tcp6 that listen. Lines cut short, as by a socket that closes, are left out."""
    sockets = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        sockets.append(Socket(_address(address), int(port, 16), int(fields[9])))
    return sockets


def _address(text: str) -> str:
    """Hexadecimal words of 32 bit, each as the host's memory has it. One of v4 behind a socket of v6 is told as v4."""
    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)


def socket_inode(link: str) -> int | None:
    """Of a descriptor's link `socket:[12345]`; None for other files."""
    return int(link[8:-1]) if link.startswith("socket:[") and link.endswith("]") else None
