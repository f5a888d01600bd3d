"""Tokens by the server itself, asked over HTTP: slowly, one question at a time, and marked as hitmap's own.

vLLM and those who follow it take messages at POST /tokenize and answer with the tokens of the rendered prompt.
llama.cpp renders at POST /apply-template and tokenises at POST /tokenize. Neither computes or caches anything.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from collector.chains.prompt import Prompt
from collector.chains.text import TEXT_TYPES
from collector.chains.tokens import CACHE_BYTES, Lru, Tokenized, Unanswered, Untokenizable
from collector.fetch import FetchError, Response, get

TIMEOUT_S = 3.0
SHORTEST_PAUSE_S = 0.02  # between questions; at least as long as the last one took
MARK = {"X-Request-Id": "hitmap-tokenize", "X-Hitmap": "tokenize"}
REFUSED, NO_TOKENS = "not tokenised by the server", "an answer without tokens"
NOT_TEXT = "more than text in it"
_BUSY = (429, 500, 502, 503, 504)
_MODELS_S = 60.0  # before models are asked for again
_PROBE = [{"role": "user", "content": "hitmap"}]
_OPTIONS = (
    *("add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template"),
    "chat_template_kwargs",
)


class ServerTokenizer:
    """Asks the server at `url`. llama_cpp: which of the two ways it has. pause: waits between questions, seconds."""

    told_by = "server"
    exact = True
    name = "the server"

    def __init__(self, url: str, token: str, *, llama_cpp: bool) -> None:
        self._url, self._token, self._llama_cpp = url, token, llama_cpp
        self.pause: Callable[[float], object] = time.sleep
        self._told: Lru[bytes, list[int]] = Lru(CACHE_BYTES, lambda _, ids: 200 + 40 * len(ids))
        self._pause_s = 0.0
        self.asked = 0

    def answers(self) -> bool:
        """Whether the server tokenises messages for others. Raises Unanswered where it cannot be asked now."""
        try:
            return bool(self._ask_chat({"messages": _PROBE}))
        except Untokenizable:
            return False

    def tokens(self, prompt: Prompt, *, with_text: bool = False) -> Tokenized:
        if not all(map(_is_text, prompt.messages or ())):
            raise Untokenizable(NOT_TEXT)  # a server could go and fetch what an address stands for
        question = self._question(prompt)
        key = hashlib.blake2b(json.dumps(question).encode(), digest_size=16).digest()
        ids = self._told.get(key, lambda: self._ask(question))
        return Tokenized(ids[-prompt.truncated_to :])

    def _question(self, prompt: Prompt) -> dict[str, Any]:
        more = {name: prompt.options[name] for name in _OPTIONS if name in prompt.options}
        if prompt.model and not self._llama_cpp:
            more["model"] = prompt.model
        if prompt.messages is None:
            return {"prompt": prompt.text or ""} | more
        return {"messages": prompt.messages} | ({"tools": prompt.tools} if prompt.tools else {}) | more

    def _ask(self, question: dict[str, Any]) -> list[int]:
        if not self._llama_cpp:
            return self._ask_chat(question)
        return self._ask_chat(question) if "messages" in question else self._content(question["prompt"])

    def _ask_chat(self, question: Mapping[str, Any]) -> list[int]:
        if not self._llama_cpp:
            return _ids(self._post("/tokenize", question))
        prompt = self._post("/apply-template", question).get("prompt")
        if not isinstance(prompt, str):
            raise Untokenizable(NO_TOKENS)
        return self._content(prompt)

    def _content(self, text: str) -> list[int]:
        return _ids(self._post("/tokenize", {"content": text, "add_special": True, "parse_special": True}))

    def _post(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        self.pause(self._pause_s)
        began = time.monotonic()
        self.asked += 1
        try:
            answer = get(
                self._url + path,
                timeout_s=TIMEOUT_S,
                token=self._token,
                method="POST",
                body=json.dumps(question, ensure_ascii=False).encode(errors="replace"),
                headers=MARK,
            )
        except FetchError as error:
            raise Unanswered(f"{self._url}{path}: {error}", refused=False) from error
        finally:  # never more than half of what one of its threads can do
            self._pause_s = max(SHORTEST_PAUSE_S, time.monotonic() - began)
        return _object(answer, self._url + path)


class Adapters:
    """The models of a server that are adapters of another one of it: /v1/models names their `parent`."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._known: frozenset[str] = frozenset()
        self._bases: frozenset[str] = frozenset()
        self._ask_after = 0.0

    def adapter(self, model: str) -> str:
        """The model's name where it is an adapter, else nothing; also where that cannot be told now."""
        unknown = model not in self._known and model not in self._bases
        if model and unknown and time.monotonic() >= self._ask_after:
            self._ask_after = time.monotonic() + _MODELS_S
            self._ask()
        return model if model in self._known else ""

    def _ask(self) -> None:
        try:
            answer = get(f"{self._url}/v1/models", timeout_s=TIMEOUT_S, token=self._token, headers=MARK)
            models = _object(answer, self._url).get("data")
        except (FetchError, Untokenizable, Unanswered):
            return
        told = [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []
        names = {str(one.get("id", "")): bool(one.get("parent")) for one in told}
        self._known = frozenset(name for name, is_adapter in names.items() if is_adapter)
        self._bases = frozenset(names) - self._known


def _is_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return all(
        isinstance(part, str) or (isinstance(part, dict) and part.get("type") in TEXT_TYPES) for part in parts
    )


def _object(answer: Response, address: str) -> dict[str, Any]:
    """The object that a server answered with. Raises Untokenizable for a refusal, Unanswered for trouble of its own."""
    if answer.status in _BUSY:
        raise Unanswered(f"{address} answers {answer.status}", refused=True)
    if answer.status != 200 or not answer.whole:
        raise Untokenizable(REFUSED)
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise Untokenizable(NO_TOKENS) from None
    if not isinstance(value, dict):
        raise Untokenizable(NO_TOKENS)
    return value


def _ids(answer: Mapping[str, Any]) -> list[int]:
    ids = answer.get("tokens")
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token < 1 << 32 for token in ids):
        raise Untokenizable(NO_TOKENS)
    return ids
