"""The owner process: one owner a directory, kill -9, wrong addresses."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from store.client import connect
from store.embedded import Embedded, ensure, find_owner
from store.migrate import migrate
from tests.store.plain import post


def _serve(directory: Path, port: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hitmap", "store", "serve", "--dir", str(directory), "--port", str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _user(directory: Path, then: str) -> subprocess.Popen[str]:
    """A process that uses the store of `directory`."""
    code = f"import sys, pathlib; from store.embedded import ensure; store = ensure(pathlib.Path(sys.argv[1])); {then}"
    return subprocess.Popen(
        [sys.executable, "-c", code, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


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


def _until_gone(pid: int, directory: Path) -> None:
    deadline = time.monotonic() + 30
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)
    assert not (directory / "server.json").exists()


def test_a_store_ends_with_the_process_that_used_it(tmp_path: Path) -> None:
    pid = int(
        _user(tmp_path, "import os; print(store.pid, flush=True); os.kill(os.getpid(), 9)").communicate()[0]
    )
    _until_gone(pid, tmp_path)


def test_a_store_outlives_who_started_it_while_others_use_it(tmp_path: Path) -> None:
    starter = _user(tmp_path, "print(store.pid, flush=True); input()")
    assert starter.stdout
    pid = int(starter.stdout.readline())
    with ensure(tmp_path) as second:
        assert second.pid == pid
        starter.communicate("\n")
        assert starter.returncode == 0
        time.sleep(1)  # more than the store waits before it looks for users
        assert connect(second.dsn).query("SELECT 1").first_row == (1,)
    _until_gone(pid, tmp_path)


def test_many_starters_get_one_store(tmp_path: Path) -> None:
    users = [_user(tmp_path, "print(store.pid, flush=True); input()") for _ in range(4)]
    pids = {user.stdout.readline() for user in users if user.stdout}
    assert len(pids) == 1
    for user in users:
        user.communicate("\n")
        assert user.returncode == 0
    _until_gone(int(pids.pop()), tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_busy_store_and_takes_its_file_away(number: int, tmp_path: Path) -> None:
    with ensure(tmp_path) as store, ThreadPoolExecutor() as pool:
        endless = pool.submit(
            post, store.dsn, "SELECT sleepEachRow(3) FROM numbers(100) SETTINGS max_block_size = 1"
        )
        time.sleep(0.5)
        os.kill(store.pid, number)
        _until_gone(store.pid, tmp_path)
        assert isinstance(endless.exception(), http.client.HTTPException | OSError)


def test_a_stale_introduction_is_not_believed(tmp_path: Path) -> None:
    """After a crash another store may listen on the port that server.json names."""
    with ensure(tmp_path / "other") as other:
        (tmp_path / "store").mkdir()
        stale = {"pid": other.pid + 1, "port": other.owner.port, "password": "x"}
        (tmp_path / "store/server.json").write_text(json.dumps(stale))
        assert find_owner(tmp_path / "store") is None
        with ensure(tmp_path / "store") as store:
            assert store.pid != other.pid


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be used"):
        ensure(tmp_path / "file" / "store")


def test_a_store_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "metadata").write_text("not a directory")
    with pytest.raises(UserError, match="did not start: the engine cannot open"):
        ensure(tmp_path / "store")


def test_a_proxy_in_the_environment_is_no_detour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ensure(tmp_path) as store:
        assert connect(store.dsn).query("SELECT 1").first_row == (1,)


def test_the_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    with ensure(tmp_path) as first:
        second = _serve(tmp_path)
        assert second.returncode == os.EX_TEMPFAIL
        assert f"already served by process {first.pid}" in second.stderr.splitlines()[-1]
        (tmp_path / "server.json").unlink()
        third = _serve(tmp_path)
        assert third.returncode == os.EX_TEMPFAIL
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
def test_a_wrong_dsn_is_one_clear_line(dsn: str, words: str, store_server: Embedded) -> None:
    owner = store_server.owner
    with pytest.raises(UserError) as caught:
        connect(dsn.format(port=owner.port, password=owner.password))
    assert words in str(caught.value)
    assert "secret-word" not in str(caught.value)
    assert "\n" not in str(caught.value)
