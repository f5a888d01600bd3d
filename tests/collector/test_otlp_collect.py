"""`hitmap collect` as a person starts it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from benchmarks.running import Running
from benchmarks.spans import METHOD, export_request
from cachemodel.errors import UsageError
from hitmap.commands.collect import require_token_off_loopback


def collect(home: Path, dsn: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hitmap", "collect", "--store", dsn, "--spool", str(home), *options],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_stores_what_it_received_and_ends_when_told(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.start_collector()
        with grpc.insecure_channel(running.endpoint) as channel:
            channel.unary_unary(METHOD)(export_request(1), timeout=10)
        assert running.collector
        running.collector.send_signal(signal.SIGTERM)
        assert running.collector.wait(30) == 0
        client = running.client()
        assert client.command("SELECT count() FROM otel_traces") == 512, "the end writes what is waiting"
        client.close()


@pytest.mark.parametrize("address", ["0.0.0.0:4317", "192.0.2.1:4317", "[::]:4317", "somewhere:4317"])
def test_off_loopback_a_token_is_needed(address: str) -> None:
    with pytest.raises(UsageError, match="token"):
        require_token_off_loopback(address, None)
    require_token_off_loopback(address, "secret")


@pytest.mark.parametrize("address", ["127.0.0.1:4317", "localhost:0", "[::1]:4317"])
def test_on_loopback_no_token_is_needed(address: str) -> None:
    require_token_off_loopback(address, None)


@pytest.mark.parametrize("address", ["4317", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999", ""])
def test_a_malformed_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        require_token_off_loopback(address, None)


def test_what_is_wrong_is_said_in_one_line(store_server: object, tmp_path: Path) -> None:
    dsn = store_server.dsn  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = collect(tmp_path, dsn, "--otlp-grpc", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "in use" in ended.stderr
    ended = collect(tmp_path, "http://127.0.0.1:1/x", "--otlp-grpc", "127.0.0.1:0")
    assert ended.returncode == 1
    assert "no store answers" in ended.stderr.splitlines()[-1]
