"""`hitmap advise` on every form of record: the clock is found, its tokens are counted, and a rule gets them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hitmap.cli import cli

RULES = " ".join(f"Rule {number}: name the shelf and the year in one sentence." for number in range(30))


def system(at: int) -> str:
    return f"Now: 2026-11-30 12:{at // 60:02d}:{at % 60:02d}\n{RULES}"


def asked(at: int) -> str:
    return f"Where is book {at * 7919 % 1000}?"


def chat(at: int) -> list[dict[str, Any]]:
    return [{"role": "system", "content": system(at)}, {"role": "user", "content": asked(at)}]


FORMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "chat": lambda at: {"body": {"messages": chat(at)}},
    "Anthropic": lambda at: {"body": {"system": system(at), "messages": chat(at)[1:], "max_tokens": 9}},
    "Responses": lambda at: {"body": {"instructions": system(at), "input": asked(at)}},
    "ShareGPT": lambda at: {
        "id": f"c{at}",
        "conversations": [{"from": "system", "value": system(at)}, {"from": "human", "value": asked(at)}],
    },
    "text": lambda at: {"text": f"{system(at)}\n\n{asked(at)}"},
    "completions": lambda at: {"body": {"prompt": f"{system(at)}\n\n{asked(at)}"}},
    "GenAI span": lambda at: {
        "name": "chat",
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": one["role"], "parts": [{"type": "text", "content": one["content"]}]}
                    for one in chat(at)
                ]
            ),
        },
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_clock_at_the_top_is_found_and_priced_in_tokens(form: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"time": 1e9 + at, **FORMS[form](at)}) + "\n" for at in range(60)))
    shown = CliRunner().invoke(cli, ["advise", str(log), "--json"])
    assert shown.exit_code == 0, shown.output
    page = json.loads(shown.stdout)
    assert page["prompts"] == 60
    assert page["prompt_tokens"] > 60 * 200
    (one,) = page["suggestions"]
    assert one["cause"] == "clock"
    assert one["saves"] > 0.5 * page["computed_tokens"]
    assert "-Now: 2026" in one["diff"]
    checked = CliRunner().invoke(cli, ["advise", str(log), "--check"])
    assert checked.exit_code == 1, "past the budget"
