"""Texts of /proc, recorded from a real kernel, and names that look like the fields around them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.kernel import parse

PROC = Path(__file__).parent / "fixtures" / "proc"
ODD, ZOMBIE, KTHREADD = 13080, 13127, 2


def stat_of(path: str) -> parse.Stat:
    return parse.stat((PROC / path / "stat").read_bytes())


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"{ODD}", "odd) Z 9 ("),
        (f"{ODD}/task/13123", "a b (c"),
        (f"{ODD}/task/13124", "x) R 1 (y"),
        (f"{ODD}/task/13125", "new\nline"),
        (f"{ODD}/task/13126", "tab\tback\\"),
    ],
)
def test_a_name_may_hold_anything(path: str, name: str) -> None:
    stat = stat_of(path)
    assert (stat.name, stat.parent, stat.threads) == (name, 13037, 5)
    assert (PROC / path / "comm").read_bytes() == name.encode() + b"\n"


def test_fields_are_where_proc_5_says() -> None:
    assert stat_of(str(ODD)) == parse.Stat(13080, "odd) Z 9 (", "R", 13037, 3180, 0, 2, 2, 5, 5027637, 3519)


def test_a_zombie_and_a_kernel_thread_have_no_memory() -> None:
    assert stat_of(str(ZOMBIE)).state == "Z"
    for pid in (ZOMBIE, KTHREADD):
        status = parse.status((PROC / str(pid) / "status").read_bytes())
        assert status.resident_bytes is None
        assert status.tgid == pid


def test_switches_and_status_agree() -> None:
    for path in PROC.glob("*/task/*/status"):
        text = path.read_bytes()
        status = parse.status(text)
        assert parse.switches(text) == (status.voluntary_switches, status.involuntary_switches)
    assert parse.switches(b"") is None


@given(st.binary(min_size=1, max_size=15).filter(lambda name: b"\0" not in name))
def test_any_name_parses(name: bytes) -> None:
    line = (PROC / str(ODD) / "stat").read_bytes().replace(b"odd) Z 9 (", name)
    assert parse.stat(line)._replace(name="") == stat_of(str(ODD))._replace(name="")


@given(st.binary(max_size=200))
def test_what_is_no_stat_is_a_value_error(text: bytes) -> None:
    try:
        parse.stat(text)
    except ValueError:
        return
    assert text.count(b"(")


def test_only_what_listens() -> None:
    assert parse.listening((PROC / "net" / "tcp").read_text()) == [parse.Socket("127.0.0.1", 18111, 2454034)]
    v6 = parse.listening((PROC / "net" / "tcp6").read_text())
    assert [(one.address, one.port) for one in v6] == [("::1", 18112), ("127.0.0.1", 8001)]
    assert parse.listening("") == parse.listening("header\nshort line\n") == []


@given(st.binary(min_size=4, max_size=4))
def test_addresses_as_the_socket_library_has_them(packed: bytes) -> None:
    word = int.from_bytes(packed, "little")
    line = f"h\n 0: {word:08X}:0050 0:0 0A 0:0 0:0 0 0 0 7 1\n"
    assert parse.listening(line)[0].address == socket.inet_ntoa(packed)


def test_links_of_descriptors() -> None:
    assert parse.socket_inode("socket:[123]") == 123
    assert parse.socket_inode("/tmp/socket:[1]") is None
    assert parse.socket_inode("pipe:[123]") is None


def test_the_pid_in_a_container() -> None:
    assert parse.inner_pid("Pid:\t4\nNSpid:\t25014\t33\t4\nNSpgid:\t9\t9\t1\n") == 4
    assert parse.inner_pid("NSpid:\t25014\n") == 25014
    assert parse.inner_pid("Name:\tNSpid: 5\n") is None
