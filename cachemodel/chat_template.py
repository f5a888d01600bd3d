"""Messages to a prompt, through the model's own jinja template, rendered in a sandbox as transformers does it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]
"""One of an OpenAI chat request's `messages`."""


class Unrenderable(ValueError):
    """Messages that make no prompt; the text is for whoever sent them."""


class ChatTemplate:
    """special_tokens: what the template may name, such as bos_token. Raises ValueError for a bad source."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._template = _compile(source)
        self._special_tokens = special_tokens

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt, by default up to where the assistant speaks. Raises Unrenderable.

        now: what a template that asks for the time is told; by default it is the time. more: variables of the request's
        own (chat_template_kwargs).
        """
        plain = [_plain(message) for message in messages]
        variables = {
            **self._special_tokens,
            "strftime_now": lambda form: (now or datetime.now()).strftime(form),
            **(more or {}),
            "messages": plain,
            "tools": tools or None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._template.render(variables)
        except Exception as error:  # a template is a program of somebody else's
            raise Unrenderable(
                f"the model's chat template cannot make a prompt of these messages: {error}"
            ) from error


def chat_template(settings: Mapping[str, Any], source: str | None = None) -> ChatTemplate | None:
    """The template that a model folder tells of; None where there is none.

    settings: its tokenizer_config.json, which may hold one template or several by name; source: the text of its
    chat_template.jinja, which comes first. Raises ValueError for a template that cannot be read.
    """
    told: object = source if source is not None else settings.get("chat_template")
    if isinstance(told, list):
        told = {one.get("name"): one.get("template") for one in told if isinstance(one, dict)}.get("default")
    return ChatTemplate(told, special_tokens(settings)) if isinstance(told, str) else None


def special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """bos_token and the like of a tokenizer_config.json: a text, or an object with its content."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            found[key] = text
    return found


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
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
        raise Unrenderable("a message needs a role")
    content = plain.get("content")
    if isinstance(content, list):
        plain["content"] = "\n".join(_text(part) for part in content)
    elif content is not None and not isinstance(content, str):
        raise Unrenderable("a message's content is a text or a list of parts")
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
    raise Unrenderable(f"a content part of type {kind!r} is not served here; text is")


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}
