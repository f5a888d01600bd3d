"""`hitmap advise` on a recording of KV events, as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from hitmap.cli import cli

DATA = Path(__file__).parents[1] / "data/vllm-0.32"
EVENTS, MODEL = DATA / "run1/kv_events.jsonl", DATA / "model"


def advise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["advise", *map(str, arguments)])


def told(*arguments: str | Path) -> Any:
    shown = advise(*arguments, "--json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def test_with_a_tokenizer_causes_are_named_at_their_token() -> None:
    page = told(EVENTS, "--tokenizer", MODEL)
    assert {one["cause"] for one in page["suggestions"]} == {"clock", "tool order"}
    assert all(isinstance(one["token"], int) for one in page["suggestions"])
    assert page["cache"] == "vLLM's prefix cache in blocks of 32 tokens"  # as the events tell
    assert page["tokens_by"].startswith("the KV events themselves, read by ")
    assert [one["cause"] for one in page["beside"]] == ["isolation"]


def test_without_one_position_and_behaviour_are() -> None:
    page = told(EVENTS)
    assert {one["cause"] for one in page["suggestions"]} == {"unknown volatile slot", "item order"}
    assert len({one["token"] for one in page["suggestions"]}) == 1
    assert all("from token" in one["evidence"] and one["saves"] is None for one in page["suggestions"])


def test_a_block_size_that_was_given_is_taken() -> None:
    assert "blocks of 64 tokens" in told(EVENTS, "--block-size", "64")["cache"]
    assert "OpenAI" in told(EVENTS, "--cache", "openai")["cache"]


def test_rules_are_written_from_events_too(tmp_path: Path) -> None:
    shown = advise(
        EVENTS, "--tokenizer", MODEL, "--apply", tmp_path / "rules", "--sarif", tmp_path / "s.sarif"
    )
    assert shown.exit_code == 0, shown.output
    assert "Current" in (tmp_path / "rules" / "rules.yaml").read_text()
    results = json.loads((tmp_path / "s.sarif").read_text())["runs"][0]["results"]
    assert "kv_events.jsonl" in json.dumps(results)


def test_replies_that_came_back_in_other_tokens_are_told() -> None:
    """The model of the recording has random weights: no tokenizer would cut its words as it made them."""
    page = told(EVENTS, "--tokenizer", MODEL, "--min-share", "0")
    (reply,) = (one for one in page["suggestions"] if one["cause"] == "reply retokenised")
    assert (reply["requests"], reply["role"]) == (8, "assistant")
    assert 8 <= reply["of"] <= 9
