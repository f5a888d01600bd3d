"""`hitmap load` as a person runs it: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cachemodel.errors import UsageError, UserError
from hitmap.commands.load import command
from hitmap.load.summary import Tally
from hitmap.load.view import progress
from tests.hitmap.load.server import LlmServer
from tests.hitmap.load.test_traces import request, write


def load(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_a_mix_ends_in_a_table(server: LlmServer) -> None:
    result = load(f"{server.url.removeprefix('http://')}/v1/", "--count", "20", "--rate", "200")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # a bar is for terminals
    lines = result.stdout.splitlines()
    assert lines[0].startswith("mix chat=0.5,rag=0.3,agent=0.2: 20 due, 20 sent, 20 completed in ")
    assert "  prompt tokens 2,000; cached 500 (25.0%); generated 80" in lines
    assert [line[2:33].rstrip() for line in lines[-6:]] == [
        "TTFT from sending",
        "TTFT from when it was due",
        "end to end from sending",
        "end to end from when it was due",
        "time per output token",
        "sent later than due",
    ]
    assert lines[-7].split() == ["P50", "P95", "P99", "max"]
    assert all(line.count("ms") + line.count(" s") >= 4 for line in lines[-6:-1])


def test_figures_for_machines_and_the_log(server: LlmServer, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    words = [
        "--duration",
        "0.5",
        "--rate",
        "40",
        "--arrival",
        "uniform",
        "--log",
        log,
        "--label",
        "phase=before",
    ]
    result = load(server.url, *words, "--clock", "first", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["planned"], summary["completed"]) == (20, 20)
    assert summary["offered_per_s"] == 40.0
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert {record["phase"] for record in records} == {"before"}
    assert all("Current time: " in record["body"]["messages"][0]["content"] for record in records)


def test_a_trace_is_sent_in_the_servers_tokens(server: LlmServer, tmp_path: Path) -> None:
    path = write(tmp_path / "trace.jsonl", request(0, 600, 40, 0, 1), request(100, 1024, 80, 0, 1))
    result = load(server.url, "--workload", path, "--scale-tokens", "0.25", "--json")
    assert result.exit_code == 0, result.output
    first, second = (body["prompt"] for body in server.bodies)
    assert (len(first), len(second)) == (150, 256)
    assert second[:150] == first
    assert [body["max_tokens"] for body in server.bodies] == [10, 20]


def test_progress_is_one_line() -> None:
    tally = Tally(sent=30, in_flight=4)
    assert progress(10.0, tally) == "30 sent, 3.0/s, 4 in flight"
    tally.failed["timeout"], tally.not_sent["session over"] = 2, 1
    assert progress(10.0, tally) == "30 sent, 3.0/s, 4 in flight, 2 failed, 1 not sent"


def test_dry_run_asks_nobody(tmp_path: Path) -> None:
    result = load("http://127.0.0.1:9", "--dry-run", "--count", "50")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("mix chat=0.5,rag=0.3,agent=0.2: 50 requests due in ")
    path = write(tmp_path / "trace.jsonl", request(0, 600, 40, 0, 1), request(100, 1024, 80, 0, 1))
    result = load("http://127.0.0.1:9", "--dry-run", "--workload", path, "--json")
    assert result.stderr == ""
    outline = json.loads(result.stdout)
    assert outline["prompt_ids"] == 1624
    assert outline["by_template"] == {"mooncake": 2}


def test_a_workload_is_said_to_be_cut_where_it_is(tmp_path: Path) -> None:
    asks = [{"prompt": "Hi", "due_s": due_s} for due_s in (0, 30, 59.9, 60)]
    for kept, said in ((3, ""), (4, "what is due in the first 60 s; --duration says otherwise\n")):
        path = write(tmp_path / f"{kept}.jsonl", *asks[:kept])
        result = load("http://127.0.0.1:9", "--dry-run", "--workload", path)
        assert result.stderr == said
    assert result.stdout.startswith("workload 4.jsonl: 3 requests due in 60.0 s, 0.05/s\n")


@pytest.mark.parametrize(
    ("limits", "window_s", "per_s"),
    [
        (["--count", "4"], 0.1, 40.0),  # at 0, 25, 50 and 75 ms
        (["--duration", "0.2"], 0.2, 40.0),
        (["--duration", "9", "--count", "4"], 0.1, 40.0),
        (["--count", "1"], 0.0, None),
    ],
)
def test_a_dry_run_and_a_load_tell_the_same_plan(
    server: LlmServer, limits: list[str], window_s: float, per_s: float | None
) -> None:
    words = [server.url, "--rate", "40", "--arrival", "uniform", *limits, "--json"]
    outline, summary = (json.loads(load(*words, *more).stdout) for more in (["--dry-run"], []))
    assert outline["requests"] == summary["planned"] == summary["whole_plan"] == len(server.bodies)
    assert outline["window_s"] == pytest.approx(window_s)
    assert outline["offered_per_s"] == summary["offered_per_s"] == (per_s and pytest.approx(per_s))
    assert summary["achieved_per_s"] == summary["completed"] / max(summary["wall_s"], outline["window_s"])


def test_all_failed_is_exit_code_1(server: LlmServer) -> None:
    server.behaviour = lambda _body: "refuse"
    result = load(server.url, "--count", "3", "--rate", "200", "--mix", "rag=1")
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == "no request was completed"
    assert "  failed, HTTP 503: 3 (too many requests)" in result.stdout.splitlines()
    assert isinstance(load(server.url, "--duration", "0.000001").exception, UserError)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--speed", "2"], "--speed goes with --workload"),
        (["--workload", "x", "--clock", "first"], "--clock goes without --workload"),
        (["--workload", "x", "--mix", "rag=1"], "--mix goes without --workload"),
        (
            ["--workload", "{timed}", "--rate", "3"],
            "--rate goes without times of the workload's own; --speed",
        ),
        (["--workload", "{timed}", "--arrival", "burst"], "--arrival goes without times"),
        (["--workload", "{trace}", "--rate", "3", "--dry-run"], "--rate goes without times"),
        (["--label", "phase"], "--label phase: write it as phase=before"),
        (["--label", "usage=1"], "cannot be called 'usage'"),
        (["--label", "a\udcff=b"], "is no line of text"),
        (["--label", "phase=a\nb"], "is no line of text"),
        (["--mix", "rag"], "--mix rag: write shares"),
    ],
)
def test_wrong_calls(server: LlmServer, tmp_path: Path, words: list[str], said: str) -> None:
    timed = write(tmp_path / "timed.jsonl", {"prompt": "Hi", "due_s": 1})
    trace = write(tmp_path / "trace.jsonl", request(0, 600, 40, 0, 1))
    result = load(server.url, *(word.format(timed=timed, trace=trace) for word in words))
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


@pytest.mark.parametrize("option", ["--rate", "--duration", "--timeout", "--speed", "--session-gap"])
def test_what_is_no_number_is_refused(server: LlmServer, option: str) -> None:
    result = load(server.url, option, "nan")
    assert (result.exit_code, server.bodies) == (2, [])
    assert "nan is no number" in result.output


def test_a_server_that_is_down_is_one_line() -> None:
    error = load("http://127.0.0.1:9", "--count", "1").exception
    assert isinstance(error, UserError)
    assert "no LLM server answers at http://127.0.0.1:9" in str(error)
    assert "\n" not in str(error)


def test_an_interrupt_still_tells_what_was_done(server: LlmServer) -> None:
    words = [
        sys.executable,
        "-m",
        "hitmap",
        "load",
        server.url,
        "--duration",
        "600",
        "--rate",
        "20",
        "--json",
    ]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(server.bodies) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    summary = json.loads(out)
    assert summary["interrupted"]
    assert summary["completed"] >= 1
    assert summary["planned"] == summary["sent"] + sum(summary["not_sent"].values())
    assert summary["planned"] < summary["whole_plan"]
    assert 11_000 < summary["whole_plan"] < 13_000
    assert summary["offered_per_s"] == pytest.approx(summary["planned"] / summary["wall_s"])
