"""Prompts out of OpenTelemetry's spans and log records, where instrumentations were told to keep contents.

Sources: OpenTelemetry's GenAI conventions: since 1.37 `gen_ai.input.messages`, `gen_ai.system_instructions` and
`gen_ai.tool.definitions`, on spans as JSON text or structured, on the event
`gen_ai.client.inference.operation.details` structured; from 1.28 to 1.36 one log record a message
(`gen_ai.system.message` and so on, closed by `gen_ai.choice`); `gen_ai.prompt` before. OpenLLMetry and OpenInference
number attributes instead (`gen_ai.prompt.0.content`, `llm.input_messages.0.message.content`). What was sent can be told
only as far as the instrumentation told it: `body` is None, and paths lead into the attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cachemodel.prompts.answer import decoded
from cachemodel.prompts.blocks import Parts
from cachemodel.prompts.chat import conversation, preamble
from cachemodel.prompts.fields import Record, name_of, number
from cachemodel.prompts.model import Kind, Prompt
from cachemodel.prompts.otlp import Item, items

_MESSAGES = (
    *("gen_ai.input.messages", "gen_ai.request.messages", "ai.prompt.messages"),
    "langfuse.observation.input",
)
_TOOLS = ("gen_ai.tool.definitions", "gen_ai.request.available_tools")
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_ANSWER = "gen_ai.choice"
_NUMBERED = (
    re.compile(r"gen_ai\.prompt\.(\d+)\.(.+)"),
    re.compile(r"llm\.input_messages\.(\d+)\.message\.(.+)"),
)
_IDS = ("gen_ai.response.id", "gen_ai.request.id")
_SESSIONS = ("gen_ai.conversation.id", "session.id", "langfuse.session.id")
_USERS = ("user.id", "enduser.id", "langfuse.user.id")
_MODELS = (
    "gen_ai.response.model",
    "gen_ai.request.model",
    "llm.model_name",
    "langfuse.observation.model.name",
)
_INPUT = (
    *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
    "llm.token_count.prompt",
)
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_CACHED = (
    *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    *("gen_ai.usage.cached_tokens", "llm.token_count.prompt_details.cache_read"),
)
_WRITTEN = (
    *("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    *("gen_ai.usage.cache_write.input_tokens", "llm.token_count.prompt_details.cache_write"),
)
_TOTAL = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total")


def read(
    record: Record, name: str, server: str = "", talks: Conversations | None = None
) -> list[Prompt] | None:
    """The prompts of a span, a log record or a batch; None where nothing of it tells of any.

    talks: keeps messages that are told one by one until the record that ends their conversation; without it a
    conversation ends with the record.
    """
    open_talks, prompts, kept = talks or Conversations(), [], False
    for index, item in enumerate(items(record)):
        own = f"{name}#{index}" if index else name
        if is_message(item):
            kept = True
            prompts += open_talks.add(item, own, server)
        elif told := _prompt(item, own, server):
            prompts.append(told)
    if talks is None:
        prompts += open_talks.rest()
    return prompts if prompts or (kept and talks is not None) else None


def is_message(item: Item) -> bool:
    """Whether a log record is one message of a conversation, or the answer that ends it."""
    name = _event_name(item)
    return bool(_EVENT.fullmatch(name)) or name == _ANSWER


def _event_name(item: Item) -> str:
    told = item.attributes.get("event.name")
    return told if isinstance(told, str) else item.name


class Conversations:
    """Puts together conversations that are told one message a log record. most: open ones, the oldest goes first."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._open: dict[tuple[str, str], tuple[str, str, list[Item]]] = {}

    def add(self, item: Item, name: str, server: str = "") -> list[Prompt]:
        """The prompts that are whole now. name: of the item, such as file and line."""
        key = (item.trace, item.span)
        done = _event_name(item) == _ANSWER
        if not done:
            self._open.setdefault(key, (name, server, []))[2].append(item)
            if len(self._open) <= self._most:
                return []
            key = next(iter(self._open))
        talk = self._open.pop(key, None)
        return self._whole(*talk, item if done else None) if talk else []

    def rest(self) -> list[Prompt]:
        """Those whose answer has not been told."""
        talks, self._open = self._open, {}
        return [prompt for talk in talks.values() for prompt in self._whole(*talk, None)]

    @staticmethod
    def _whole(name: str, server: str, said: Sequence[Item], answer: Item | None) -> list[Prompt]:
        out = Parts()
        conversation(out, "events", [_message(item) for item in said])
        if not out.parts:
            return []
        first = said[0]
        attributes: dict[str, Any] = {}
        for item in (*said, *((answer,) if answer else ())):
            attributes |= item.attributes
        told = _any_text(_content(answer.body or answer.attributes)) if answer else None
        return [_as_prompt(first, attributes, out, name, server, told)]


def _message(item: Item) -> dict[str, Any]:
    """A message as its event tells it: in the body, or in attributes."""
    told = item.body if isinstance(item.body, dict) else None
    if told is None:
        content = item.attributes.get("gen_ai.event.content", item.attributes.get("content", item.body))
        inner = decoded(content) if isinstance(content, str) else content
        told = inner if isinstance(inner, dict) else {"content": content}
    role = _EVENT.fullmatch(_event_name(item))
    message = {"role": role[1] if role else "", **told}
    message.pop("id", None)
    return message


def _content(body: object) -> object:
    message = body.get("message", body) if isinstance(body, dict) else body
    return message.get("content") if isinstance(message, dict) else message


def _any_text(content: object) -> str | None:
    return content if isinstance(content, str) else None


def _prompt(item: Item, name: str, server: str) -> Prompt | None:
    """The prompt of a span, or of an event that tells of a whole operation."""
    attributes: dict[str, Any] = dict(item.attributes)
    said = [event for event in item.events if is_message(event)]
    for event in item.events:
        if event not in said:
            attributes = {**event.attributes, **attributes}
    if isinstance(item.body, dict):
        attributes = {**item.body, **attributes}
    out = Parts()
    tools = _first(attributes, _TOOLS)
    preamble(out, {"tools": tools, "system": _structured(attributes.get("gen_ai.system_instructions"))})
    out.parts = [_renamed(part, attributes) for part in out.parts]
    out.role = "prompt"
    for key in _MESSAGES:
        if key in attributes:
            _say(out, key, _structured(attributes[key]))
            break
    else:
        if numbered := _numbered(attributes):
            conversation(out, *numbered)
        elif said:
            conversation(out, "events", [_message(one) for one in said if _event_name(one) != _ANSWER])
        elif "gen_ai.prompt" in attributes:
            _say(out, "gen_ai.prompt", _structured(attributes["gen_ai.prompt"]))
    if not any(part.kind is not Kind.TOOL for part in out.parts):
        return None
    answer = _answer(attributes.get("gen_ai.output.messages"))
    return _as_prompt(item, attributes, out, name, server, answer)


def _renamed(part: Any, attributes: Mapping[str, Any]) -> Any:
    """A part of the preamble at its place in the attributes."""
    holder, rest = re.match(r"([a-z]+)(.*)", part.path).groups()  # type: ignore[union-attr]
    key = "gen_ai.system_instructions" if holder == "system" else next(k for k in _TOOLS if k in attributes)
    return type(part)(key + rest, part.role, part.kind, part.text)


def _say(out: Parts, key: str, told: object) -> None:
    """Messages, or whatever stands in their place."""
    if isinstance(told, dict) and isinstance(told.get("messages"), list):
        key, told = f"{key}.messages", told["messages"]
    if isinstance(told, list) and told and all(isinstance(one, dict) for one in told):
        conversation(out, key, told)
    else:
        out.content(key, told)


def _structured(value: object) -> Any:
    """An attribute's value; where it is the text of a JSON list or object, that."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        told = decoded(value)
        return value if told is None else told
    return value


def _first(attributes: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((_structured(attributes[name]) for name in names if name in attributes), None)


def _numbered(attributes: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]] | None:
    """Messages out of attributes that number them, and the name that the numbers stand behind."""
    for form in _NUMBERED:
        found: dict[int, dict[str, Any]] = {}
        for key, value in attributes.items():
            if (match := form.fullmatch(key)) and len(match[1]) < 7:
                found.setdefault(int(match[1]), {})[match[2]] = value
        if found:
            name = form.pattern.partition(r"\.(")[0].replace("\\", "")
            return name, [_flat(found[index]) for index in sorted(found)]
    return None


def _flat(told: dict[str, Any]) -> dict[str, Any]:
    """A message of numbered attributes: role, content, and whatever else it says as one more block."""
    content = _structured(told.pop("content", None))
    message: dict[str, Any] = {"role": told.pop("role", ""), "content": content}
    said = {key: value for key, value in sorted(told.items()) if not key.endswith(("id", "finish_reason"))}
    if said:
        message["function_call"] = said
    return message


def _answer(told: object) -> str | None:
    out = Parts()
    _say(out, "answer", _structured(told))
    return "".join(part.text for part in out.parts if part.kind is Kind.TEXT) or None


def _count(attributes: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        value = attributes.get(name)
        told = (
            number(int(value))
            if isinstance(value, str) and value.isdecimal() and len(value) < 20
            else number(value)
        )
        if told is not None and told >= 0:
            return int(told)
    return None


def _counts(attributes: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Prompt tokens with cached ones, and those: a part that is greater than the whole was left out of it, and so were
    parts that the total has room for beside the input."""
    told, cached = _count(attributes, _INPUT), _count(attributes, _CACHED)
    if told is None:
        return None, cached
    read, written = cached or 0, _count(attributes, _WRITTEN) or 0
    total, output = _count(attributes, _TOTAL), _count(attributes, _OUTPUT) or 0
    beside = read + written > 0 and total == told + output + read + written
    return told + (read + written if beside or told < max(read, written) else 0), cached


def _as_prompt(
    item: Item, attributes: Mapping[str, Any], out: Parts, name: str, server: str, response: str | None
) -> Prompt:
    prompt_tokens, cached_tokens = _counts(attributes)
    return Prompt(
        request_id=_name(attributes, _IDS) or item.span or name,
        parts=tuple(out.parts),
        session=_name(attributes, _SESSIONS),
        user=_name(attributes, _USERS),
        time=item.time,
        server=server or name_of(item.service),
        model=_name(attributes, _MODELS),
        marks=tuple(out.marks),
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        response=response,
    )


def _name(attributes: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((told for name in names if (told := name_of(attributes.get(name)))), "")
