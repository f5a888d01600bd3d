"""Prompts of records that are no requests, as the chat requests that would say the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cachemodel.prompts.model import Kind, Part, Prompt

_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
}


def as_request(prompt: Prompt) -> Prompt:
    """The prompt with a body of messages, tools or a text made of its parts, and the roles that chat APIs know."""
    parts = tuple(replace(part, role=_ROLES.get(part.role, part.role)) for part in prompt.parts)
    return replace(prompt, parts=parts, body={"model": prompt.model, **_body(parts)})


def _body(parts: Sequence[Part]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    tools = [_value(part.text) for part in parts if part.kind is Kind.TOOL]
    if tools:
        body["tools"] = tools
    said = [part for part in parts if part.kind is not Kind.TOOL]
    if len(said) == 1 and said[0].role == "prompt":
        (one,) = said
        return {**body, "prompt": list(one.tokens) if one.kind is Kind.TOKENS else one.text}
    messages: dict[tuple[int, str], list[str]] = {}
    for part in said:
        messages.setdefault((part.message, part.role), []).append(part.text)
    body["messages"] = [{"role": role, "content": "\n".join(texts)} for (_, role), texts in messages.items()]
    return body


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"name": text}
