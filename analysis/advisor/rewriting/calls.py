"""The arguments of tool calls in messages, with their keys in one order, whoever's API it is. Pure.

As `rules`, written into users' gateways: Python 3.9 and its standard library.
"""

from __future__ import annotations

from typing import Any

from analysis.advisor.rewriting.canonical import keys_in_order
from analysis.advisor.rewriting.places import Body, messages_of, role_of, talk_of
from analysis.advisor.rewriting.tool_lists import keys_sorted

_BARE = {"toolUse": "input", "functionCall": "args", "function_call": "args"}  # Bedrock's and Gemini's blocks


def calls_in_order(role: str, body: Body) -> Body:
    """The body with the arguments of calls in messages of a role in order; the same body where it has no calls."""
    messages = messages_of(body)
    told = [_calling(one) if isinstance(one, dict) and role_of(one) == role else one for one in messages]
    changed = any(new is not old for new, old in zip(told, messages))  # noqa: B905 - `strict` came with Python 3.10
    return {**body, talk_of(body): told} if changed else body


def _calling(message: dict[str, Any]) -> dict[str, Any]:
    told = message
    if message.get("type") == "function_call":  # an item of the Responses API
        told = _arguments(message)
    if isinstance(calls := message.get("tool_calls"), list):
        told = {**told, "tool_calls": [_call(call) for call in calls]}
    for name in ("content", "parts"):
        if isinstance(blocks := message.get(name), list) and any(map(_is_call, blocks)):
            told = {**told, name: [_called_block(block) for block in blocks]}
    return told


def _call(call: Any) -> Any:
    inner = call.get("function") if isinstance(call, dict) else None
    return {**call, "function": _arguments(inner)} if isinstance(inner, dict) else call


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    told = call.get("arguments")
    return {**call, "arguments": keys_in_order(told)} if isinstance(told, str) else call


def _is_call(block: Any) -> bool:
    told = block if isinstance(block, dict) else {}
    return told.get("type") == "tool_use" or any(isinstance(told.get(name), dict) for name in _BARE)


def _called_block(block: Any) -> Any:
    if not _is_call(block):
        return block
    if block.get("type") == "tool_use":
        return {**block, "input": keys_sorted(block["input"])} if "input" in block else block
    name = next(name for name in _BARE if isinstance(block.get(name), dict))
    inner, given = block[name], _BARE[name]
    return {**block, name: {**inner, given: keys_sorted(inner[given])}} if given in inner else block
