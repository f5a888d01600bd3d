"""Which prompts are of one template."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from collector.chains.template import NO_TEMPLATE, template
from tests.collector.chains.support import prompt, recorded
from tests.collector.support import HASHER

RULES = "You are the assistant of a bookstore.\nNever promise a delivery date."


def of(system: str | None, tools: list[dict[str, object]] | None = None) -> int:
    first = [{"role": "system", "content": system}] if system else []
    return template(prompt(messages=[*first, {"role": "user", "content": "hi"}], tools=tools), HASHER)


@pytest.mark.parametrize(
    "system",
    [
        f"[2026-11-29T12:05:44.149083] {RULES}",
        f"{RULES}\nMonday, 3 March 2026, 4:15 pm UTC",
        f"{RULES} 1f0e8a3c-aaaa-bbbb-cccc-ddddeeeeffff",
        f"{RULES} deadbeefdeadbeef #4711",
        "\n".join(reversed(RULES.split("\n"))),
    ],
)
def test_what_varies_makes_no_other(system: str) -> None:
    assert of(system) == of(RULES) != NO_TEMPLATE


def test_other_words_are_another() -> None:
    assert of(RULES + " Be brief.") != of(RULES)
    assert of(None) == template(prompt(text="hello"), HASHER) == NO_TEMPLATE


def test_tools_count_in_any_order() -> None:
    tools: list[dict[str, object]] = [
        {"name": "find", "description": "a title"},
        {"name": "hold", "for": "days"},
    ]
    assert of(RULES, tools) == of(RULES, tools[::-1]) != of(RULES)
    assert of(None, tools) == of(None, json.loads(json.dumps(tools[::-1], sort_keys=True)))


def test_the_phases_of_the_recording(run1: Path) -> None:
    found = defaultdict(set)
    for phase, sent in recorded(run1):
        found[phase.partition("_c")[0]].add(template(sent, HASHER))
    assert all(len(templates) == 1 for templates in found.values())
    assert len(set.union(*found.values())) == 3, (
        "the bookstore's, with a line for the time, with shuffled tools"
    )
    assert found["shared"] == found["salt"] == found["mixed_ts"] != found["tsfront"]
