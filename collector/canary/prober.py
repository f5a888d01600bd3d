"""Sends the requests of a run: marked, within the budget, again where a server is busy, and remembers how they went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Any

from cachemodel.errors import UserError
from cachemodel.printable import printable
from collector.canary.budget import Ledger, Spent
from collector.canary.prompts import CHAT_ALLOWANCE, FEWEST_IDS, TEXT_ALLOWANCE, Prompt, Writer
from collector.canary.server import (
    CHAT,
    MARK,
    Dialect,
    Models,
    is_busy,
    is_refusal,
    read_models,
)
from collector.canary.wire import Answer, Transport
from collector.canary.words import WORDS

TIMEOUT_S = 60.0
_ASK_TIMEOUT_S = 10.0
_MOST_TRIES = 5
_MOST_FAILURES = 3
_BACKOFF_S = 1.0
_MARGIN = 16  # tokens of the context left alone: the answer, and special tokens


class GaveUp(Exception):
    """Requests fail one after the other. The message says why, in the server's words."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One answered request.

    tokens: of the prompt, as the server counts them where it tells, else as it was written. cached: of them, from any
    tier; device, host, remote: by tier. None for what it does not tell. ttft_s: seconds to the first token.
    """

    tokens: int
    cached: int | None
    device: int | None
    host: int | None
    remote: int | None
    ttft_s: float


class Prober:
    """One run against one server. progress: called after every request.

    Raises UserError where nothing can be measured at all, Spent before what the budget does not allow, and GaveUp.
    """

    def __init__(
        self,
        transport: Transport,
        ledger: Ledger,
        url: str,
        run: str,
        progress: Callable[[], None] = lambda: None,
        random: Random | None = None,
    ) -> None:
        self.ledger, self.url, self.run = ledger, url, run
        self.dialect = Dialect()
        self.writer = Writer()
        self.failures: list[str] = []
        self.streamed = True
        self.longest: int | None = None
        self.added = 0  # tokens that the server puts around a text, as far as it tells
        self.answers, self.over = (
            1,
            0,
        )  # tokens of the longest answer, and how many had more than the one asked for
        self.disbelieved: list[str] = []  # counts that cannot be true
        self._random = random or SystemRandom()
        self._transport, self._progress = transport, progress
        self._number = self._in_a_row = 0

    def introduce(self, wanted: str = "") -> None:
        """Find out what the server is and how it wants to be asked. wanted: the model, empty for its first."""
        answer = self._call("/v1/models", None, 0, _ASK_TIMEOUT_S)
        models = read_models(answer.status, answer.error, answer.body, wanted, self.url)
        self._suit(models)
        ids = self._vocabulary()
        self.dialect.ids = len(ids) >= FEWEST_IDS
        while True:
            self._make_writer(ids)
            prompt = self.writer.write(8)
            answer = self._generate(prompt, "introduction")
            if not answer.error:
                break
            if answer.status in (401, 403):
                raise UserError(f"{self.url} wants a key: give --api-key or set HITMAP_API_KEY")
            if not is_refusal(answer.status) or not self.dialect.soften(answer.status, answer.error):
                model = printable(self.dialect.model, lines=False)
                raise UserError(f"{self.url} answers no request of {model}: {answer.error}")
        self.streamed = answer.streamed
        if not prompt.exact:
            self.added = max(0, self._tokens(prompt, answer) - prompt.tokens)

    def ask(self, prompt: Prompt, *, salt: str = "own", fresh: bool = False) -> Sample | None:
        """Send a prompt for one token; None where it failed, which is remembered.

        salt: isolates it from prompts of other salts where the server does that.
        """
        answer = self._generate(prompt, salt, fresh=fresh)
        if answer.error or answer.ttft_s is None:
            self._failed(answer)
            return None
        self._in_a_row = 0
        told = answer.told
        tokens, cached = self._tokens(prompt, answer), told.get("cached_tokens")
        if cached is not None and cached > tokens:
            self.disbelieved.append(f"{cached:,} cached tokens of a prompt of {tokens:,}")
            return Sample(tokens, None, None, None, None, answer.ttft_s)
        return Sample(
            tokens,
            cached,
            told.get("device_tokens"),
            told.get("host_tokens"),
            told.get("remote_tokens"),
            answer.ttft_s,
        )

    def write(self, tokens: int) -> Prompt:
        """A prompt that nobody sent before, of so many tokens with what the server adds to it."""
        return self.writer.write(max(1, tokens - self.added))

    def shuffled(self, lengths: Sequence[int], most: int | None = None) -> list[int]:
        """The lengths in random order; most: of them only so many."""
        return self._random.sample(lengths, len(lengths) if most is None else min(most, len(lengths)))

    def room(self, tokens: int) -> int:
        """So many tokens, or as many as the server's context has room for."""
        return tokens if self.longest is None else max(1, min(tokens, self.longest - _MARGIN))

    def _suit(self, models: Models) -> None:
        self.dialect.model, self.longest = models.model, models.longest
        if "sglang" in models.maker.lower():
            self.dialect.extras["return_cached_tokens_details"] = True
            self.dialect.own_id = "rid"

    def _vocabulary(self) -> list[int]:
        """Ordinary tokens of its model; none where it does not tokenize for us. In vLLM's words, then llama.cpp's."""
        text = " ".join(WORDS)
        model = self.dialect.model
        for body in ({"model": model, "prompt": text, "add_special_tokens": False}, {"content": text}):
            answer = self._call("/tokenize", body, 0, _ASK_TIMEOUT_S)
            tokens = answer.body.get("tokens")
            if isinstance(tokens, list) and all(type(token) is int for token in tokens):
                return sorted(set(tokens))
        return []

    def _make_writer(self, ids: list[int]) -> None:
        if self.dialect.ids:
            self.writer = Writer(ids, random=self._random)
        else:
            allowance = CHAT_ALLOWANCE if self.dialect.path == CHAT else TEXT_ALLOWANCE
            self.writer = Writer((), allowance, self._random)

    def _generate(self, prompt: Prompt, salt: str, *, fresh: bool = False) -> Answer:
        """Send it until the server is no longer busy. An answer that says how many tokens it had settles the charge."""
        for attempt in range(_MOST_TRIES):
            request_id = f"{MARK}-{self.run}-{self._number}"
            body = self.dialect.body(prompt.content, request_id, f"{MARK}-{self.run}-{salt}")
            charged = prompt.most + self.answers
            answer = self._call(self.dialect.path, body, charged, TIMEOUT_S, fresh=fresh)
            self._settle(prompt, answer, charged)
            if not is_busy(answer.status) or attempt == _MOST_TRIES - 1:
                break
            asked_s = answer.retry_after_s
            self.ledger.wait(_BACKOFF_S * 2**attempt if asked_s is None else asked_s)
        return answer

    def _settle(self, prompt: Prompt, answer: Answer, charged: int) -> None:
        """Charge what the answer says that it took. One longer than asked for raises what the next ones are charged."""
        completion = max(answer.told.get("completion_tokens", answer.pieces), answer.pieces)
        if completion > 1:
            self.over += 1
        self.answers = max(self.answers, completion)
        count = answer.told.get("prompt_tokens")
        if count is None and not completion:
            return  # it may have cost all that was charged
        sent = prompt.most if count is None else min(max(count, prompt.least), prompt.most)
        self.ledger.settle(charged, sent + max(completion, 1))

    def _tokens(self, prompt: Prompt, answer: Answer) -> int:
        """Of a prompt: the server's count, unless no tokenizer could come to it."""
        count = answer.told.get("prompt_tokens", prompt.tokens)
        most = prompt.most + (TEXT_ALLOWANCE if prompt.exact else 0)
        if prompt.least <= count <= most:
            return count
        between = f"{prompt.least:,} to {most:,}"
        self.disbelieved.append(f"{count:,} prompt tokens, where the prompt sent can have {between}")
        return prompt.tokens

    def _call(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        tokens: int,
        timeout_s: float,
        *,
        fresh: bool = False,
    ) -> Answer:
        self.ledger.charge(tokens)
        headers = {"X-Request-Id": f"{MARK}-{self.run}-{self._number}", "X-Hitmap-Canary": "1"}
        self._number += 1
        timeout_s = min(timeout_s, self.ledger.left_s)
        answer = self._transport.send(path, body, headers, timeout_s, fresh=fresh)
        self._progress()
        return answer

    def _failed(self, answer: Answer) -> None:
        self.failures.append(answer.error or "no first token")
        self._in_a_row += 1
        if self.ledger.left_s <= 0:
            raise Spent("seconds", f"the budget of {self.ledger.budget.seconds:g} seconds is spent")
        if self._in_a_row >= _MOST_FAILURES:
            raise GaveUp(f"{self._in_a_row} requests in a row failed: {self.failures[-1]}")
