"""Rules that rewrite a request so that prompts which mean the same are the same, and what varies stands last. Pure.

A rule changes copies: the request that it is given stays as it is, and what no rule is about is the same object.

`export` writes this code, with what it imports of the advisor, into the module that people put in their gateways: it
keeps to Python 3.9 and its standard library, and to answers where a request is strange, never errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from analysis.advisor.rewriting.blocks import (
    GONE,
    at_end_of,
    each_text,
    has_marks,
    joined,
    new_block,
    text_of,
)
from analysis.advisor.rewriting.calls import calls_in_order
from analysis.advisor.rewriting.canonical import arrays_in_order, keys_in_order, placed
from analysis.advisor.rewriting.forms import one_form
from analysis.advisor.rewriting.places import (
    PROMPTS,
    Body,
    at_end,
    at_system_end,
    each_content,
    each_text_of,
    talk_of,
    texts_of,
)
from analysis.advisor.rewriting.search import search
from analysis.advisor.rewriting.tool_lists import by_name, each_description, each_list, keys_sorted


class Action(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """What a rule does to the texts of its role, or to the tools and what describes them."""

    SORT_TOOLS = "sort tools"
    SORT_KEYS = "sort keys"
    SORT_JSON = "sort JSON"  # elements of the arrays that are its items
    SORT_ITEMS = "sort items"
    ONE_FORM = "one form"  # of blanks, line ends and Unicode
    MOVE = "move"
    DROP = "drop"
    MOVE_MESSAGE = "move message"  # or a block of one, whole


@dataclass(frozen=True)
class Rule:
    """action, on whom: a role (`system` stands for developer, too), `tools`, or `prompt` for a text without messages.

    pattern: regular expression of what is moved or dropped, with ^ and $ at line ends, without groups. items:
    squeezed, in the order in which they shall stand; of JSON the arrays and key structures it is about. message: of the
    texts of that role in the conversation, or in the system prompt beside it, which one is moved. within: what is moved
    goes to the end of what its message says (of whole messages and of tools, of what the system says), and not behind
    the conversation.
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


def _sort_tools(_: Rule, body: Body) -> Body:
    return each_list(by_name, body)


def _sort_keys(rule: Rule, body: Body) -> Body:
    if rule.role == "tools":
        return each_list(lambda tools: [keys_sorted(tool) for tool in tools], body)
    only = frozenset(rule.items) if rule.items else None
    return _texts(rule, lambda text: keys_in_order(text, only), calls_in_order(rule.role, body))


def _sort_json(rule: Rule, body: Body) -> Body:
    known = frozenset(rule.items)
    return _texts(rule, lambda text: arrays_in_order(text, known), body)


def _sort_items(rule: Rule, body: Body) -> Body:
    return _texts(rule, lambda text: placed(text, rule.items), body)


def _one_form(rule: Rule, body: Body) -> Body:
    return _texts(rule, one_form, body)


def _texts(rule: Rule, change: Callable[[str], str], body: Body) -> Body:
    """The body with the texts of the rule's role changed, of tools their descriptions."""
    if rule.role == "tools":
        return each_description(lambda _, text: change(text), body)
    return each_text_of(rule.role, change, body)


def _move(rule: Rule, body: Body) -> Body:
    if rule.within and rule.role != "tools":
        return each_content(rule.role, lambda content: _to_end(rule, content), body)
    left, found = _cut_rule(rule, body)
    if not found:
        return body
    return at_system_end(found, left) if rule.within else at_end(found, left)


def _drop(rule: Rule, body: Body) -> Body:
    return _cut_rule(rule, body)[0]


def _to_end(rule: Rule, content: Any) -> Any:
    """A content with what the rule is about at its end: behind its blocks, and behind their cache marks."""
    found: list[str] = []
    if isinstance(content, str):
        rest = _without(rule, content, found)
        return joined(rest, found[0]) if found else content
    if not isinstance(content, list):
        return content
    end = len(content)
    while end and _is_all(rule, content[end - 1]):  # stands there already
        end -= 1
    left = each_text(lambda text: _without(rule, text, found), content[:end])
    if not found or not left:
        return content
    if len(found) == 1 and end == len(content):
        return at_end_of(left, found[0], _type(content))
    return [*left, *content[end:], *(new_block(text, content, _type(content)) for text in found)]


def _is_all(rule: Rule, block: Any) -> bool:
    """Whether a block says nothing but what the rule is about, and no cache ends behind it."""
    found: list[str] = []
    text = text_of(block)
    return (
        text is not None
        and not has_marks([block])
        and not _without(rule, text, found).strip()
        and bool(found)
    )


def _type(blocks: Sequence[Any]) -> str:
    """Of the blocks of text among these."""
    told = [block for block in blocks if isinstance(block, dict) and text_of(block) is not None]
    return next((kind for block in told if isinstance(kind := block.get("type"), str)), "text")


def _cut_rule(rule: Rule, body: Body) -> tuple[Body, list[str]]:
    """The body without what the rule is about, and that."""
    if rule.role == "tools":
        return _cut_descriptions(rule, body)
    return _cut(rule.role, lambda text, found: _without(rule, text, found), body)


def _cut_descriptions(rule: Rule, body: Body) -> tuple[Body, list[str]]:
    """What is cut is told with the name of what it was said of. All that a description says stays."""
    cut: dict[str, list[str]] = {}

    def change(name: str, text: str) -> str:
        found: list[str] = []
        left = _without(rule, text, found)
        if not found or not left.strip():
            return text
        cut.setdefault(found[0], []).append(name)
        return left

    told = each_description(change, body)
    named = {text: ", ".join(name for name in dict.fromkeys(names) if name) for text, names in cut.items()}
    return told, [f"{names}: {text}" if names else text for text, names in named.items()]


def _cut(role: str, without: Callable[[str, list[str]], str], body: Body) -> tuple[Body, list[str]]:
    """The body without what `without` takes out of texts of a role, and that. Messages of the system that say nothing
    then are taken out; of others they stay as they are, as does all that the system says, or the request."""
    taken: list[str] = []
    whole: list[Any] = []

    def change(content: Any) -> Any:
        found: list[str] = []
        left = each_text(lambda text: without(text, found), content)
        emptied = not (left.strip() if isinstance(left, str) else left)
        if not found or (emptied and (role != "system" or has_marks(content))):
            return content
        taken.extend(found)
        if not emptied:
            return left
        whole.append(content)
        return GONE

    told = each_content(role, change, body)
    emptied = any(body.get(name) and told.get(name) == [] for name in (*PROMPTS, talk_of(body)))
    if emptied or (whole and not any(text.strip() for text in texts_of(role, told))):
        return body, []
    return told, taken


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


def _move_message(rule: Rule, body: Body) -> Body:
    for name in (*PROMPTS, talk_of(body)):
        left, found = _cut(rule.role, _whole(rule), {name: body.get(name)})
        if found:
            left = {**body, **left}
            return at_system_end(found, left) if rule.within else at_end(found, left)
    return body


def _whole(rule: Rule) -> Callable[[str, list[str]], str]:
    """Takes out the text that the rule is about, and no other than the one that it was learned from."""
    seen: list[str] = []

    def without(text: str, found: list[str]) -> str:
        seen.append(text)
        match = search(rule.pattern, text) if rule.pattern and len(seen) == rule.message + 1 else None
        if match is None or match.start() or not match[0].strip():
            return text
        found.append(text)
        return ""

    return without


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
