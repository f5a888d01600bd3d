"""`hitmap attach` as a person starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachemodel.errors import UsageError
from collector.kinds import COMMON_SETTINGS
from hitmap.commands._collector_options import checked
from tests.collector.publisher import Publisher, recorded
from tests.collector.support import wait_until
from tests.collector.test_attach import vllm


@pytest.fixture(scope="module")
def metrics(run1: Path) -> bytes:
    return (run1 / "metrics" / "r1_10_after_mixed.txt").read_bytes()


def hitmap(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hitmap", "attach", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command_shows_and_collects_until_told_to_stop(
    metrics: bytes, run1: Path, tmp_path: Path, db: Any
) -> None:
    messages = recorded(run1 / "kv_events.jsonl")
    with vllm(metrics) as server, Publisher() as publisher:
        publisher.send(messages)
        process = hitmap(
            *(f"blue={server.url}", "--kv-events", publisher.events, "--replay", f"blue={publisher.replay}"),
            *("--kv-connect", "--interval", "0.2", "--service", "tiny", "--otlp-grpc", "127.0.0.1:0"),
            *("--store", db.dsn, "--spool", str(tmp_path)),
        )
        count = "SELECT count() FROM kv_events WHERE server = 'blue'"
        wait_until(lambda: db.client.query(count).result_rows[0][0] == 2154, timeout_s=60)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "blue: vllm 0.32.0" in out
    assert "OTLP/gRPC on 127.0.0.1:" in err
    assert db.client.query("SELECT server FROM server_aliases WHERE alias = 'tiny'").result_rows == [
        ("blue",)
    ]
    tokens = (
        "SELECT DISTINCT value FROM samples JOIN series USING (fingerprint)"
        " WHERE server = 'blue' AND metric = 'prompt_tokens'"
    )
    assert len(db.client.query(tokens).result_rows) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{url}", "127.0.0.1:1", "--check"], 1, "http://127.0.0.1:1: Connection refused"),
        (["{url}", "b=127.0.0.1:1", "--log", "f.jsonl", "--check"], 2, "which server is --log f.jsonl for?"),
        (["a={url}", "a=127.0.0.1:1", "--check"], 2, "two servers are called a"),
        (["a={url}", "b={url}/", "--check"], 2, "is given twice"),
        (["a={url}", "--replay", "x", "--replay", "a=y", "--check"], 2, "--replay is given twice"),
        (["{url}", "--json"], 2, "--json goes with --check"),
        (["{url}", "--otlp-grpc", "0.0.0.0:4317"], 2, "--token"),
        ([], 2, "Missing argument"),
    ],
)
def test_wrong_calls_end_with_one_line(arguments: list[str], code: int, message: str, metrics: bytes) -> None:
    with vllm(metrics) as server:
        process = hitmap(*(argument.format(url=server.url) for argument in arguments))
        _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert message in err
    assert "Traceback" not in err


def test_where_no_server_answers_there_is_nothing_to_show() -> None:
    process = hitmap("127.0.0.1:1", "--check")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("hitmap: http://127.0.0.1:1: Connection refused")


def test_check_as_json(metrics: bytes) -> None:
    with vllm(metrics) as server:
        process = hitmap(f"blue={server.url}", "--check", "--json")
        out, _ = process.communicate(timeout=60)
    (found,) = json.loads(out)
    assert process.returncode == 0
    assert (found["server"], found["kind"], found["models"]) == ("blue", "vllm", ["tiny-llama"])
    assert {row["signal"]: row["seen"] for row in found["capabilities"]}["preemptions"] is True


def test_check_as_json_lists_servers_that_cannot_be_reached(metrics: bytes) -> None:
    with vllm(metrics) as server:
        process = hitmap("gone=127.0.0.1:1", f"blue={server.url}", "--check", "--json")
        out, err = process.communicate(timeout=60)
    gone, blue = json.loads(out)
    assert process.returncode == 1
    assert (blue["server"], blue["kind"]) == ("blue", "vllm")
    assert list(gone) == ["server", "url", "error"]
    assert (gone["server"], gone["url"]) == ("gone", "http://127.0.0.1:1")
    assert gone["error"].startswith("http://127.0.0.1:1: Connection refused")
    assert gone["error"] in err


def test_the_flag_for_spans_names_the_server(metrics: bytes) -> None:
    with vllm(metrics) as server:
        process = hitmap(f"blue={server.url}", "--check")
        out, _ = process.communicate(timeout=60)
    assert "with OTEL_SERVICE_NAME=blue in its environment" in out


def test_no_window_is_wider_than_an_insert_may_be() -> None:
    assert checked({"max_age": 900}).max_age + 2 < int(COMMON_SETTINGS["max_partitions_per_insert_block"])
    with pytest.raises(UsageError, match="900"):
        checked({"max_age": 901})
