"""What rules change in a request, as people read it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from itertools import islice

from analysis.advisor.rewriting.places import PROMPTS, Body, holder_of, messages_of, talk_of

DIFF_LINES = 40


def diff(before: Body, after: Body) -> str:
    """What was changed in a request: a unified diff of its readable form, at most DIFF_LINES of it."""
    lines = difflib.unified_diff(
        list(_lines(before)), list(_lines(after)), "as sent", "rewritten", n=1, lineterm=""
    )
    told = list(islice(lines, DIFF_LINES + 1))
    return "\n".join([*told[:DIFF_LINES], "..."] if len(told) > DIFF_LINES else told)


def _lines(body: Body) -> Iterator[str]:
    """Tools one a line, then what stands before the conversation, then messages, their text line by line."""
    for tool in _tools(body):
        yield f"tool {json.dumps(tool, ensure_ascii=False)}"
    for name in PROMPTS:
        if told := body.get(name):
            yield f"[{name}]"
            yield from _said(told.get("parts", told) if isinstance(told, dict) else told)
    for message in messages_of(body):
        yield f"[{message.get('role')}]" if isinstance(message, dict) else "[]"
        yield from _said(message.get(holder_of(message)) if isinstance(message, dict) else message)
    for text in (body.get(talk_of(body)), body.get("prompt")):
        if isinstance(text, str):
            yield from text.splitlines()


def _tools(body: Body) -> Iterator[object]:
    config = body.get("toolConfig")
    for tools in (body.get("tools"), config.get("tools") if isinstance(config, dict) else None):
        yield from tools if isinstance(tools, list) else ()


def _said(content: object) -> Iterator[str]:
    """Texts as they read, anything else as JSON."""
    for block in content if isinstance(content, list) else [content]:
        text = block.get("text") if isinstance(block, dict) else block
        yield from (text if isinstance(text, str) else json.dumps(block, ensure_ascii=False)).splitlines()
