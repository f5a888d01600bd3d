"""Real processes that come, restart, fork and exit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cachemodel.errors import UserError
from probes.daemon.targets import Asked, Targets
from tests.probes.conftest import child
from tests.probes.daemon.receivers import eventually

LISTEN = """
import socket, sys, time
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "close":
        server.close()
        print("closed", flush=True)
    if line.strip() == "fork":
        import subprocess
        child = subprocess.Popen(["sleep", "60"])
        print(child.pid, flush=True)
    if line.strip() == "reap":
        child.kill(); child.wait()
        print("reaped", flush=True)
"""


class Server:
    """Listens on a port, and does what a line tells it."""

    def __init__(self, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LISTEN, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.told()

    def do(self, what: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.told()

    def told(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def server(port: int) -> Iterator[Server]:
    one = Server(port)
    try:
        yield one
    finally:
        one.end()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def watching(**asked: object) -> Targets:
    return Targets(Asked(**asked), "1")  # type: ignore[arg-type]


def test_a_server_that_restarts_is_found_again_on_its_port(port: int) -> None:
    with server(port) as one:
        targets = watching(ports=[port], server="mine")
        assert targets.pids == [one.pid]
        told = targets.resources()[one.pid]
        assert (told["server.port"], told["hitmap.server"], told["process.pid"]) == (
            str(port),
            "mine",
            str(one.pid),
        )
        assert not targets.refresh()
    assert targets.refresh()
    assert (targets.pids, targets.gone) == ([], False)
    assert list(targets.resources()) == [None]
    with server(port) as two:
        assert targets.refresh()
        assert targets.pids == [two.pid]
        assert targets.roots().keys() == {two.pid}


def test_a_new_server_is_found_while_the_old_one_still_serves_its_last_requests(port: int) -> None:
    with server(port) as old:
        targets = watching(ports=[port])
        with server(port) as new:  # both, as while one drains
            assert targets.refresh()
            assert sorted(targets.pids or []) == sorted([old.pid, new.pid])
            assert old.do("close") == "closed"
            targets.refresh()
            assert sorted(targets.pids or []) == sorted([old.pid, new.pid])
            old.end()
            assert targets.refresh()
            assert targets.pids == [new.pid]


def test_children_that_come_later_are_watched_under_their_parents_port(port: int) -> None:
    with server(port) as one:
        targets = watching(ports=[port])
        worker = int(one.do("fork"))
        assert targets.refresh()
        assert targets.pids == [one.pid, worker]
        assert targets.resources()[worker]["server.port"] == str(port)
        assert targets.roots().keys() == {one.pid}
        one.do("reap")
        assert targets.refresh()
        assert targets.pids == [one.pid]


def test_a_pid_that_exits_is_gone_for_good_also_where_nobody_waits_for_it() -> None:
    process = subprocess.Popen(["sleep", "60"])
    targets = watching(pids=[process.pid])
    assert targets.roots() == {process.pid: "sleep"}
    assert not targets.gone
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it ended, and is a zombie
    assert targets.refresh()
    assert targets.gone
    process.wait()


def test_a_process_whose_first_thread_ended_still_is_watched() -> None:
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start();"
        "ctypes.CDLL(None).syscall(60, 0)"  # exit of the one thread
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        targets = watching(pids=[process.pid])
        eventually(lambda: state(process.pid) == "Z")
        targets.refresh()
        assert not targets.gone
    finally:
        process.kill()
        process.wait()


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
        return stat.read().rpartition(")")[2].split()[0]


def test_who_is_not_there_is_said(port: int) -> None:
    with pytest.raises(UserError, match=f"nothing listens on port {port}"):
        watching(ports=[port])
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(UserError, match=f"there is no process {process.pid}"):
        watching(pids=[process.pid])


def test_of_a_whole_host_names_are_kept_while_their_processes_run() -> None:
    targets = watching(everything=True)
    assert (targets.pids, targets.gone, list(targets.resources())) == (None, False, [None])
    process = subprocess.Popen(["sleep", "60"])
    other = subprocess.Popen(["sleep", "60"])
    try:
        eventually(lambda: targets.name([process.pid]) or process.pid in targets.resources())
        assert not targets.name([process.pid, 2**22 + 1]), "known, and nobody"
        time.sleep(0.05)
        assert targets.resources()[process.pid]["process.pid"] == str(process.pid)
        assert targets.name([other.pid])
        other.kill()
        other.wait()
        assert targets.refresh()
        assert targets.resources().keys() == {None, process.pid}
    finally:
        process.kill()
        process.wait()


def test_without_descriptors_it_says_so_and_knows_who_it_knew() -> None:
    code = (
        "import os, resource\n"
        "from probes.daemon.targets import Asked, Targets\n"
        "targets = Targets(Asked(pids=[os.getpid()]), '1')\n"
        "held = [os.dup(0) for _ in range(3)]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, max(held) + 1))\n"
        "try: targets.refresh()\n"
        "except OSError as error: print(error.errno, targets.pids == [os.getpid()])\n"
    )
    assert child(code).strip() == "24 True"
