"""`hitmap up` as a person starts it: one file, one command, a server that comes late."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.collector.servers import sglang, vllm

QUERY = "SELECT server, kind FROM servers ORDER BY server FORMAT TSV"


@contextmanager
def up(folder: Path, config: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "hitmap.yaml").write_text(config)
    process = subprocess.Popen(
        [sys.executable, "-m", "hitmap", "up", *options],
        cwd=folder,
        env=os.environ | {"HITMAP_HOME": str(folder / "home")},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def asked(url: str, query: str) -> str:
    base, _, database = url.rpartition("/")
    with urllib.request.urlopen(f"{base}/?database={database}", query.encode(), timeout=10) as answer:
        return str(answer.read().decode())


def test_everything_in_the_file_runs(tmp_path: Path) -> None:
    with vllm.recorded() as blue, sglang.new() as green:
        config = f"""
collector:
  otlp_grpc: 127.0.0.1:0
  otlp_http: off
servers:
  blue: {{url: {blue.url}, interval: 0.2, kv_events: "tcp://127.0.0.1:*", kv_bind: true}}
  green: {{url: {green.url}, interval: 0.2}}
  gone: {{url: "http://127.0.0.1:9"}}
"""
        with up(tmp_path, config) as process:
            assert process.stderr
            first = process.stderr.readline()
            found = re.search(
                r"store at (http://127\.0\.0\.1:\d+/hitmap); OTLP/gRPC on 127\.0\.0\.1:\d+;", first
            )
            assert found, first
            deadline = time.monotonic() + 60
            while asked(found[1], QUERY) != "blue\tvllm\ngreen\tsglang\n":
                assert time.monotonic() < deadline, asked(found[1], QUERY)
                time.sleep(0.1)
            while asked(found[1], "SELECT uniqExact(server) FROM series WHERE metric != ''") != "2\n":
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert "blue is vllm 0.32.0, " in said
    assert "green is sglang 0.5.23, " in said
    assert said.rstrip().endswith("all of it is in the store")


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        ("servers: {blue: {}}", (), "hitmap.yaml:1: servers.blue.url is missing"),
        ("", ("--config", "absent.yaml"), "absent.yaml: No such file or directory"),
        ("collector: {otlp_grpc: off, otlp_http: 256.0.0.1:1, token: x}", (), "256.0.0.1:1"),
        ("store: {dsn: 'http://127.0.0.1:1/x'}", (), "no store answers"),
        ("collector: {spool: /dev/null/x}", (), "choose another collector.spool"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_stays(
    tmp_path: Path, config: str, options: tuple[str, ...], said: str
) -> None:
    with up(tmp_path, config, *options) as process:
        error = process.communicate(timeout=60)[1]
    assert process.returncode in (1, 2)
    assert said in error
    assert "Traceback" not in error
