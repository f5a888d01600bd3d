"""What a message says, as a text or as blocks, whoever's API it is; cache marks stay with what they stand behind. Pure.

Blocks tell their type (OpenAI's and Anthropic's) or are told by the name of their field (Gemini's and Bedrock's). As
`rules`, written into users' gateways: Python 3.9 and its standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

MARK_FIELDS = ("cache_control", "cachePoint", "cache_point")
GONE: Any = object()
"""In the place of a block or message that is taken out."""
_THOUGHTS = ("thinking", "redacted_thinking")  # Anthropic takes no mark on these


def each_text(change: Callable[[str], str], content: Any) -> Any:
    """A content with its texts changed, and without the blocks that say nothing then: no API takes an empty one. An
    empty list where nothing is left of one."""
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        return content
    return _without_empty(content, [_block(change, block) for block in content])


def text_of(block: Any) -> str | None:
    """The text of a block, None where it is another kind of block."""
    told = block.get("text") if isinstance(block, dict) else block
    return told if isinstance(told, str) else None


def has_marks(content: Any) -> bool:
    """Whether a cache mark stands on one of the blocks, or is one of them."""
    return isinstance(content, list) and any(_marks(block) for block in content)


def is_mark(block: Any) -> bool:
    """Whether a block is nothing but a cache mark."""
    return isinstance(block, dict) and bool(block) and all(name in MARK_FIELDS for name in block)


def new_block(text: str, like: Sequence[Any], kind: str) -> dict[str, str]:
    """A block that says this, of the form that the others have. kind: its type where they have one."""
    bare = any(isinstance(block, dict) and "type" not in block for block in like)
    return {"text": text} if bare or not kind else {"type": kind, "text": text}


def at_end_of(content: Any, text: str, kind: str) -> Any:
    """A content with a text at its end, as a paragraph of its own. What stands behind a cache mark stays behind it."""
    if not isinstance(content, list):
        return joined(content, text) if isinstance(content, str) else text
    last = content[-1] if content else None
    if not isinstance(last, dict) or (said := text_of(last)) is None or _marks(last):
        return [*content, new_block(text, content, kind)]
    return [*content[:-1], {**last, "text": joined(said, text)}]


def joined(text: str, more: str) -> str:
    """Two paragraphs; the second alone where the first says nothing."""
    return f"{text.rstrip()}\n\n{more}" if text.strip() else more


def _block(change: Callable[[str], str], block: Any) -> Any:
    if isinstance(block, str):
        return change(block)
    if not isinstance(block, dict) or (text := text_of(block)) is None:
        return block
    told = change(text)
    return block if told == text else {**block, "text": told}


def _marks(block: Any) -> dict[str, Any]:
    told = block if isinstance(block, dict) else {}
    return {name: told[name] for name in MARK_FIELDS if told.get(name)}


def _without_empty(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """The blocks that still say something; empty where none of them could hold the marks of the others."""
    told = [
        GONE if new != old and not text_of(new) else new
        for old, new in zip(before, after)  # noqa: B905 - `strict` came with Python 3.10
    ]
    if not any(one is GONE for one in told):
        return told
    left = without_lost(before, told)
    if all(map(is_mark, left)):
        return []
    return left if is_mark(before[0]) else _marks_behind(left)


def without_lost(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Blocks or messages without those that are GONE now. The mark of such a one goes to the one before it, to the next
    where there is none; empty where nothing is left to hold it."""
    told = list(after)
    holders = [at for at, one in enumerate(after) if holds_marks(one)]
    for at, marks in enumerate(map(_marks, before)):
        if after[at] is not GONE or not marks:
            continue
        if not holders:
            return []
        to = next((one for one in reversed(holders) if one < at), holders[0])
        told[to] = {**marks, **told[to]}
    return [one for one in told if one is not GONE]


def holds_marks(one: Any) -> bool:
    return isinstance(one, dict) and not is_mark(one) and one.get("type") not in _THOUGHTS


def _marks_behind(blocks: Sequence[Any]) -> list[Any]:
    """Marks that are blocks stand behind something, and only one at a place."""
    first = next(at for at, block in enumerate(blocks) if not is_mark(block))
    told: list[Any] = []
    for block in (blocks[first], *blocks[:first], *blocks[first + 1 :]):
        if not (is_mark(block) and told and is_mark(told[-1])):
            told.append(block)
    return told
