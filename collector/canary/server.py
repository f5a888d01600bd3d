"""What the server under measurement is and takes, found out by asking: its model, its tokens, the fields it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachemodel.errors import UserError
from cachemodel.printable import printable
from collector.request_log import CANARY_MARK

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = MARK = CANARY_MARK
"""Stands in the id of every request of a canary; rows that have it are no traffic."""

_STATUS_OF_NO_PATH = (404, 405, 501)
_OTHERWISE = (401, 403, 408, 425, 429)  # a key is wanted, or the same may do later


@dataclass(slots=True)
class Dialect:
    """How requests are worded for this server; `soften` takes back what it refuses.

    limit: the name of the field that bounds the answer. ids: prompts go as token ids. salt: `cache_salt` is sent.
    extras: fields that tell more, or mark the request. own_id: the request's id is also sent as this field.
    """

    model: str = ""
    path: str = COMPLETIONS
    limit: str = "max_tokens"
    stream: bool = True
    stream_options: bool = True
    ids: bool = True
    salt: bool = True
    extras: dict[str, Any] = field(default_factory=lambda: {"user": USER})
    own_id: str = ""
    dropped: list[str] = field(default_factory=list)

    def body(self, content: list[int] | str, request_id: str, salt: str) -> dict[str, Any]:
        """A request for one token."""
        body: dict[str, Any] = {"model": self.model, self.limit: 1, **self.extras}
        if self.path == CHAT:
            body["messages"] = [{"role": "user", "content": content}]
        else:
            body["prompt"] = content
        if self.stream:
            body["stream"] = True
            if self.stream_options:
                body["stream_options"] = {"include_usage": True}
        if self.salt and salt:
            body["cache_salt"] = salt
        if self.own_id:
            body[self.own_id] = request_id
        return body

    def soften(self, status: int | None, error: str) -> bool:
        """After a refusal: word the next request so that it asks for less. False where nothing is left to take back."""
        if self.path == COMPLETIONS and (status in _STATUS_OF_NO_PATH or "chat" in error.lower()):
            self.path, self.ids = CHAT, False
            return self._drop(COMPLETIONS)
        if "max_completion_tokens" in error and self.limit == "max_tokens":
            self.limit = "max_completion_tokens"
            return True
        optional = ["stream_options", "cache_salt", *self.extras, *([self.own_id] if self.own_id else [])]
        named = [name for name in optional if name in error]
        for name in (*named, "cache_salt", *list(self.extras), self.own_id, "stream_options"):
            if name and self._without(name):
                return self._drop(name)
        if self.ids:
            self.ids = False
            return self._drop("prompts of token ids")
        if self.path == COMPLETIONS:
            self.path = CHAT
            return self._drop(COMPLETIONS)
        if self.stream:
            self.stream = False
            return self._drop("stream")
        return False

    def _without(self, name: str) -> bool:
        """Leave a field out; False where it is not sent anyway."""
        if name == "stream_options" and self.stream_options and self.stream:
            self.stream_options = False
        elif name == "cache_salt" and self.salt:
            self.salt = False
        elif name == self.own_id:
            self.own_id = ""
        elif name in self.extras:
            del self.extras[name]
        else:
            return False
        return True

    def _drop(self, what: str) -> bool:
        self.dropped.append(what)
        return True


def is_refusal(status: int | None) -> bool:
    """Whether a server says that the request itself is wrong, so that another wording may do."""
    return status == 501 or (status is not None and 400 <= status < 500 and status not in _OTHERWISE)


def is_busy(status: int | None) -> bool:
    """Whether the same request may do later."""
    return status in (429, 503)


@dataclass(frozen=True, slots=True)
class Models:
    """What /v1/models says. longest: tokens of a prompt and its answer, None where it does not tell. maker: who made
    the server, where its models say so (`owned_by`)."""

    model: str
    longest: int | None
    maker: str


def read_models(status: int | None, error: str, body: Mapping[str, Any], wanted: str, url: str) -> Models:
    """The model to ask for. Raises UserError where the server has none, or not the wanted one, or wants a key.

    A server without a list of models is taken at the caller's word.
    """
    if status in (401, 403):
        raise UserError(f"{url} wants a key: give --api-key or set HITMAP_API_KEY")
    if status is None:
        raise UserError(f"no LLM server answers at {url}: {error.removeprefix('no answer: ')}")
    entries = body.get("data")
    entries = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    named = {entry["id"]: entry for entry in entries if isinstance(entry.get("id"), str)}
    if not named:
        if wanted:
            return Models(wanted, None, "")
        raise UserError(f"{url}/v1/models names no model (HTTP {status}): say which with --model")
    if wanted and wanted not in named:
        known = printable(", ".join(list(named)[:8]), lines=False)
        raise UserError(f"{url} serves no model {wanted!r}; it serves {known}")
    entry = named[wanted or next(iter(named))]
    longest = entry.get("max_model_len")
    if longest is None and isinstance(meta := entry.get("meta"), dict):
        longest = meta.get("n_ctx") or meta.get("n_ctx_train")  # llama.cpp's words
    usable = isinstance(longest, int) and not isinstance(longest, bool) and longest > 0
    return Models(entry["id"], longest if usable else None, str(entry.get("owned_by") or ""))
