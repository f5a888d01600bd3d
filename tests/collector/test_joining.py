"""A server that is down at the start is attached once it answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.attach import AttachOptions
from collector.joining import Joining
from collector.spool import Spool
from tests.collector.support import HASHER, Server, take, text, wait_until
from tests.collector.test_attach import vllm


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.sqlite")
    yield opened
    opened.close()


def test_a_server_that_comes_up_late_is_attached(
    run1: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.joining.LONGEST_WAIT_S", 0.1)
    server = vllm((run1 / "metrics" / "r1_10_after_mixed.txt").read_bytes())
    answers, server.answers = server.answers, {"/metrics": text("starting", status=503)}
    found: list[tuple[str, str]] = []
    options = AttachOptions("blue", interval_s=0.05)
    with server:
        joining = Joining(
            server.url,
            options,
            spool,
            found=lambda name, detection: found.append((name, detection.kind)),
            hasher=HASHER,
        )
        joining.start()
        wait_until(lambda: joining.status()[0].state == "failing")
        assert [status.source for status in joining.status()] == ["server blue"]
        server.answers = answers
        wait_until(lambda: [s.source for s in joining.status()] == ["metrics blue"])
        wait_until(lambda: joining.status()[0].state == "running")
        joining.stop()
    assert found == [("blue", "vllm")]
    (row,) = take(spool, "servers")
    assert (row["server"], row["kind"], row["version"], row["models"]) == (
        "blue",
        "vllm",
        "0.32.0",
        ["tiny-llama"],
    )
    assert {"signal": "preemptions", "seen": True, "evidence": "counter", "flag": ""} in row["signals"]


def test_one_that_never_answers_says_so_and_stops_at_once(spool: Spool) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        joining = Joining(url, AttachOptions("gone"), spool, hasher=HASHER)
        joining.start()
        wait_until(lambda: joining.status()[0].state == "failing")
        assert url in joining.status()[0].detail
        joining.stop()
    assert take(spool, "servers") == []


def test_it_is_a_server(spool: Spool) -> None:
    with Server() as server:  # answers 404 to everything
        joining = Joining(server.url, AttachOptions("odd"), spool, hasher=HASHER)
        joining.start()
        wait_until(lambda: joining.status()[0].state == "failing")
        assert "not as a server hitmap knows" in joining.status()[0].detail
        joining.stop()
