"""Messages to a prompt, through the model's own jinja template, rendered in a sandbox as transformers does it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import RequestError

Message = Mapping[str, Any]
"""One of an OpenAI chat request's `messages`."""


class ChatTemplate:
    """special_tokens: what the template may name, such as bos_token. Raises ValueError for a bad source."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._template = _compile(source)
        self._special_tokens = special_tokens

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The prompt, up to where the assistant speaks. Raises RequestError for messages that make none."""
        plain = [_plain(message) for message in messages]
        try:
            return self._template.render(
                messages=plain, tools=tools or None, add_generation_prompt=True, **self._special_tokens
            )
        except Exception as error:  # a template is a program of somebody else's
            raise RequestError(
                f"the model's chat template cannot make a prompt of these messages: {error}", param="messages"
            ) from error


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except Exception as error:  # nested too deep, a constant too long: jinja has no one name for them
        raise ValueError(str(error)) from error


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    """jinja's own escapes <, > and & for HTML; a prompt needs them as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _plain(message: Message) -> dict[str, Any]:
    """Text parts become one text and a tool call's arguments the object that they spell, as templates expect them."""
    plain = dict(message)
    if not isinstance(plain.get("role"), str):
        raise RequestError("a message needs a role", param="messages")
    content = plain.get("content")
    if isinstance(content, list):
        plain["content"] = "\n".join(_text(part) for part in content)
    elif content is not None and not isinstance(content, str):
        raise RequestError("a message's content is a text or a list of parts", param="messages")
    if isinstance(plain.get("tool_calls"), list):
        plain["tool_calls"] = [_call(call) for call in plain["tool_calls"]]
    return plain


def _text(part: Any) -> str:
    if (
        isinstance(part, Mapping)
        and part.get("type") in ("text", "input_text")
        and isinstance(part.get("text"), str)
    ):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise RequestError(f"a content part of type {kind!r} is not served here; text is", param="messages")


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}
