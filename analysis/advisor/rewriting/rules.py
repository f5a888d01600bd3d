"""Rules that rewrite a request so that prompts which mean the same are the same, and what varies stands last. Pure.

A rule changes copies: the request that it is given stays as it is, and what no rule is about is the same object.

`export` writes this code, with what it imports of the advisor, into the module that people put in their gateways: it
keeps to Python 3.9 and its standard library, and to answers where a request is strange, never errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from analysis.advisor.rewriting.canonical import arrays_in_order, keys_in_order, placed
from analysis.advisor.rewriting.forms import one_form
from analysis.advisor.rewriting.search import search

Body = Mapping[str, Any]

_MARKS = ("cache_control", "cachePoint", "cache_point")


class Action(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """What a rule does to the texts of its role, or to the tools."""

    SORT_TOOLS = "sort tools"
    SORT_KEYS = "sort keys"
    SORT_JSON = "sort JSON"  # elements of the arrays that are its items
    SORT_ITEMS = "sort items"
    ONE_FORM = "one form"  # of blanks, line ends and Unicode
    MOVE = "move"
    DROP = "drop"
    MOVE_MESSAGE = "move message"


@dataclass(frozen=True)
class Rule:
    """action, on whom: a role (`system` stands for developer, too), `tools`, or `prompt` for a text without messages.

    pattern: regular expression of what is moved or dropped, with ^ and $ at line ends, without groups. items:
    squeezed, in the order in which they shall stand; of JSON the arrays and key structures it is about. message: of the
    messages of that role, which one is moved. within: what is moved goes to the end of its own text, and not behind the
    conversation.
    """

    action: Action
    role: str
    pattern: str = ""
    items: tuple[str, ...] = ()
    message: int = 0
    within: bool = False


def apply(rules: Sequence[Rule], body: Body) -> Body:
    """The request as the rules write it. A rule leaves one alone that is nested too deep for it."""
    for rule in rules:
        with suppress(RecursionError):
            body = _APPLIED[rule.action](rule, body)
    return body


def _tools(change: Callable[[list[Any]], list[Any]], body: Body) -> Body:
    tools = body.get("tools")
    return {**body, "tools": change(list(tools))} if isinstance(tools, list) else body


def _sort_tools(_: Rule, body: Body) -> Body:
    return _tools(_by_name, body)


def _by_name(tools: list[Any]) -> list[Any]:
    """In the order of their names; a cache breakpoint stays behind as many tools as before."""
    bare = [_unmarked(tool) for tool in tools]
    marks = [
        {name: tool[name] for name in _MARKS if name in tool} if isinstance(tool, dict) else {}
        for tool in tools
    ]
    return [
        {**tool, **marks[at]} if marks[at] and isinstance(tool, dict) else tool
        for at, tool in enumerate(sorted(bare, key=_name))
    ]


def _unmarked(tool: Any) -> Any:
    if not isinstance(tool, dict) or not any(name in tool for name in _MARKS):
        return tool
    return {name: value for name, value in tool.items() if name not in _MARKS}


def _name(tool: object) -> str:
    """By name, and what has none by all that it says."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else tool
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else json.dumps(tool, sort_keys=True, default=str)


def _sort_keys(rule: Rule, body: Body) -> Body:
    if rule.role == "tools":
        return _tools(lambda tools: [_sorted(tool) for tool in tools], body)
    only = frozenset(rule.items) if rule.items else None
    return _texts(rule, lambda text: keys_in_order(text, only), _calls(rule, body))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _calls(rule: Rule, body: Body) -> Body:
    """The arguments of tool calls in the messages of the role."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not any(
        isinstance(m, dict) and m.get("tool_calls") for m in messages
    ):
        return body
    return {**body, "messages": [_call(rule, message) for message in messages]}


def _call(rule: Rule, message: Any) -> Any:
    if not _is_of(rule, message) or not isinstance(calls := message.get("tool_calls"), list):
        return message
    return {**message, "tool_calls": [_arguments(call) for call in calls]}


def _arguments(call: Any) -> Any:
    inner = call.get("function") if isinstance(call, dict) else None
    if not isinstance(inner, dict) or not isinstance(told := inner.get("arguments"), str):
        return call
    return {**call, "function": {**inner, "arguments": keys_in_order(told)}}


def _sort_json(rule: Rule, body: Body) -> Body:
    known = frozenset(rule.items)
    return _texts(rule, lambda text: arrays_in_order(text, known), body)


def _sort_items(rule: Rule, body: Body) -> Body:
    return _texts(rule, lambda text: placed(text, rule.items), body)


def _one_form(rule: Rule, body: Body) -> Body:
    return _texts(rule, one_form, body)


def _move(rule: Rule, body: Body) -> Body:
    if rule.within:
        return _texts(rule, lambda text: _to_end(rule, text), body)
    found: list[str] = []
    taken = _texts(rule, lambda text: _without(rule, text, found), body)
    return _at_end(found, taken) if found else body


def _to_end(rule: Rule, text: str) -> str:
    """The text with what the rule is about at its end."""
    found: list[str] = []
    rest = _without(rule, text, found).rstrip()
    if not found:
        return text
    return f"{rest}\n\n{found[0]}" if rest else found[0]


def _drop(rule: Rule, body: Body) -> Body:
    return _texts(rule, lambda text: _without(rule, text, []), body)


def _without(rule: Rule, text: str, found: list[str]) -> str:
    """The text without what the rule is about, which is added to `found`; with it goes the blank behind it."""
    match = search(rule.pattern, text)
    if not match or not match[0].strip():
        return text
    found.append(match[0].strip())
    before, after = text[: match.start()], text[match.end() :]
    if not before or before[-1].isspace():
        after = re.sub(r"\A[^\S\n]*\n?", "", after)
    return before + after


def _at_end(found: Sequence[str], body: Body) -> Body:
    """With these lines at the end of the last message of the user, or of the text."""
    lines = "\n".join(found)
    if isinstance(text := body.get("prompt"), str):
        return {**body, "prompt": f"{text.rstrip()}\n\n{lines}"}
    name = _talk(body)
    if isinstance(text := body.get(name), str):
        return {**body, name: f"{text.rstrip()}\n\n{lines}"}
    messages = _messages(body)
    last = next((at for at in range(len(messages) - 1, -1, -1) if _role(messages[at]) == "user"), None)
    if last is None or _is_result(messages[-1]):  # what stands in front of a tool's result is history then
        return {**body, name: [*messages, {"role": "user", "content": lines}]}
    content = messages[last].get("content") or ""
    told: object = f"{content}\n\n{lines}" if content else lines
    if isinstance(content, list):
        told = [*content, {"type": "text" if name == "messages" else "input_text", "text": lines}]
    messages[last] = {**messages[last], "content": told}
    return {**body, name: messages}


def _is_result(message: object) -> bool:
    """Of a tool; Anthropic's stand in messages of the user's."""
    told = message if isinstance(message, dict) else {}
    return _role(message) in ("tool", "function") or told.get("type") == "function_call_output"


def _talk(body: Body) -> str:
    """Where the conversation is: under `messages`, in OpenAI's Responses API under `input`."""
    return "input" if "input" in body and "messages" not in body else "messages"


def _messages(body: Body) -> list[Any]:
    messages = body.get(_talk(body))
    return list(messages) if isinstance(messages, list) else []


def _move_message(rule: Rule, body: Body) -> Body:
    messages = _messages(body)
    own = [at for at, message in enumerate(messages) if _is_of(rule, message)]
    if len(own) <= rule.message or not isinstance(text := messages[own[rule.message]].get("content"), str):
        return body
    match = search(rule.pattern, text) if rule.pattern else None
    if len(own) < 2 or match is None or match.start() or not match[0].strip():
        return body  # another message than the one that was learned from, or all that the system says
    del messages[own[rule.message]]
    return _at_end([text], {**body, _talk(body): messages})


def _role(message: object) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return "system" if role == "developer" else str(role)


def _is_of(rule: Rule, message: object) -> bool:
    return _role(message) == rule.role


def _texts(rule: Rule, change: Callable[[str], str], body: Body) -> Body:
    """The body with the texts of the rule's role changed; the same body where none is."""
    told = dict(body)
    if rule.role == "prompt" and isinstance(text := body.get("prompt"), str):
        told["prompt"] = change(text)
    if rule.role == "system" and (own := body.get("system")):  # Anthropic's form
        told["system"] = _content(change, own)
    if rule.role == "system" and isinstance(text := body.get("instructions"), str):  # of the Responses API
        told["instructions"] = change(text)
    if rule.role == "user" and _talk(body) == "input" and isinstance(text := body.get("input"), str):
        told["input"] = change(text)
    if messages := _messages(body):
        told[_talk(body)] = [_message(rule, change, message) for message in messages]
    return told if told != body else body


def _message(rule: Rule, change: Callable[[str], str], message: Any) -> Any:
    if not _is_of(rule, message):
        return message
    return {**message, "content": _content(change, message["content"])} if message.get("content") else message


def _content(change: Callable[[str], str], content: Any) -> Any:
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        return content
    told = [_block(change, block) for block in content]
    # no API takes an empty block
    left = [block for at, block in enumerate(told) if block == content[at] or _says(block)]
    return left or (told if told == content else "")


def _says(block: Any) -> bool:
    return block != "" and not (isinstance(block, dict) and block.get("text") == "")


def _block(change: Callable[[str], str], block: Any) -> Any:
    if isinstance(block, str):
        return change(block)
    if not isinstance(block, dict) or not isinstance(text := block.get("text"), str):
        return block
    return {**block, "text": change(text)}


_APPLIED: dict[Action, Callable[[Rule, Body], Body]] = {
    Action.SORT_TOOLS: _sort_tools,
    Action.SORT_KEYS: _sort_keys,
    Action.SORT_JSON: _sort_json,
    Action.SORT_ITEMS: _sort_items,
    Action.ONE_FORM: _one_form,
    Action.MOVE: _move,
    Action.DROP: _drop,
    Action.MOVE_MESSAGE: _move_message,
}
