"""The owner process: one owner a directory, kill -9, wrong addresses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from store.client import connect
from store.embedded import ensure, find_owner
from store.migrate import migrate


def _serve(directory: Path, port: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hitmap", "store", "serve", "--dir", str(directory), "--port", str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _runs(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # a zombie has an empty one
    except OSError:
        return False


def test_acknowledged_rows_survive_kill_9(tmp_path: Path) -> None:
    first = ensure(tmp_path)
    client = connect(first.dsn)
    migrate(client)
    client.insert(
        "deploys",
        [[datetime.now(UTC), "", "v1", "", ""]],
        column_names=["time", "server", "name", "who", "what"],
    )
    os.kill(first.pid, signal.SIGKILL)
    first.close()
    with ensure(tmp_path) as second:
        assert second.pid != first.pid
        assert connect(second.dsn).query("SELECT name FROM deploys").result_rows == [("v1",)]


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    starter = (
        "import sys, pathlib; from store.embedded import ensure;"
        " e = ensure(pathlib.Path(sys.argv[1])); print(e.pid)"
    )
    pid = int(
        subprocess.run([sys.executable, "-c", starter, str(tmp_path)], capture_output=True, check=True).stdout
    )
    deadline = time.monotonic() + 30
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _runs(pid)
    assert find_owner(tmp_path) is None


def test_the_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    with ensure(tmp_path) as first:
        second = _serve(tmp_path)
        assert second.returncode == 1
        assert f"already served by process {first.pid}" in second.stderr.splitlines()[-1]
        (tmp_path / "server.json").unlink()
        third = _serve(tmp_path)
        assert third.returncode == 1
        assert "owned by another process" in third.stderr.splitlines()[-1]


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = _serve(tmp_path, port)
    assert result.returncode == 1
    assert f"port {port}" in result.stderr
    assert "Traceback" not in result.stderr


def test_only_its_owner_can_read_the_password(tmp_path: Path) -> None:
    with ensure(tmp_path):
        for name in ("server.json", "writer.password"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("postgres://x/y", "a DSN looks like"),
        ("nonsense", "a DSN looks like"),
        ("http://127.0.0.1:99999/x", "a DSN looks like"),
        ("http://127.0.0.1:1/hitmap", "no store answers"),
        ("http://writer:secret-word@127.0.0.1:{port}/hitmap", "refuses the user or password"),
        ("http://writer:{password}@127.0.0.1:{port}/nowhere", "no such database"),
    ],
)
def test_a_wrong_dsn_is_one_clear_line(dsn: str, words: str, store_server) -> None:  # type: ignore[no-untyped-def]
    owner = store_server.owner
    with pytest.raises(UserError) as caught:
        connect(dsn.format(port=owner.port, password=owner.password))
    assert words in str(caught.value)
    assert "secret-word" not in str(caught.value)
    assert "\n" not in str(caught.value)
