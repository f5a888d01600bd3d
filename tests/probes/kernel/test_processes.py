"""Real sockets, children and exits."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from probes.kernel import processes
from probes.kernel.processes import Process
from tests.probes.conftest import Worker, child

PROC = Path(__file__).parent / "fixtures" / "proc"


def listener(family: socket.AddressFamily, host: str) -> socket.socket:
    one = socket.socket(family)
    one.bind((host, 0))
    one.listen()
    return one


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["v4", "v6"]
)
def test_a_process_is_found_by_its_port(family: socket.AddressFamily, host: str) -> None:
    if family == socket.AF_INET6 and not socket.has_ipv6:
        pytest.skip("this kernel has no IPv6")
    with listener(family, host) as one:
        port = one.getsockname()[1]
        assert [found.pid for found in processes.on_port(port)] == [os.getpid()]
        assert port in processes.ports(os.getpid())
    with pytest.raises(UserError, match="nothing listens"):
        processes.on_port(port)
    assert port not in processes.ports(os.getpid())


def test_of_those_that_inherited_a_socket_the_eldest_is_told() -> None:
    with listener(socket.AF_INET, "127.0.0.1") as one:
        code = "import sys; print('up', flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[one.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as heir:
            assert heir.stdout
            heir.stdout.readline()
            port = one.getsockname()[1]
            assert port in processes.ports(heir.pid)
            assert [found.pid for found in processes.on_port(port)] == [os.getpid()]
            heir.communicate(b"")


def test_another_users_socket_is_said_to_be_one(root: None) -> None:
    with listener(socket.AF_INET, "127.0.0.1") as one:
        port = one.getsockname()[1]
        said = child(
            "from probes.kernel import processes\n"
            f"try: processes.on_port({port})\nexcept Exception as e: print(type(e).__name__, e)",
            unprivileged=True,
        )
    assert said.startswith("UserError something listens")
    assert "CAP_SYS_PTRACE" in said


def test_descendants_are_the_whole_family() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        parent.stdout.readline()
        below = processes.descendants(parent.pid)
        assert [one.parent for one in below] == [parent.pid]
        mine = [one.pid for one in processes.descendants(os.getpid())]
        assert mine.index(parent.pid) < mine.index(below[0].pid)
        parent.communicate(b"\n")


def test_a_number_used_again_is_another_process(worker: Worker) -> None:
    known = processes.process(worker.pid)
    assert known
    assert processes.same(known)
    assert not processes.same(known._replace(started=known.started - 1))
    worker.end()
    assert not processes.same(known)
    assert processes.process(worker.pid) is None
    assert processes.executable(worker.pid) is None
    assert processes.threads(worker.pid) == processes.ports(worker.pid) == []


def test_names(worker: Worker) -> None:
    assert processes.executable(worker.pid) == Path(os.path.realpath(sys.executable)).name
    kthreadd = processes.process(2)
    if kthreadd:
        assert processes.executable(2) == "kthreadd"
    worker.do("idle", 3)
    assert len(processes.threads(worker.pid)) == 4


def test_recorded() -> None:
    everyone = processes.processes(PROC)
    assert [one.pid for one in everyone] == [2, 13080, 13127]
    assert processes.descendants(13080, PROC) == [Process(13127, 5027657, 13080, "dead one")]
    assert processes.threads(13080, PROC) == [13080, 13123, 13124, 13125, 13126]
    with pytest.raises(UserError, match="another user's"):
        processes.on_port(18111, PROC)


def test_a_container_has_process_numbers_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532301]")
    assert not processes.in_host_pid_namespace(tmp_path)
    assert not processes.in_host_pid_namespace(tmp_path / "none")
