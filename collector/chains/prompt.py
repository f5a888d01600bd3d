"""The prompt of a line of a request log: what was sent, and what of it decides about the cache. Pure.

The request stands under `body` or `request`, or is the line itself: OpenAI's chat completions, completions and
responses, Anthropic's messages, Bedrock's and Gemini's, and whatever names its token ids. Several prompts in one
request have one count of tokens between them and are left out, as are requests that the server refused: they were never
computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cachemodel.prompts.answer import is_refused
from cachemodel.prompts.blocks import Parts
from cachemodel.prompts.fields import field as at
from cachemodel.prompts.model import Kind
from collector.request_log import UsageRow
from collector.usage.style import Record

if TYPE_CHECKING:
    from cachemodel.chat_template import Message

SEVERAL, REFUSED, NO_PROMPT = (
    "several prompts in one request",
    "refused by the server",
    "no prompt in the line",
)
MAX_SALT = 4096  # characters

_BODIES = ("body", "request", "request_body")
_IDS = ("prompt_token_ids", "body.prompt_token_ids", "body.input_ids", "response.prompt_token_ids")
_DEFAULT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request as it was sent: messages with their tools, or a text, or tokens.

    time: Unix seconds when it was sent; seconds: how long it took, as far as the line tells. counted: prompt tokens by
    the response's usage, None where it has none. reads_off: the option that keeps the cache from being read, empty for
    none. truncated_to: the server keeps this many tokens of the end, 0 for all. options: further words of the request
    that its rendering depends on, as vLLM and transformers call them.
    """

    time: float
    seconds: float
    server: str
    model: str
    request_id: str
    counted: int | None
    messages: Sequence[Message] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    text: str | None = None
    tokens: Sequence[int] | None = None
    salt: str = ""
    reads_off: str = ""
    truncated_to: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def read_prompt(record: Record, row: UsageRow) -> Prompt | str:
    """The prompt of a line whose usage is `row`, or why there is none: one of a few fixed phrases."""
    if is_refused(record, computed=bool(row.prompt_tokens) or row.client_ttft_us is not None):
        return REFUSED
    body: Record = next((found for name in _BODIES if isinstance(found := record.get(name), dict)), record)
    told = _content(record, body)
    if isinstance(told, str):
        return told
    elapsed_us = row.client_e2e_us or row.e2e_us
    salt = body.get("cache_salt")
    keep = body.get("truncate_prompt_tokens")
    return Prompt(
        **told,
        time=row.time,
        seconds=elapsed_us / 1e6 if elapsed_us else _DEFAULT_S,
        server=row.server,
        model=row.model,
        request_id=row.request_id,
        counted=row.prompt_tokens,
        salt=salt[:MAX_SALT] if isinstance(salt, str) else "",
        reads_off=_reads_off(body),
        truncated_to=keep if isinstance(keep, int) and keep > 0 else 0,
        options={name: body[name] for name in _OPTIONS if name in body},
    )


def read_body(body: Record) -> Prompt | str:
    """The prompt of a request by itself, or why there is none."""
    told = _content(body, body)
    if isinstance(told, str):
        return told
    return Prompt(
        **told,
        time=0.0,
        seconds=_DEFAULT_S,
        server="",
        model=str(body.get("model", "")),
        request_id="",
        counted=None,
        options={name: body[name] for name in _OPTIONS if name in body},
    )


_OPTIONS = (
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "reasoning_effort",
)


def _content(record: Record, body: Record) -> dict[str, Any] | str:
    """The field of Prompt that holds what was sent."""
    tools = (
        at(body, "toolConfig.tools") if "toolConfig" in body and "tools" not in body else body.get("tools")
    )
    chat: dict[str, Any] = {"tools": tools if isinstance(tools, list) and all(map(_is_dict, tools)) else None}
    for place in _IDS:
        if _are_tokens(ids := at(record, place)):
            return {"tokens": ids} | chat | _messages(body)
    if told := _messages(body):
        return chat | told
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        (prompt,) = prompt
    if isinstance(prompt, str) and prompt:
        return {"text": prompt}
    if _are_tokens(prompt):
        return {"tokens": prompt}
    return SEVERAL if isinstance(prompt, list) and prompt else NO_PROMPT


def _messages(body: Record) -> dict[str, Any]:
    """The messages, with what stands beside them in Anthropic's, Gemini's and OpenAI's newer form; empty where none
    are. Blocks that tell their type by a field's name, as Bedrock's and Gemini's do, have one as others have."""
    messages = body.get("messages")
    first = body.get("system")
    if messages is None and (asked := body.get("input")):
        first = body.get("instructions")
        messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    elif messages is None and "contents" in body:
        messages = body["contents"]
        first = body.get("systemInstruction") or body.get("system_instruction")
        first = first.get("parts") if isinstance(first, dict) else first
    if not isinstance(messages, list) or not messages or not all(map(_is_dict, messages)):
        return {}
    whole = [{"role": "system", "content": first}, *messages] if first else messages
    return {"messages": [_typed(message) for message in whole]}


def _typed(message: Message) -> Message:
    """The message itself where all of its blocks tell their type."""
    if isinstance(parts := message.get("parts"), list) and "content" not in message:  # Gemini's
        role = message.get("role") or "user"
        message = {"role": "assistant" if role == "model" else role, "content": parts}
    content = message.get("content")
    if not isinstance(content, list) or not any(_is_bare(block) for block in content):
        return message
    blocks = [own for block in content for own in (_told(block) if _is_bare(block) else [block])]
    return {**message, "content": blocks}


def _is_bare(block: object) -> bool:
    return isinstance(block, dict) and not isinstance(block.get("type"), str)


def _told(block: Record) -> list[Record]:
    """What a block without a type says: texts, and media by the names that blocks with a type have for them."""
    out = Parts()
    out.content("", block)
    media = (Kind.IMAGE, Kind.AUDIO, Kind.FILE)
    return [
        {"type": part.kind.value, part.kind.value: block.get(part.path.rpartition(".")[2]) or block}
        if part.kind in media
        else {"type": "text", "text": part.text}
        for part in out.parts
    ]


def _are_tokens(value: object) -> bool:
    return (
        isinstance(value, list)
        and set(map(type, value)) == {int}
        and bool(min(value) >= 0 and max(value) < 1 << 32)
    )


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _reads_off(body: Record) -> str:
    """vLLM reads no prefix cache where the logprobs of the prompt are wanted (echo wants them with logprobs), or where
    it is told not to; llama.cpp where it is told not to."""
    if body.get("prompt_logprobs") is not None:
        return "prompt_logprobs"
    if body.get("echo") is True and body.get("logprobs") is not None:
        return "echo"
    if body.get("skip_reading_prefix_cache") is True:
        return "skip_reading_prefix_cache"
    if body.get("cache_prompt") is False:
        return "cache_prompt"
    return ""
