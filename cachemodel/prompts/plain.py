"""Requests without messages: a text, token ids, several of either, and conversations in ShareGPT's form.

ShareGPT's `conversations` are no request but a whole talk: each turn of the human, and each result of a tool that the
model goes on from, is a request with all turns before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from cachemodel.prompts.blocks import Parts
from cachemodel.prompts.chat import Body, preamble
from cachemodel.prompts.model import Kind, Part
from cachemodel.prompts.text import hashed, intern, spelled

_PROMPTS = ("prompt", "text", "input", "inputs", "prompt_token_ids", "input_ids", "token_ids", "tokens")
_INNER = ("prompt_string", "prompt_token_ids", "prompt", "text")  # of prompts that are objects
_HUMAN, _MODEL, _TOOL = ("human", "user"), ("gpt", "assistant", "model"), ("tool", "observation", "function")


class Told(NamedTuple):
    """One prompt of a record. suffix: what tells it apart from others of its record, empty for the only one."""

    parts: tuple[Part, ...]
    marks: tuple[str, ...]
    suffix: str = ""
    response: str | None = None


def are_tokens(value: object) -> TypeGuard[list[int]]:
    """Whether a value is a list of token ids."""
    if not isinstance(value, list) or set(map(type, value)) != {int}:
        return False
    return bool(min(value) >= 0 and max(value) < 1 << 32)


def is_token(value: object) -> bool:
    """Whether a value is the id of a token."""
    return type(value) is int and 0 <= value < 1 << 32


def token_part(path: str, ids: Sequence[int]) -> Part:
    """A prompt, or a run of one, that is told as tokens."""
    return Part(intern(path), "prompt", Kind.TOKENS, intern(spelled(ids)), -1, tuple(ids))


def read_plain(body: Body) -> list[Told]:
    """The prompts of a completion request, or of a line that holds just a text or tokens; empty where none are."""
    for name in _PROMPTS:
        if prompts := list(_prompts(name, body.get(name))):
            several = len(prompts) > 1
            return [_told(body, *one, f"[{i}]" if several else "") for i, one in enumerate(prompts)]
    if body.get("prompt_embeds"):
        out = Parts()
        out.role = "prompt"
        out.add("prompt_embeds", Kind.EMBEDS, hashed("embeds", body["prompt_embeds"], base64=True))
        return [Told(tuple(out.parts), ())]
    return []


def _prompts(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Each prompt that a value holds, and its place. Texts and ids mixed in one list are one prompt (llama.cpp)."""
    if isinstance(value, dict):
        name = next((one for one in _INNER if value.get(one)), None)
        if name:
            yield from _prompts(f"{path}.{name}", value[name])
    elif isinstance(value, str) or are_tokens(value):
        if value:
            yield path, value
    elif isinstance(value, list) and value:
        if any(isinstance(one, int) for one in value):
            if all(isinstance(one, str) or is_token(one) for one in value):
                yield path, value
        elif all(isinstance(one, (str, list, dict)) for one in value):
            for index, one in enumerate(value):
                yield from _prompts(f"{path}[{index}]", one)


def _told(body: Body, path: str, value: object, suffix: str) -> Told:
    out = Parts()
    preamble(out, {name: body[name] for name in ("system", "documents") if name in body})
    out.role = "prompt"
    if are_tokens(value):
        out.parts.append(token_part(path, value))
    elif isinstance(value, list):
        _tokens(out, path, value)
    elif isinstance(value, str):
        out.add(path, Kind.TEXT, value)
    if isinstance(after := body.get("suffix"), str):
        out.add("suffix", Kind.TEXT, after)
    images = body.get("images")
    for index, image in enumerate(images if isinstance(images, list) else ()):
        out.media(f"images[{index}]", Kind.IMAGE, "image", image)
    return Told(tuple(out.parts), tuple(out.marks), suffix)


def _tokens(out: Parts, path: str, value: Sequence[int | str]) -> None:
    """Each text, and each run of tokens between texts, as a part of its own."""
    start = 0
    for index in range(len(value) + 1):
        if index < len(value) and not isinstance(value[index], str):
            continue
        if ids := tuple(one for one in value[start:index] if isinstance(one, int)):
            out.parts.append(token_part(f"{path}[{start}]", ids))
        if index < len(value):
            out.add(f"{path}[{index}]", Kind.TEXT, str(value[index]))
        start = index + 1


def turns_of(body: Body) -> tuple[str, Sequence[Body]] | None:
    """The turns of a conversation in ShareGPT's form, and the name that they stand under."""
    for name in ("conversations", "conversation"):
        told = body.get(name)
        if isinstance(told, list) and told and all(isinstance(one, dict) for one in told):
            return name, told
    return None


def read_turns(body: Body, name: str, turns: Sequence[Body]) -> list[Told]:
    """A prompt for each turn that the model was to answer, with all turns before it."""
    out, prompts = Parts(), []
    preamble(out, body)
    for index, turn in enumerate(turns):
        role, field, value = _turn(turn)
        out.role, out.message = role, index
        kind = Kind.RESULT if role in _TOOL else Kind.CALL if role == "function_call" else Kind.TEXT
        out.content(f"{name}[{index}].{field}", value, kind)
        after = _turn(turns[index + 1]) if index + 1 < len(turns) else None
        answered = after is not None and after[0] in (*_MODEL, "function_call")
        if out.parts and (role in _HUMAN or (role in _TOOL and answered)):
            answer = after[2] if after and answered and isinstance(after[2], str) else None
            prompts.append(Told(tuple(out.parts), tuple(out.marks), f"/{index}", answer))
    return prompts


def _turn(turn: Mapping[str, Any]) -> tuple[str, str, object]:
    """Who speaks, the name of the field that holds what is said, and that."""
    role = turn.get("from") or turn.get("role")
    field = next((one for one in ("value", "content", "text") if turn.get(one) is not None), "value")
    return role if isinstance(role, str) else "", field, turn.get(field)
