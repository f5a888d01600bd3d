"""Servers that keep prompts in blocks of words, and are odd in one thing or another."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.canary.wire import Answer
from collector.chains.prompt import Prompt
from collector.chains.tokens import Tokenized
from hitmap.prompt_tokens import BodyTokens

BLOCK = 4
MS, MS_A_WORD = 5.0, 0.25


def words(body: Mapping[str, Any]) -> list[int]:
    """One a word: of tools, then of messages with their roles, or of the text."""
    said = [json.dumps(tool) for tool in body.get("tools") or ()]
    for message in body.get("messages") or ():
        content = message["content"]
        texts = [content] if isinstance(content, str) else [block["text"] for block in content]
        said += [f"<{message['role']}>", *texts]
    said.append(body.get("prompt", ""))
    return [zlib.crc32(word.encode()) for text in said for word in text.split()]


class Words:
    """A tokenizer of the servers below."""

    told_by, exact, name = "words", True, "words"

    def tokens(self, prompt: Prompt, *, with_text: bool = False) -> Tokenized:
        """One a word."""
        return Tokenized(
            words({"messages": prompt.messages, "tools": prompt.tools, "prompt": prompt.text or ""})
        )


def word_tokens() -> BodyTokens:
    """As verification takes them."""
    return BodyTokens(Words())


@dataclass
class Server:
    """salts: `keep` prompts apart, are `refused`, or `ignored`. deaf: it finds all that it is sent, wherever. tells:
    cached tokens: `always`, `some` where there are some, as vLLM, or `never`. refuses: fields that it takes for errors.
    fails: requests, by number, to which it has no answer. busy: every how many requests it asks to come again."""

    salts: str = "keep"
    deaf: bool = False
    tells: str = "always"
    refuses: tuple[str, ...] = ()
    fails: frozenset[int] = frozenset()
    busy: int = 0
    number: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    held: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def send(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        fresh: bool = False,
    ) -> Answer:
        """An answer as a stream's."""
        if body is None:
            return Answer(status=200, body={"data": [{"id": "fake"}]})
        self.number += 1
        refused = [*self.refuses, *(["cache_salt"] if self.salts == "refused" else [])]
        if found := next((name for name in refused if name in body), ""):
            hint = "; use max_completion_tokens" if found == "max_tokens" else ""
            return Answer(status=400, error=f"HTTP 400: {found} is not known{hint}")
        if self.busy and self.number % self.busy == 0:
            return Answer(status=429, error="HTTP 429: busy", retry_after_s=0.0)
        if self.number in self.fails:
            return Answer(status=500, error="HTTP 500: out of cheese")
        self.bodies.append(dict(body))
        return self._served(body)

    def _served(self, body: Mapping[str, Any]) -> Answer:
        tokens = words(body)
        salt = str(body.get("cache_salt", "")) if self.salts == "keep" else ""
        blocks = [(salt, tuple(tokens[:end])) for end in range(BLOCK, len(tokens) + 1, BLOCK)]
        usable = blocks[: (len(tokens) - 1) // BLOCK]  # one token is computed
        found = next((at for at, block in enumerate(usable) if block not in self.held), len(usable))
        cached = BLOCK * (len(usable) if self.deaf and self.held else found)
        self.held |= set(blocks)
        told = {"prompt_tokens": len(tokens)}
        if self.tells == "always" or (self.tells == "some" and cached):
            told["cached_tokens"] = cached
        seconds = (MS + MS_A_WORD * (len(tokens) - cached)) / 1000
        return Answer(status=200, streamed=True, ttft_s=seconds, told=told, pieces=1)
