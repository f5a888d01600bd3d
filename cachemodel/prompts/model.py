"""A prompt as its sender wrote it: parts in the order in which a server renders them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """What a part is."""

    TEXT = "text"
    TOOL = "tool"  # a tool's definition
    CALL = "call"  # of a tool, by the model: its name and arguments
    RESULT = "result"  # of a call
    REASONING = "reasoning"
    IMAGE = "image"
    AUDIO = "audio"
    FILE = "file"
    EMBEDS = "embeds"  # given as embeddings: nothing that a prefix cache could name
    FORMAT = "format"  # what the response has to look like
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a prompt that stands in one place of its request.

    path: of that place in the body: `tools[0]`, `messages[2].content[1].text`, `messages[3].tool_calls[0].function`,
    `prompt`. role: of its message, as sent; `tools` for definitions, `prompt` for a text without messages. message: its
    index in the conversation, -1 for what stands outside of it. text: what it says; JSON values as compact text in the
    order of their keys; of images, audio and files kind and SHA-256 of what was sent. tokens: of kind TOKENS only.
    """

    path: str
    role: str
    kind: Kind
    text: str
    message: int = -1
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt. request_id: its own, or file and line where it has none. session, user: as the record names them,
    empty where it does not. time: Unix seconds when it was sent, None where nothing tells. isolation: salt and adapter
    that keep its blocks from others. reads_off: the option that keeps the cache from being read, empty for none. marks:
    paths at which the sender set cache breakpoints. prompt_tokens, cached_tokens: by the usage of its response.
    response: what was answered, where it is told; reply: the tokens that the model made of it, where these are. body:
    the request as sent, None where only its parts are known.
    """

    request_id: str
    parts: tuple[Part, ...]
    session: str = ""
    user: str = ""
    time: float | None = None
    server: str = ""
    model: str = ""
    isolation: str = ""
    reads_off: str = ""
    marks: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    response: str | None = None
    reply: tuple[int, ...] = field(default=(), repr=False)
    body: Mapping[str, Any] | None = field(default=None, repr=False)
