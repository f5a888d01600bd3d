"""What is kept of prompts as text, at each level."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.chains.approximate import Approximation
from collector.chains.capture import Texts
from collector.chains.local import read_tokenizer
from collector.chains.settings import Capture
from collector.chains.tokens import Tokenized
from tests.collector.chains.support import prompt
from tests.collector.support import HASHER

TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "My name is Dara"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
    {
        "role": "user",
        "content": [{"type": "text", "text": "and"}, {"type": "image_url", "image_url": {}}],
    },
]


def rows(texts: Texts, sent: Any, tokenized: Tokenized | None = None) -> dict[str, list[dict[str, Any]]]:
    entries, new = texts.entries(sent, tokenized)
    texts.stored(new)
    found: dict[str, list[dict[str, Any]]] = {"segments": [], "prompts": []}
    for entry in entries:
        found[entry.kind].append(json.loads(entry.payload))
    return found


def test_hashes_keep_no_text() -> None:
    assert Texts(Capture.HASHES, HASHER).entries(prompt(messages=TALK), None) == ([], [])


@pytest.mark.parametrize(("capture", "name"), [(Capture.FULL, "Dara"), (Capture.REDACTED, "<name>")])
def test_a_message_is_a_segment(capture: Capture, name: str) -> None:
    texts = Texts(capture, HASHER)
    first = rows(texts, prompt(messages=TALK, tools=[{"name": "f"}]))
    assert [(row["role"], row["text"]) for row in first["segments"]] == [
        ("tools", '[{"name": "f"}]'),
        ("system", "Be kind."),
        ("user", f"My name is {name}"),
        ("assistant", '[{"function": {"name": "f"}}]'),
        ("user", "and\n[image_url]"),
    ]
    (row,) = first["prompts"]
    assert row["segments"] == [segment["segment"] for segment in first["segments"]]
    assert (row["capture"], row["ends"]) == (capture.value, [])
    again = rows(texts, prompt(messages=TALK[:2], request_id="r2"))
    assert again["segments"] == [], "each is stored once"
    assert again["prompts"][0]["segments"] == row["segments"][1:3]


def test_one_text_in_two_roles_is_two_segments() -> None:
    texts = Texts(Capture.FULL, HASHER)
    sent = prompt(messages=[{"role": role, "content": "x"} for role in ("system", "user")])
    assert len({row["segment"] for row in rows(texts, sent)["segments"]}) == 2


def test_segments_end_at_tokens(run1: Path) -> None:
    tokenizer = read_tokenizer(run1.parent / "model")
    talk = [{"role": "system", "content": "Be kind to all."}, {"role": "user", "content": "hello there"}]
    sent = prompt(messages=talk)
    tokenized = tokenizer.tokens(sent, with_text=True)
    (row,) = rows(Texts(Capture.FULL, HASHER), sent, tokenized)["prompts"]
    beginnings = [tokenized.text[: tokenized.ends[end - 1]] for end in row["ends"]]
    assert [text.rpartition("\n")[2] for text in beginnings] == ["Be kind to all.", "hello there"]


def test_tools_stand_where_the_template_put_them() -> None:
    tools = [{"name": "f"}, {"name": "g"}]
    sent = prompt(messages=TALK[:2], tools=tools)
    text = f"system Be kind. {json.dumps(tools)} user My name is Dara"
    told = Approximation().tokens(prompt(text=text), with_text=True)
    found = rows(Texts(Capture.FULL, HASHER), sent, told)
    (row,) = found["prompts"]
    roles = {segment["segment"]: segment["role"] for segment in found["segments"]}
    assert [roles[segment] for segment in row["segments"]] == ["system", "tools", "user"]
    assert row["ends"] == sorted(row["ends"])
    assert row["ends"][-1] == len(told.ids)


def test_half_a_surrogate_pair_is_stored_as_something() -> None:
    (row,) = rows(Texts(Capture.FULL, HASHER), prompt(text="a\ud800b"))["segments"]
    assert row["text"] == "a?b"
