"""The process behind the pages: where it listens, whom it answers, how it ends."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.dashboard.conftest import Served, start, stop

UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def get(site: Served, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(site.address).netloc, timeout=20)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        answer.headers  # noqa: B018 - read while the connection is open
        return answer
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8501", "127.0.0.1.evil.example", "[::2]", ""])
def test_a_name_that_points_here_is_refused(host: str, site: Served) -> None:
    assert get(site, "/", Host=host).status == 403
    assert get(site, "/_stcore/health", Host=host).status == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "[::1]:8501"])
def test_this_machine_by_its_own_names_is_answered(host: str, site: Served) -> None:
    assert get(site, "/", Host=host).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), ("http://[", 403), ("http://localhost:9000", 101)],
)
def test_pages_of_others_open_no_socket(origin: str, status: int, site: Served) -> None:
    assert get(site, "/_stcore/stream", Origin=origin, **UPGRADE).status == status


def test_browsers_are_told_to_load_nothing_from_elsewhere(site: Served) -> None:
    policy = get(site, "/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy.replace("https://", "http")
    assert "frame-ancestors 'none'" in policy


def _sockets(pid: int) -> set[str]:
    """Inodes of the sockets a process has open."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            target = str(link.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def test_only_loopback_listens(site: Served) -> None:
    port = urlsplit(site.address).port
    inodes = _sockets(site.process.pid)
    listening = [
        row.split()[1]
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if row.split()[3] == "0A" and row.split()[9] in inodes
    ]
    assert listening == [f"0100007F:{port:04X}"]


def test_a_taken_port_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "hitmap", "dashboard", "--port", port],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hitmap: port {port} is taken; choose another with --port, 0 for any free one\n"


def test_a_store_that_is_not_there_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-m", "hitmap", "dashboard", "--port", "0", "--store", f"http://127.0.0.1:{port}/x"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"hitmap: no store answers at http://127.0.0.1:{port}/x")
    assert done.stderr.count("\n") == 1


def test_it_ends_with_its_store_when_asked_to(tmp_path: Path) -> None:
    served = start("hitmap", home=tmp_path)
    assert get(served, "/").status == 200
    assert stop(served, signal.SIGTERM) == ""
    assert served.process.returncode == 0
    assert not (tmp_path / "store/server.json").exists(), "its store ends with it"


def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    served = start("hitmap", home=tmp_path)
    assert (tmp_path / "store/server.json").exists()
    assert stop(served, signal.SIGKILL) == ""
    deadline = time.monotonic() + 30
    while (tmp_path / "store/server.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (tmp_path / "store/server.json").exists()


def test_what_plotly_looks_for_is_loaded_before_the_first_page() -> None:
    """It takes pandas from sys.modules as it is, half loaded by another thread, and a page failed of it."""
    program = """
import os, signal, sys
from dashboard.serve import listen, serve

def ready(address):
    print(hasattr(sys.modules.get("pandas"), "Series"), flush=True)
    os.kill(os.getpid(), signal.SIGINT)

with listen(0) as listening:
    serve(listening, lambda: None, ready)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout == "True\n", run.stderr
