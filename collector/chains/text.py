"""The text of a message, for those who keep texts or compare them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TEXT_TYPES = ("text", "input_text", "output_text")


def content_text(message: Mapping[str, Any]) -> str:
    """What a message says: its text parts, then the calls that it makes; a placeholder stands for what is no text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [text for part in parts if (text := _part(part))]
    for name in ("reasoning_content", "reasoning"):
        if isinstance(thought := message.get(name), str) and thought:
            texts.insert(0, thought)
    if calls := message.get("tool_calls"):
        texts.append(json.dumps(calls, ensure_ascii=False))
    return "\n".join(texts)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = str(part.get("type", ""))
    if kind in TEXT_TYPES and isinstance(text := part.get("text"), str):
        return text
    if kind == "tool_result":  # Anthropic's form
        return content_text({"content": part.get("content")})
    if kind == "tool_use":
        return json.dumps({"name": part.get("name"), "input": part.get("input")}, ensure_ascii=False)
    return f"[{kind[:40] or 'part'}]"
