"""`hitmap canary` as a person runs it."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from datetime import datetime
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cachemodel.errors import UsageError, UserError
from collector.canary import Finding, HttpTransport
from collector.canary.wire import Answer
from hitmap.commands._canary_store import Kept
from hitmap.commands._canary_view import print_kept
from hitmap.commands.canary import command
from store.client import connect
from store.embedded import ensure
from store.migrate import migrate
from tests.collector.support import wait_until
from tests.conftest import Database
from tests.engine.serving.live import serving, settings

QUICK = ["--longest", "256", "--rate", "500"]


def invoke(*arguments: str) -> str:
    wide = {"COLUMNS": "400"}  # no sentence is folded
    result = CliRunner(env=wide).invoke(
        command, list(arguments), catch_exceptions=False, standalone_mode=False
    )
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
        ([], "say which server"),
        (["localhost:1", "--stored", "--dry-run"], "goes with neither --dry-run nor --no-store"),
        (["localhost:1", "--stored", "--no-store"], "goes with neither --dry-run nor --no-store"),
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
    little = "before anything could be measured: allow more --max-tokens"
    with serving() as server, pytest.raises(UserError, match=little):
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


@pytest.mark.parametrize(
    ("small", "remedies"),
    [
        (["--max-tokens", "2000"], [["--longest", "64"], ["--max-tokens", "6200"]]),
        (["--max-requests", "14"], [["--max-requests", "38"]]),
    ],
)
def test_why_a_run_broke_off_is_said_once_with_what_helps(
    small: list[str], remedies: list[list[str]]
) -> None:
    asked = ["--no-store", "--measure", "prefill,salt", *QUICK]
    with serving() as server:
        output = invoke(server.url, *asked, *small)
        dry = invoke(server.url, *asked, *small, "--dry-run")
        for shown in (output, dry):
            assert shown.count("the budget of") == 1
            (line,) = [line for line in shown.splitlines() if "broken off: " in line]
            assert line.startswith("prefill, salt broken off: the budget of ")
            for remedy in remedies:
                assert " ".join(remedy) in line.partition("; give ")[2]
        for remedy in remedies:
            assert "broken off" not in invoke(server.url, *asked, *small, *remedy)
    assert "salt.isolates                     broken off\n" in output


def test_failures_that_broke_off_a_run_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        sound, sent = HttpTransport.send, itertools.count()

        def fail(*args: Any, **more: Any) -> Answer:
            return sound(*args, **more) if next(sent) < 3 else Answer(500, error="HTTP 500: out of order")

        monkeypatch.setattr(HttpTransport, "send", fail)
        result = CliRunner(env={"COLUMNS": "400"}).invoke(
            command, [server.url, "--no-store", "--measure", "replicas", *QUICK]
        )
    assert result.stdout.count("out of order") == 1
    assert "replicas broken off: 3 requests in a row failed: HTTP 500: out of order\n" in result.stdout
    assert "\n3 requests failed\n" in result.stdout


def test_what_was_found_before_is_shown_again(db: Database) -> None:
    with pytest.raises(UserError, match="no canary has found anything of any server yet"):
        invoke("--stored", "--store", db.dsn)
    with serving() as server:
        both = ["--store", db.dsn, *QUICK]
        first = json.loads(invoke(f"mine={server.url}", *both, "--json", "--measure", "alignment,salt"))
        again = invoke(f"mine={server.url}", *both, "--measure", "salt")
        with pytest.raises(UserError, match="nothing could be told; why not is said above"):
            invoke(f"mine={server.url}", *both, "--max-tokens", "100")
        json.loads(invoke(f"other={server.url}", *both, "--json", "--measure", "salt"))
        steps = server.engine.stats().steps
        mine = json.loads(invoke("mine", "--stored", "--json", "--store", db.dsn))
        text = invoke(f"mine={server.url}", "--stored", "--store", db.dsn)
        everyone = json.loads(invoke("--stored", "--json", "--store", db.dsn))
        assert server.engine.stats().steps == steps
    assert "in the store, to be seen by: hitmap canary --stored mine\n" in again
    oldest, told, newest = mine
    assert oldest["run"] == first["run"]
    kept = {found["name"]: found for found in first["findings"] if found["name"] != "salt.isolates"}
    assert {found["name"]: found for found in oldest["findings"]} == kept
    assert [found["name"] for found in told["findings"]] == ["salt.isolates"], "of the newer run that told it"
    assert [found["name"] for found in newest["findings"]] == ["prefill.ms_per_token"], "told by no other"
    assert "alignment.unit                    16 tokens  (16 to 16)\n" in text
    assert "salt.isolates                     yes\n" in text
    assert "    broken off: the budget of 100 tokens" in text
    assert {run["server"] for run in everyone} == {"mine", "other"}
    with pytest.raises(UserError, match="no canary has found anything of blue yet"):
        invoke("blue", "--stored", "--store", db.dsn)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (Finding("salt.isolates", 0.0, "1", 3, ""), "no"),
        (Finding("replicas.hit_share", 11 / 12, "1", 12, ""), "91.7%"),
        (Finding("alignment.dropped_units", 1.0, "1", 3, ""), "1"),
        (
            Finding("tier.device_tokens", 40_960.0, "{token}", 1, "", low=32_768, high=49_152),
            "40,960 tokens  (32,768 to 49,152)",
        ),
        (Finding("prefill.ms_per_token", 0.034071, "ms/{token}", 25, ""), "0.03407 ms/token"),
        (Finding("replicas.caches", None, "{cache}", 33, "", low=3.0), "not told  (from 3)"),
    ],
)
def test_figures_are_in_words_of_people(
    found: Finding, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_kept([Kept("mine", "ab12", datetime(2026, 12, 1, 2, 3, 4), [found])], as_json=False)
    head, line, _ = capsys.readouterr().out.splitlines()
    assert head == "mine: run ab12 of 2026-12-01 02:03:04 UTC"
    assert line == f"{found.name:<32}  {shown}"


def test_a_sentence_of_two_figures_is_said_once() -> None:
    with serving() as server:
        output = invoke(server.url, "--no-store", "--measure", "alignment", *QUICK)
    assert "alignment.dropped_units" in output
    assert output.count("Hits come in units of 16 tokens") == 1
