"""The rows of what is kept of prompts as text, by level of capture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from cachemodel.content import ContentHasher
from collector.chains.prompt import Prompt
from collector.chains.redact import redacted
from collector.chains.settings import Capture
from collector.chains.text import content_text
from collector.chains.tokens import Lru, Tokenized
from collector.sink import Entry

STORED_SEGMENTS = 100_000  # whose ids are remembered, some 15 MB
TOOLS, TEXT = "tools", "prompt"
MAX_ROLE = 40  # characters


class Segment(NamedTuple):
    """A part of a prompt that others may have too. text: as it may be stored; told: as it stands in the prompt, to be
    found there."""

    role: str
    text: str
    told: str


class Texts:
    """Makes the rows of `prompts` and `segments` at one level of capture, each segment once."""

    def __init__(self, capture: Capture, hasher: ContentHasher) -> None:
        self.capture = capture
        self._hasher = hasher
        self._stored: Lru[int, None] = Lru(STORED_SEGMENTS, lambda _, __: 1)

    def entries(self, prompt: Prompt, tokenized: Tokenized | None) -> tuple[list[Entry], list[int]]:
        """The rows, new segments first, and those segments, for `stored` once they are; nothing at level hashes."""
        if self.capture is Capture.HASHES:
            return [], []
        found = list(_segments(prompt, self.capture))
        found, ends = _in_order(found, tokenized)
        ids = [self._hasher.text(f"segment\n{one.role}\n{one.text}") for one in found]
        new = {number: one for number, one in zip(ids, found, strict=True) if number not in self._stored}
        entries = [
            _entry("segments", {"segment": number, "role": one.role, "text": one.text})
            for number, one in new.items()
        ]
        row = {
            "time": prompt.time,
            "server": prompt.server,
            "request_id": prompt.request_id,
            "capture": self.capture.value,
            "segments": ids,
            "ends": ends,
        }
        return ([*entries, _entry("prompts", row)] if ids else []), list(new)

    def stored(self, segments: Sequence[int]) -> None:
        """These segments are in the sink and need not be put there again."""
        for segment in segments:
            self._stored.put(segment, None)


def _entry(kind: str, row: dict[str, Any]) -> Entry:
    return Entry(kind, msgspec.json.encode(row) + b"\n", 1)


def _segments(prompt: Prompt, capture: Capture) -> Iterator[Segment]:
    """Tools, then messages; or the text of a prompt without them."""
    if prompt.tools:
        text = json.dumps(prompt.tools, ensure_ascii=False)
        yield Segment(TOOLS, _allowed(text, capture), json.dumps(prompt.tools[-1], ensure_ascii=False))
    for message in prompt.messages or ():
        if text := content_text(message):
            role = str(message.get("role") or "")[:MAX_ROLE]
            told = content if isinstance(content := message.get("content"), str) else text
            yield Segment(role, _allowed(text, capture), told)
    if prompt.text:
        yield Segment(TEXT, _allowed(prompt.text, capture), prompt.text)


def _allowed(text: str, capture: Capture) -> str:
    text = text.encode(errors="replace").decode()  # half a surrogate pair is no text that could be stored
    return redacted(text) if capture is Capture.REDACTED else text


def _in_order(found: list[Segment], tokenized: Tokenized | None) -> tuple[list[Segment], list[int]]:
    """The segments as they stand in the rendered prompt, and the token before which each ends.

    Where the rendered text is not known, or does not hold each of them in turn, nothing is said of ends.
    """
    if tokenized is None or not tokenized.ends:
        return found, []
    text = tokenized.text
    if found and found[0].role == TOOLS:  # templates put them before, into or after the system message
        at = text.find(found[0].told)
        ahead = [one for one in found[1:] if 0 <= text.find(one.told.strip()) < at]
        found = [*ahead, found[0], *(one for one in found[1:] if one not in ahead)]
    stops, begin = [], 0
    for one in found:
        told = one.told.strip()  # some templates strip what they take in
        at = text.find(told, begin)
        if at < 0:
            return found, []
        begin = at + len(told)
        stops.append(begin)
    return found, _tokens_at(stops, tokenized.ends)


def _tokens_at(stops: Sequence[int], ends: Sequence[int]) -> list[int]:
    """How many tokens it takes to cover the text up to each stop."""
    told, token = [], 0
    for stop in stops:
        while token < len(ends) and ends[token] < stop:
            token += 1
        told.append(min(token + 1, len(ends)))
    return told
