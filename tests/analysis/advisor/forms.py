"""One conversation as requests of each API: texts in blocks, with cache marks where the API has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

MARK = {"cache_control": {"type": "ephemeral"}}
POINT = {"cachePoint": {"type": "default"}}
NOW = "Now: 12:04:11"
PATTERN = r"^Now:\s+\d+:\d+:\d+$"


@dataclass(frozen=True)
class Block:
    """A text, and whether a cache shall end behind it."""

    text: str
    marked: bool = False


@dataclass(frozen=True)
class Talk:
    """system: its blocks. turns: those of the user and the assistant by turns, the user's first and last. tools: name,
    description, and that of a parameter."""

    system: Sequence[Block]
    turns: Sequence[Sequence[Block]]
    tools: Sequence[tuple[str, str, str]] = field(default=())


def typed(blocks: Sequence[Block], kind: str = "text") -> list[dict[str, Any]]:
    return [{"type": kind, "text": one.text, **(MARK if one.marked else {})} for one in blocks]


def bare(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Bedrock's."""
    return [told for one in blocks for told in ({"text": one.text}, *([POINT] if one.marked else []))]


def schema(told: str) -> dict[str, Any]:
    """Of a parameter that is called as a word of the form, with an example that is no description."""
    shown = {"description": NOW}
    return {"type": "object", "properties": {"description": {"type": "string", "description": told}}} | {
        "examples": [shown]
    }


def _turns(
    talk: Talk, model: str, holder: str, said: Callable[[Sequence[Block]], Any]
) -> list[dict[str, Any]]:
    return [
        {"role": model if at % 2 else "user", holder: said(blocks)} for at, blocks in enumerate(talk.turns)
    ]


def openai(talk: Talk) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {"name": name, "description": told, "parameters": schema(own)}}
        for name, told, own in talk.tools
    ]
    head = [{"role": "system", "content": typed(talk.system)}] if talk.system else []
    return {"model": "m", "messages": [*head, *_turns(talk, "assistant", "content", typed)], "tools": tools}


def one_by_one(talk: Talk) -> dict[str, Any]:
    """Each block of the system's in a message of its own, as a text; of turns the first."""
    head = [{"role": "system", "content": one.text, **(MARK if one.marked else {})} for one in talk.system]
    turns = _turns(talk, "assistant", "content", lambda blocks: blocks[0].text if blocks else "")
    return {**openai(talk), "messages": [*head, *turns]}


def anthropic(talk: Talk) -> dict[str, Any]:
    tools = [
        {"name": name, "description": told, "input_schema": schema(own)} for name, told, own in talk.tools
    ]
    return {
        "model": "m",
        **({"system": typed(talk.system)} if talk.system else {}),
        "messages": _turns(talk, "assistant", "content", typed),
        "tools": tools,
    }


def gemini(talk: Talk) -> dict[str, Any]:
    def parts(blocks: Sequence[Block]) -> list[dict[str, Any]]:
        return [{"text": one.text} for one in blocks]

    declared = [
        {"name": name, "description": told, "parameters": schema(own)} for name, told, own in talk.tools
    ]
    return {
        "model": "m",
        **({"systemInstruction": {"parts": parts(talk.system)}} if talk.system else {}),
        "contents": _turns(talk, "model", "parts", parts),
        "tools": [{"functionDeclarations": declared}],
    }


def bedrock(talk: Talk) -> dict[str, Any]:
    tools = [
        {"toolSpec": {"name": name, "description": told, "inputSchema": {"json": schema(own)}}}
        for name, told, own in talk.tools
    ]
    return {
        "model": "m",
        **({"system": bare(talk.system)} if talk.system else {}),
        "messages": _turns(talk, "assistant", "content", bare),
        "toolConfig": {"tools": tools},
    }


def responses(talk: Talk) -> dict[str, Any]:
    tools = [
        {"type": "function", "name": name, "description": told, "parameters": schema(own)}
        for name, told, own in talk.tools
    ]
    head = [{"role": "developer", "content": typed(talk.system, "input_text")}] if talk.system else []
    turns = [
        {"role": "assistant", "content": typed(blocks, "output_text")}
        if at % 2
        else {"role": "user", "content": typed(blocks, "input_text")}
        for at, blocks in enumerate(talk.turns)
    ]
    return {"model": "m", "instructions": "Stay calm.", "input": [*head, *turns], "tools": tools}


FORMS: dict[str, Callable[[Talk], dict[str, Any]]] = {
    "chat, blocks": openai,
    "chat, messages": one_by_one,
    "anthropic": anthropic,
    "gemini": gemini,
    "bedrock": bedrock,
    "responses": responses,
}

SAID = st.sampled_from(
    ["The rules are these.", "Be  kind.", NOW, f"{NOW}\nBe brief.", f"Be brief.\n{NOW}\nBe kind.", "x\r\ny"]
)
DESCRIBED = st.sampled_from(["Finds a book.", f"Finds a book.\n{NOW}\nAsk first.", NOW, f"{NOW}\nAsk first."])
BLOCKS = st.lists(st.builds(Block, SAID, st.booleans()), min_size=1, max_size=4)
TALKS = st.builds(
    Talk,
    st.lists(st.builds(Block, SAID, st.booleans()), max_size=4),
    st.lists(BLOCKS, min_size=1, max_size=5)
    .map(lambda turns: turns[: len(turns) // 2 * 2 + 1] or turns)
    .map(lambda turns: turns if len(turns) % 2 else turns[:-1]),
    st.lists(
        st.tuples(st.sampled_from(["search", "hold", "refund"]), DESCRIBED, DESCRIBED),
        max_size=3,
        unique_by=lambda one: one[0],
    ),
)
