"""`hitmap advise` on the prompts of a store, as a person calls it."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from collector.chains.settings import Capture
from hitmap.cli import cli
from tests.conftest import Database
from tests.dashboard.advised import fill

DAYS = "2026-11-03/2026-11-05"


def advise(db: Database, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["advise", "--store", db.dsn, *arguments])


def told(db: Database, *arguments: str) -> Any:
    shown = advise(db, *arguments, "--json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def test_prompts_that_capture_kept_are_read_from_the_store(db: Database) -> None:
    fill(db.client)
    page = told(db, "--in", DAYS)
    assert page["prompts"] == 80
    assert {"clock", "nonce", "tool order"} <= {one["cause"] for one in page["suggestions"]}
    assert page["cache"] == "vLLM's prefix cache in blocks of 16 tokens"
    assert "SGLang" in told(db, "--in", DAYS, "--cache", "sglang")["cache"]


def test_without_text_it_says_where_prompts_part_and_what_to_switch_on(db: Database) -> None:
    fill(db.client, Capture.HASHES)
    page = told(db, "--in", DAYS)
    assert (page["prompts"], page["suggestions"], page["notes"]) == (0, [], [])
    assert page["answer"] == "There is no text of prompts to lay beside each other."
    assert "new nearly each time" in page["partings"][0]
    assert any("--capture redacted or full" in sentence for sentence in page["left_out"])
    shown = advise(db, "--in", DAYS)
    assert "Where prompts part, by their hashes alone" in shown.output


def test_a_store_without_requests_says_so(db: Database) -> None:
    shown = advise(db)
    assert shown.exit_code == 1
    assert "no requests" in str(shown.exception)
    refused = advise(db, "--check").exception
    assert getattr(refused, "exit_code", 0) == 3, "nothing was exceeded"
