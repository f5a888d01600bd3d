"""Requests of a log for a live server, in two arms whose prompts cannot find each other's, or anybody's, in its cache.

Arms are kept apart by `cache_salt` where the server takes it, and otherwise by a mark: a few letters that are the same
for all requests of an arm and stand before all else that its prompts say, so that they break nothing within the arm.
Which of them keeps prompts apart is not believed but tried out (`verify`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Body = Mapping[str, Any]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_RENDERED = (
    *("messages", "tools", "tool_choice", "prompt", "documents", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens", "reasoning_effort"),
)
"""What a prompt is made of; other options of a request cost time or are refused, and change nothing of it."""


class Apart(StrEnum):
    """How arms are kept apart."""

    SALT = "cache_salt"
    MARK = "a mark before the prompt"


@dataclass
class Wording:
    """How requests are put to a server; `soften` takes back what it refuses. model: as the server calls it."""

    model: str
    apart: Apart = Apart.SALT
    limit: str = "max_tokens"
    more: dict[str, Any] = field(
        default_factory=lambda: {"temperature": 0, "stream_options": {"include_usage": True}}
    )

    def body(self, asked: Body, arm: str, own_salt: str) -> dict[str, Any]:
        """A request for one token. own_salt: what kept the prompt from others in the log."""
        told = {name: asked[name] for name in _RENDERED if asked.get(name) not in (None, [], {})}
        if not told.get("tools"):
            told.pop("tool_choice", None)
        key = hashlib.sha256(f"{arm}\0{own_salt}".encode(errors="replace")).digest()
        if self.apart is Apart.SALT:
            told["cache_salt"] = key.hex()[:32]
        else:
            told = marked(told, _mark(key))
        return {"model": self.model, self.limit: 1, "stream": True, **self.more, **told}

    def soften(self, error: str) -> bool:
        """After a refusal: ask for less. False where nothing is left to take back."""
        if "max_completion_tokens" in error and self.limit == "max_tokens":
            self.limit = "max_completion_tokens"
        elif named := [name for name in self.more if name in error]:
            del self.more[named[0]]
        elif self.apart is Apart.SALT:
            self.apart = Apart.MARK
        else:
            return False
        return True


def unusable(body: Body | None) -> str:
    """Why a request cannot be sent to an OpenAI-compatible server; empty where it can."""
    if body is None:
        return "the log has no request that could be sent again"
    if isinstance(messages := body.get("messages"), list) and messages:
        return "requests of Anthropic's API are not sent to others" if "system" in body else ""
    if isinstance(body.get("prompt"), str) and body["prompt"]:
        return ""
    return "neither messages nor a text as prompt"


def path_of(body: Body) -> str:
    """Where it is sent."""
    return CHAT if "messages" in body else COMPLETIONS


def marked(body: Body, mark: str) -> dict[str, Any]:
    """The request with a mark before its first text, and before the description of each tool: templates render tools
    in front of messages or behind the first of them."""
    told = dict(body)
    if isinstance(text := told.get("prompt"), str):
        told["prompt"] = f"{mark}\n{text}"
    if isinstance(messages := told.get("messages"), list) and messages:
        first = messages[0]
        content = first.get("content")
        own = (
            [{"type": "text", "text": mark}, *content]
            if isinstance(content, list)
            else f"{mark}\n{content or ''}"
        )
        told["messages"] = [{**first, "content": own}, *messages[1:]]
    if isinstance(tools := told.get("tools"), list):
        told["tools"] = [_marked_tool(tool, mark) for tool in tools]
    return told


def _mark(key: bytes) -> str:
    """Letters by themselves, of which each is a token nearly everywhere: marks of one length in tokens, too."""
    return " ".join(chr(ord("a") + byte % 26) for byte in key[:12])


def _marked_tool(tool: Any, mark: str) -> Any:
    inner = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(inner, dict):
        return tool
    described = f"{mark} {inner.get('description') or ''}".strip()
    return {**tool, "function": {**inner, "description": described}}
