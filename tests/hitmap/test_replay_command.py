"""`hitmap replay` as a person runs it: what it says, what it waits for, how it ends."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hitmap.commands import attach
from tests.hitmap.test_replay import Receiver, Subscriber


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


def replay(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hitmap", "replay", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_waits_for_a_watcher_plays_and_counts(run1: Path, receiver: Receiver, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    command = replay(run1, "--otlp", receiver.address, "--speed", "500", "--log-file", log, "--json")
    assert command.stdout
    said = json.loads(command.stdout.readline())
    assert not receiver.bodies
    subscriber = Subscriber(said["kv_events"])
    subscriber.start()
    while command.poll() is None:  # as a scraper does
        with suppress(OSError):  # at the end it is gone
            urllib.request.urlopen(said["url"] + "/metrics").read()
        time.sleep(0.05)
    out, err = command.communicate(timeout=60)
    subscriber.done.set()
    subscriber.join()
    assert command.returncode == 0, err
    counts = json.loads(out)
    assert counts.pop("scrapes served") >= 2
    assert counts == {"exports": 34, "KV messages": 244, "metrics texts": 12, "log lines": 175}
    assert len(receiver.bodies) == 34
    assert len(subscriber.messages) == 244


def test_it_says_how_to_attach_and_can_be_stopped(run1: Path, tmp_path: Path) -> None:
    log = tmp_path / "a log.jsonl"
    command = replay(run1, "--log-file", log, "--otlp", "127.0.0.1:14317")
    assert command.stderr
    assert command.stderr.readline() == "In another terminal:\n"
    words = shlex.split(command.stderr.readline())
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=30)
    assert command.returncode == 130
    assert words[:2] == ["hitmap", "attach"]
    told = attach.command.make_context("attach", words[2:]).params
    assert told["logs"] == (str(log),)
    assert told["services"] == ("vllm-tiny",)
    assert told["otlp_grpc"] == "127.0.0.1:14317"
    assert told["kv_bind"] is False
    assert told["interval"] == pytest.approx(1.7)  # the recording's texts are 3.3 s apart
    assert len(told["servers"]) == len(told["kv_events"]) == len(told["replays"]) == 1


def test_played_and_attached_as_it_says_the_counters_are_whole(run1: Path, tmp_path: Path, db: Any) -> None:
    log = tmp_path / "log.jsonl"
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{door.getsockname()[1]}"
    command = replay(run1, "--log-file", log, "--otlp", address, "--speed", "6")
    assert command.stderr
    command.stderr.readline()
    words = shlex.split(command.stderr.readline())
    words += ["--store", db.dsn, "--spool", str(tmp_path / "spool")]
    with subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as attached:
        _, said = command.communicate(timeout=120)
        attached.send_signal(signal.SIGTERM)
        attached.communicate(timeout=60)
    assert command.returncode == 0, said
    assert (
        said.splitlines()[-1] == "its ports are closed: attach finds nobody there any more and can be stopped"
    )
    growth = (
        "SELECT metric, sum(delta) FROM samples JOIN series USING (fingerprint)"
        " WHERE metric IN ('prompt_tokens', 'prefix_cache.hit_tokens') GROUP BY metric"
    )
    assert dict(db.client.query(growth).result_rows) == {
        "prompt_tokens": 95_678,
        "prefix_cache.hit_tokens": 57_248,
    }


def test_counters_that_nobody_fetched_are_counted(run1: Path, receiver: Receiver, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    command = replay(
        *(run1, "--otlp", receiver.address, "--speed", "500", "--log-file", log, "--json", "--linger", "0.5")
    )
    assert command.stdout
    said = json.loads(command.stdout.readline())
    subscriber = Subscriber(said["kv_events"])
    subscriber.start()
    urllib.request.urlopen(said["url"] + "/metrics").read()  # once, and never again
    _, err = command.communicate(timeout=60)
    subscriber.done.set()
    subscriber.join()
    assert command.returncode == 1
    assert err.splitlines()[-2:] == [
        "hitmap replay: 11 /metrics texts wait to be fetched, one at a time",
        "hitmap: 11 of 12 /metrics texts were not fetched, as nobody asked for 0.5 s: the counters of the end are"
        " missing. Keep attach running with an --interval below that, or replay with a longer --linger",
    ]


def test_it_says_that_it_waits_for_the_collector_and_leaves_nothing_behind(
    run1: Path, tmp_path: Path
) -> None:
    with socket.socket() as later:
        later.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{later.getsockname()[1]}"
        command = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hitmap",
                "replay",
                run1,
                "--otlp",
                address,
                "--no-wait",
                "--speed",
                "500",
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
        assert command.stderr
        lines = [command.stderr.readline() for _ in range(3)]
        assert list(tmp_path.iterdir()), "the logs are there while it plays"
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=30)
    assert lines[2] == (
        f"hitmap replay: the collector at {address} does not take spans yet (UNAVAILABLE):"
        " trying again for up to 60 s; hitmap attach starts one\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--http-port", "--kv-port", "--replay-port"])
def test_a_taken_port_is_one_clear_line(option: str, run1: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = replay(run1, option, str(port), "--log-file", tmp_path / "log.jsonl")
        _, err = command.communicate(timeout=30)
    assert command.returncode == 1
    assert (
        err == f"hitmap: port {port} cannot be used (Address already in use); choose another with {option}\n"
    )


def test_a_log_that_cannot_be_written_is_one_clear_line(run1: Path, tmp_path: Path) -> None:
    command = replay(run1, "--log-file", tmp_path / "none/log.jsonl")
    _, err = command.communicate(timeout=30)
    assert command.returncode == 1
    assert err.endswith("log.jsonl cannot be written: No such file or directory\n")
    assert len(err.splitlines()) == 1
