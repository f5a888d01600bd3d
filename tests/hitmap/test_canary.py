"""`hitmap canary` as a person runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cachemodel.errors import UsageError, UserError
from hitmap.commands.canary import command
from store.client import connect
from store.embedded import ensure
from store.migrate import migrate
from tests.collector.support import wait_until
from tests.conftest import Database
from tests.engine.serving.live import serving, settings

QUICK = ["--longest", "256", "--rate", "500"]


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.stdout


def test_what_is_found_is_printed_and_kept(db: Database) -> None:
    with serving() as server:
        told = json.loads(invoke(f"mine={server.url}", "--store", db.dsn, "--json", *QUICK))
    assert (told["server"], told["model"], told["stored"]) == ("mine", "tiny", True)
    figures: dict[str, Any] = {found["name"]: found for found in told["findings"]}
    assert figures["alignment.unit"]["value"] == 16
    assert figures["salt.isolates"]["value"] == 1
    rows = list(db.client.query("SELECT * EXCEPT time FROM findings").named_results())
    assert {row["name"] for row in rows} == set(figures)
    for row in rows:
        found = figures[row["name"]]
        assert (row["origin"], row["run"], row["server"]) == ("canary", told["run"], "mine")
        same = ("value", "low", "high", "unit", "samples", "detail", "subject")
        assert [row[name] for name in same] == [found[name] for name in same]
        assert json.loads(row["inputs"]) == found["inputs"]
    assert db.client.query("SELECT count() FROM requests").result_rows == [(0,)]


def test_an_attached_server_goes_by_its_name_and_size(db: Database) -> None:
    with serving(settings(device_blocks=64, host_blocks=2048)) as server:
        facts = {"device_blocks": "64", "block_size": "16"}
        db.client.insert(
            "servers",
            [[0, "blue", "engine", "1", server.url, ["tiny"], facts, [], []]],
            column_names=["time", "server", "kind", "version", "url", "models", "facts", "signals", "notes"],
        )
        output = invoke(server.url, "--store", db.dsn, "--measure", "tiers", *QUICK, "--max-seconds", "60")
    assert output.startswith("blue: tiny\n")
    assert "tier.load_ms_per_token (host)" in output
    low, high = db.client.query(
        "SELECT low, high FROM findings WHERE name = 'tier.device_tokens'"
    ).result_rows[0]
    assert low is None or low <= 1024 + 4 * 16  # the tokens behind a prompt's last full block take no room
    assert 1024 <= high <= 2048, "the first look is just past what it holds"


def test_without_a_store_nothing_is_kept(db: Database) -> None:
    with serving() as server:
        output = invoke(server.url, "--no-store", "--store", db.dsn, "--measure", "salt", *QUICK)
    assert "salt.isolates" in output
    assert "in the store" not in output
    assert db.client.query("SELECT count() FROM findings").result_rows == [(0,)]


def test_a_dry_run_sends_nothing() -> None:
    with serving() as server:
        before = server.engine.stats().steps
        told = json.loads(invoke(server.url, "--dry-run", "--json", "--measure", "all", "--price", "2"))
        text = invoke(server.url, "--dry-run")
        assert server.engine.stats().steps == before
    assert text.startswith("Nothing was sent.")
    assert told["tokens"] == sum(course["tokens"] for course in told["measures"]) <= told["budget"]["tokens"]
    assert told["cost"] == pytest.approx(told["tokens"] * 2e-6)
    assert [course["measure"] for course in told["measures"]][:2] == ["introduction", "prefill"]


@pytest.mark.parametrize("measures", ["prefill", "salt", "replicas", "lifetime", "prefill,salt"])
def test_a_dry_run_says_exactly_what_is_sent(measures: str) -> None:
    asked = ["--measure", measures, *QUICK, "--repeats", "3"]
    asked += ["--lifetime", "0.2"] if "lifetime" in measures else []
    with serving() as server:
        dry = json.loads(invoke(server.url, "--dry-run", "--json", *asked))
        real = json.loads(invoke(server.url, "--no-store", "--json", *asked))
    assert (real["requests"], real["tokens"]) == (dry["requests"], dry["tokens"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["localhost:1", "--measure", "speed"], "--measure speed: there are prefill"),
        (["localhost:1", "--measure", ","], "--measure: say one of"),
        (["localhost:1", "--lifetime", "60"], "--lifetime goes with --measure lifetime"),
        (["localhost:1", "--measure", "lifetime", "--lifetime", "soon"], "write seconds, as in 60,300"),
        (["ftp://x"], "is not the address of a server"),
        (["http://me:secret@h", "--no-store"], "holds a user, a password or a query"),
        (["h", "--no-store", "--api-key", "a\nb"], "the API key holds"),
    ],
)
def test_wrong_calls(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        invoke(*arguments)


def test_nobody_there_and_too_little_money() -> None:
    with pytest.raises(
        UserError, match=r"no LLM server answers at http://127\.0\.0\.1:1: Connection refused"
    ):
        invoke("127.0.0.1:1", "--no-store")
    with serving() as server, pytest.raises(UserError, match="before anything could be measured"):
        invoke(server.url, "--no-store", "--max-tokens", "3")
    with serving() as server, pytest.raises(UserError, match="nothing could be told"):
        invoke(server.url, "--no-store", "--max-tokens", "20", "--measure", "salt")


@pytest.mark.parametrize("option", ["--max-seconds", "--rate", "--price"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_budgets_are_numbers(option: str, value: str) -> None:
    with pytest.raises(click.BadParameter):
        invoke("127.0.0.1:1", "--no-store", option, value)


def test_a_store_that_takes_nothing_is_refused_before_anything_is_sent() -> None:
    with serving() as server, ensure() as embedded:
        with connect(embedded.dsn) as writer:
            migrate(writer)
        steps = server.engine.stats().steps
        with pytest.raises(UserError, match=r"takes no findings .*Nothing was sent"):
            invoke(server.url, "--store", embedded.reader_dsn, *QUICK)
        assert server.engine.stats().steps == steps


@pytest.mark.parametrize("as_json", [False, True])
def test_what_cannot_be_stored_is_printed(as_json: bool, db: Database) -> None:
    with serving() as server:
        asked = [server.url, "--store", db.dsn, "--measure", "salt", *QUICK, *(["--json"] if as_json else [])]
        command_line = [sys.executable, "-m", "hitmap", "canary", *asked]
        process = subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: server.engine.stats().steps >= 1, 20)
        db.client.command("RENAME TABLE findings TO findings_gone")
        output, errors = process.communicate(timeout=25)
    assert process.returncode == 1, errors
    assert "salt.isolates" in output
    assert "in the store" not in output
    assert not as_json or json.loads(output)["stored"] is False
    assert errors.startswith("hitmap: what was found is not stored: ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_it_with_what_is_known(end: signal.Signals) -> None:
    with serving() as server:
        command_line = [sys.executable, "-m", "hitmap", "canary", server.url, "--no-store"]
        command_line += [
            "--measure",
            "salt,lifetime",
            "--lifetime",
            "60",
            "--longest",
            "256",
            "--rate",
            "500",
        ]
        process = subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        placed = 1 + 9 + 7  # the introduction, salt, and lifetime up to its wait
        wait_until(lambda: server.engine.stats().steps >= placed, 20)
        process.send_signal(end)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "salt.isolates" in output
    assert "lifetime broken off: interrupted" in output
    assert "Traceback" not in errors
