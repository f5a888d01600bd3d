"""The definitions of tools in a request, whoever's API it is: their order, their keys, and what describes them. Pure.

As `rules`, written into users' gateways: Python 3.9 and its standard library.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from analysis.advisor.rewriting.blocks import MARK_FIELDS, is_mark
from analysis.advisor.rewriting.places import Body

_LISTS = ("tools", "functions")
_DECLARATIONS = ("functionDeclarations", "function_declarations")  # Gemini's, several a tool
_INNER = ("function", "toolSpec")  # OpenAI's and Bedrock's name stands in there
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # hold schemas by names of their own
_VALUES = ("default", "const", "enum", "example", "examples")  # of a schema: data, whatever they are called


def each_list(change: Callable[[list[Any]], list[Any]], body: Body) -> Body:
    """The body with its lists of tools changed, of Gemini's also those within a tool; itself where it has none."""
    return _lists(lambda tools: change([_declared(change, tool) for tool in tools]), body)


def _lists(change: Callable[[list[Any]], list[Any]], body: Body) -> Body:
    told: dict[str, Any] = {}
    for name in _LISTS:
        if isinstance(tools := body.get(name), list):
            told[name] = change(list(tools))
    if isinstance(config := body.get("toolConfig"), dict) and isinstance(tools := config.get("tools"), list):
        told["toolConfig"] = {**config, "tools": change(list(tools))}
    return {**body, **told} if told else body


def _declared(change: Callable[[list[Any]], list[Any]], tool: Any) -> Any:
    for name in _DECLARATIONS if isinstance(tool, dict) else ():
        if isinstance(told := tool.get(name), list):
            return {**tool, name: change(list(told))}
    return tool


def by_name(tools: list[Any]) -> list[Any]:
    """In the order of their names; a cache breakpoint stays behind as many tools as before."""
    bare = sorted((_unmarked(tool) for tool in tools if not is_mark(tool)), key=tool_name)
    marks = [
        {name: tool[name] for name in MARK_FIELDS if name in tool} if isinstance(tool, dict) else {}
        for tool in tools
    ]
    in_order = iter(bare)
    told = [tool if is_mark(tool) else next(in_order) for tool in tools]
    return [
        {**tool, **marks[at]} if marks[at] and isinstance(tool, dict) else tool
        for at, tool in enumerate(told)
    ]


def _unmarked(tool: Any) -> Any:
    if not isinstance(tool, dict) or not any(name in tool for name in MARK_FIELDS):
        return tool
    return {name: value for name, value in tool.items() if name not in MARK_FIELDS}


def tool_name(tool: object) -> str:
    """By name, and what has none by all that it says."""
    return _called_tool(tool) or json.dumps(tool, sort_keys=True, default=str)


def _called_tool(tool: object) -> str:
    inner = tool
    for name in _INNER:
        inner = inner.get(name, inner) if isinstance(inner, dict) else inner
    told = inner.get("name") if isinstance(inner, dict) else None
    return told if isinstance(told, str) else ""


def keys_sorted(value: Any) -> Any:
    """A JSON value with the keys of all its objects in order."""
    if isinstance(value, dict):
        return {name: keys_sorted(value[name]) for name in sorted(value)}
    return [keys_sorted(one) for one in value] if isinstance(value, list) else value


def each_description(change: Callable[[str, str], str], body: Body) -> Body:
    """The body with the descriptions of its tools and of their parameters changed, and nothing else of them; the same
    body where none is. change: takes the name of what is described (`search`, `search.limit`) and its description."""
    told = _lists(lambda tools: [_described(change, tool, "", named=False) for tool in tools], body)
    return told if told != body else body


def _described(change: Callable[[str, str], str], value: Any, called: str, *, named: bool) -> Any:
    """named: whether the keys of an object are names of parameters, and not words that every definition has."""
    if isinstance(value, list):
        return [_described(change, one, called, named=False) for one in value]
    if not isinstance(value, dict):
        return value
    if not called and not named:
        called = _called_tool(value)
    told = {}
    for name, one in value.items():
        if named:
            told[name] = _described(change, one, f"{called}.{name}", named=False)
        elif name == "description" and isinstance(one, str):
            told[name] = change(called, one)
        else:
            told[name] = one if name in _VALUES else _described(change, one, called, named=name in _NAMED)
    return told
