"""Requests made of messages: OpenAI's chat completions and responses, Anthropic's messages, Gemini's and Bedrock's.

Parts come in the order in which most prompts are rendered: tool definitions, what the response has to look like,
system, messages as sent. Anthropic documents tools, system, messages as the order of its cache, and OpenAI the schema
of a structured output as a prefix of the system message (both: guides on prompt caching). Servers that run a model's
own chat template (vLLM, SGLang, llama.cpp) differ by model: Qwen 2.5's renders the tools after the system text, in
the same turn; Llama 3.1's into the first user turn unless told otherwise; Mistral 7B 0.3's before the last user turn.
Whoever needs a position to the token renders the body. Those servers constrain decoding and render no FORMAT: its
tokens are none of theirs. A format without a schema, or a grammar, is rendered nowhere and is no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cachemodel.prompts.blocks import MARKS, Parts
from cachemodel.prompts.model import Kind
from cachemodel.prompts.text import compact, without

Body = Mapping[str, Any]

_REASONING = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_RESULT_ROLES = ("tool", "function")
# An item of the Responses API that is no message has no role; these say whose it is.
_OTHERS_ITEMS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_FORMATS = (
    ("response_format", "json_schema"),
    ("text", "format"),
    ("output_config", "format"),
    ("output_format", "schema"),
    ("generationConfig", "responseSchema"),
    ("generationConfig", "responseJsonSchema"),
    ("generation_config", "response_schema"),
)
_BEFORE = {"tools", "functions", "toolConfig", "documents", *_SYSTEM, *(holder for holder, _ in _FORMATS)}


def messages_of(body: Body) -> tuple[str, Sequence[Body]] | None:
    """The messages of a request and the name that they stand under; None where it has none."""
    for name in ("messages", "input", "contents"):
        told = body.get(name)
        if isinstance(told, list) and told and all(isinstance(one, dict) for one in told):
            return name, told
    return None


def read_chat(body: Body, name: str, messages: Sequence[Body]) -> Parts:
    """The parts of a request whose messages stand under `name`."""
    out = Parts()
    preamble(out, body)
    conversation(out, name, messages)
    if body.get("cache_control"):  # Anthropic's automatic breakpoint, at the end of the prompt
        out.marks.append("cache_control")
    return out


def preamble(out: Parts, body: Body) -> None:
    """What is rendered before the messages: tools, documents, response format, system."""
    if body.keys().isdisjoint(_BEFORE):
        return
    out.role = "tools"
    _tools(out, "tools", body.get("tools"))
    _tools(out, "functions", body.get("functions"))
    if isinstance(config := body.get("toolConfig"), dict):
        _tools(out, "toolConfig.tools", config.get("tools"))
    documents = body.get("documents")
    out.role = "documents"
    for index, document in enumerate(documents if isinstance(documents, list) else ()):
        out.value(f"documents[{index}]", document, Kind.TEXT)
    out.role = "format"
    for holder, field in _FORMATS:
        told = body.get(holder)
        schema = told.get(field) if isinstance(told, dict) else None
        if isinstance(schema, dict) and (field != "format" or schema.get("type") == "json_schema"):
            out.add(f"{holder}.{field}", Kind.FORMAT, compact(schema))
    out.role = "system"
    for name in _SYSTEM:
        told = body.get(name)
        if isinstance(told, dict) and "parts" in told:
            out.content(f"{name}.parts", told["parts"])
        elif isinstance(told, list) and name == "instructions":  # items as in `input`
            conversation(out, name, [one for one in told if isinstance(one, dict)], first=None)
        else:
            out.content(name, told)


def _tools(out: Parts, path: str, tools: object) -> None:
    if isinstance(tools, str):
        out.add(path, Kind.TOOL, tools)
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        place = f"{path}[{index}]"
        if not isinstance(tool, dict):
            out.add(place, Kind.TOOL, compact(tool))
            continue
        out.mark(place, tool)
        declared = next((n for n in ("functionDeclarations", "function_declarations") if n in tool), None)
        if declared and isinstance(tool[declared], list):
            _tools(out, f"{place}.{declared}", tool[declared])
        elif told := without(tool, *MARKS):
            out.add(place, Kind.TOOL, compact(told))


def conversation(out: Parts, name: str, messages: Sequence[Body], first: int | None = 0) -> None:
    """The messages, in their order. first: index of the first in the conversation, None where they stand outside."""
    for index, message in enumerate(messages):
        out.message = -1 if first is None else first + index
        path, role, content = f"{name}[{index}]", message.get("role"), message.get("content")
        if isinstance(role, str):
            out.role = role
            if len(message) == 2 and isinstance(content, str):  # most are so
                kind = Kind.RESULT if role in _RESULT_ROLES else Kind.TEXT
                out.add(f"{path}.content", kind, content)
            else:
                _message(out, path, message)
        elif "type" in message and message["type"] != "message":
            out.role = "tool" if message["type"] in _OTHERS_ITEMS else "assistant"
            out.content(path, message)
        else:
            out.role = ""
            _message(out, path, message)
    out.message = -1


def _message(out: Parts, path: str, message: Body) -> None:
    """One message: its name, what the model thought, its content, what it called."""
    known, kind = len(out.parts), Kind.RESULT if out.role in _RESULT_ROLES else Kind.TEXT
    if isinstance(name := message.get("name"), str):
        out.add(f"{path}.name", Kind.TEXT, name)
    for field in _REASONING:
        if message.get(field):
            out.content(f"{path}.{field}", message[field], Kind.REASONING)
    out.content(f"{path}.content", message.get("content"), kind)
    out.content(f"{path}.parts", message.get("parts"), kind)
    if isinstance(refusal := message.get("refusal"), str):
        out.add(f"{path}.refusal", Kind.TEXT, refusal)
    images = message.get("images")
    for index, image in enumerate(images if isinstance(images, list) else ()):
        out.media(f"{path}.images[{index}]", Kind.IMAGE, "image", image)
    if message.get("audio"):
        out.media(f"{path}.audio", Kind.AUDIO, "audio", message["audio"])
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        place = f"{path}.tool_calls[{index}]"
        inner = next((n for n in ("function", "custom") if isinstance(call, dict) and call.get(n)), None)
        out.call(f"{place}.{inner}" if inner else place, call[inner] if inner else call)
    if message.get("function_call"):
        out.call(f"{path}.function_call", message["function_call"])
    out.mark(path, message)
    if len(out.parts) == known and not {"content", "parts", "tool_calls"} & message.keys():
        out.opaque(path, without(message, "role", *MARKS))
