"""Sends requests of a log to a live server as they were and rewritten, in turn, and says what the rewriting gained.

Each request is sent once in either arm, one after the other, in an order that chance decides, so that whatever else the
server does meets both arms alike. The arms' caches are empty at first (arms.py) and filled by what is sent. One token
is asked for. What is predicted is the replay of just these requests through the rules of the cache.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import SystemRandom

import numpy as np

from analysis.advisor.rewriting.rules import Rule, apply
from analysis.prefix_replay.model import Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import BlockRule, ProviderRule, RadixRule
from analysis.prefix_replay.rules import Rule as CacheRule
from cachemodel.errors import UserError
from cachemodel.prompts.model import Prompt
from collector.canary.budget import Budget, Ledger, Spent, WallClock
from collector.canary.server import MARK, is_busy, is_refusal, read_models
from collector.canary.wire import Answer, Transport
from hitmap.advise.arms import Apart, Body, Wording, path_of, unusable
from hitmap.advise.measured import Floats, Gains, Pairs, gains
from hitmap.prompt_tokens import BodyTokens

ARMS = ("as sent", "rewritten")
TIMEOUT_S = 120.0
MOST_FAILURES, MOST_TRIES = 3, 4
FEWEST_PAIRS = 10
_UNLIMITED = 10**12
_MORE = 50  # requests to find out what the server is


@dataclass(frozen=True)
class Verified:
    """What came of it. pairs: requests that were answered in both arms; failed: those that were not. inside: whether
    the measured gain in tokens lies in the interval predicted; None where either is not known."""

    url: str
    model: str
    pairs: int
    failed: int
    apart: str
    inside: bool | None
    gains: Gains
    notes: list[str]


@dataclass(frozen=True)
class Bounds:
    """requests: of the log, each sent twice; rate: requests a second at most; seconds: of the whole run."""

    requests: int
    rate: float
    seconds: float


@dataclass(frozen=True)
class Asked:
    """A request of the log in both arms, as it is sent. salt: what kept its prompt from others in the log."""

    bodies: tuple[Body, Body]
    salt: str


def verify(
    transport: Transport,
    url: str,
    prompts: Sequence[Prompt],
    rules: Sequence[Rule],
    tokens: BodyTokens,
    cache: CacheRule,
    bounds: Bounds,
    *,
    in_place: Sequence[Rule] = (),
    model: str = "",
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Verified:
    """Send the last prompts that can be sent, in order of time. in_place: rules that the requests "as sent" go through.
    model: to ask for, empty for the server's first. Raises UserError where nothing can be told."""
    left_out = Counter(why for prompt in prompts if (why := unusable(prompt.body)))
    asked = [
        Asked((apply(in_place, prompt.body), apply(rules, prompt.body)), prompt.isolation)
        for prompt in prompts
        if prompt.body is not None and not unusable(prompt.body)
    ][-bounds.requests :]
    if len(asked) < FEWEST_PAIRS:
        why = "".join(f"; {count:,}: {reason}" for reason, count in left_out.items())
        raise UserError(f"{len(asked)} requests can be sent, {FEWEST_PAIRS} are needed{why}")
    most = _MORE + MOST_TRIES * 2 * len(asked)
    budget = Budget(requests=most, tokens=_UNLIMITED, seconds=bounds.seconds, rate=bounds.rate, price=None)
    run = _Run(transport, Ledger(budget, WallClock()), url, progress)
    try:
        run.introduce(model, sorted(asked, key=lambda one: len(str(one.bodies[0])))[len(asked) // 2])
        run.send(asked)
    except Spent as spent:
        run.notes.append(f"ended before all was sent: {spent}")
    return run.told(tokens, cache)


class _Run:
    """One run against one server."""

    def __init__(
        self, transport: Transport, ledger: Ledger, url: str, progress: Callable[[int, int], None]
    ) -> None:
        self.notes: list[str] = []
        self._transport, self._ledger, self._url, self._progress = transport, ledger, url, progress
        self._key, self._number = secrets.token_hex(6), 0
        self._random = SystemRandom()
        self._wording = Wording("")
        self._sent: list[tuple[Asked, tuple[Answer, Answer]]] = []

    def introduce(self, wanted: str, example: Asked) -> None:
        """Find out which model it serves, what it refuses, and what keeps arms apart: with one request, which is sent
        twice under one key, to be found, and then under another, not to be. Raises UserError, Spent."""
        answer = self._transport.send("/v1/models", None, {}, 10.0)
        self._wording.model = read_models(answer.status, answer.error, answer.body, wanted, self._url).model
        while True:
            first, again, apart = (self._probe(example, f"probe {key}") for key in ("a", "a", "b"))
            found = again.told.get("cached_tokens")
            leaked = max(one.told.get("cached_tokens", 0) for one in (first, apart))
            if found is None:
                self.notes.append(
                    "The server does not tell how many prompt tokens came from its cache, so only times are measured;"
                    " vLLM does with --enable-prompt-tokens-details, SGLang with --enable-cache-report."
                )
                self._wording.apart = (
                    Apart.MARK
                )  # which needs no trying out: no prefix of one is one of the other
                return
            if not found:
                self.notes.append("A prompt that was sent twice was not found again: the cache may be off.")
                return
            if leaked < found / 2:  # a few tokens of the template are everybody's
                return
            if self._wording.apart is Apart.MARK:
                raise UserError(
                    f"{self._url} finds prompts again whose first words differ: nothing keeps the two arms apart"
                )
            self._wording.apart = Apart.MARK

    def send(self, asked: Sequence[Asked]) -> None:
        """All of them in both arms. Raises Spent, and UserError where requests fail one after the other."""
        in_a_row = 0
        for number, one in enumerate(asked):
            answers: list[Answer] = [Answer(), Answer()]
            for arm in self._random.sample((0, 1), 2):
                answers[arm] = self._ask(one, arm, self._arm(arm))
            self._sent.append((one, (answers[0], answers[1])))
            in_a_row = in_a_row + 1 if any(map(_failed, answers)) else 0
            if in_a_row >= MOST_FAILURES:
                raise UserError(f"{in_a_row} requests in a row failed at {self._url}: {_why(answers)}")
            self._progress(number + 1, len(asked))

    def told(self, tokens: BodyTokens, cache: CacheRule) -> Verified:
        """What the pairs say. Raises UserError where there are too few."""
        good = np.array([not any(map(_failed, answers)) for _, answers in self._sent], dtype=bool)
        if good.sum() < FEWEST_PAIRS:
            raise UserError(
                f"{good.sum()} requests were answered in both arms, {FEWEST_PAIRS} are needed: "
                + (" ".join(self.notes) or "send more with --requests")
            )
        lengths, computed = self._predicted(tokens, cache)
        counted = self._column("prompt_tokens")
        exact = bool((counted == lengths)[good].all())
        if not exact:  # the replay's share of the tokens that the server counts
            computed = computed * np.where(np.isnan(counted), 1.0, counted / np.maximum(lengths, 1))
            self.notes.append(
                f"The prompts' tokens by {tokens.name} are not the server's: predictions are the replay's shares of the"
                " server's counts, and each may be off by a unit of the cache."
            )
        cached = self._column("cached_tokens")
        if not np.isnan(cached).all():
            cached = np.nan_to_num(cached)  # vLLM does not say that there are none where there are none
        measured = None if np.isnan(cached).all() or np.isnan(counted[good]).any() else counted - cached
        pairs = Pairs(
            computed=None if measured is None else measured[good],
            predicted=computed[good],
            ttft_ms=self._ttft_ms()[good],
        )
        found = gains(pairs, 0.0 if exact else float(_unit(cache)))
        return Verified(
            url=self._url,
            model=self._wording.model,
            pairs=int(good.sum()),
            failed=int((~good).sum()),
            apart=self._wording.apart.value,
            inside=found.tokens_predicted.holds(found.tokens.value) if found.tokens else None,
            gains=found,
            notes=self.notes,
        )

    def _probe(self, example: Asked, key: str) -> Answer:
        """An answer to the example. Raises UserError where there is none however it is asked for."""
        while True:
            answer = self._ask(example, 0, f"{self._key} {self._wording.apart} {key}")
            if not _failed(answer):
                return answer
            if not is_refusal(answer.status) or not self._wording.soften(answer.error):
                raise UserError(f"{self._url} does not answer a request of the log: {answer.error}")

    def _ask(self, one: Asked, arm: int, key: str) -> Answer:
        """Send it until the server is no longer busy. Raises Spent."""
        body = self._wording.body(one.bodies[arm], key, one.salt)
        answer = Answer()
        for attempt in range(MOST_TRIES):
            self._ledger.charge(0)
            self._number += 1
            headers = {"X-Request-Id": f"{MARK}-{self._key}-{self._number}", "X-Hitmap-Canary": "1"}
            timeout_s = min(TIMEOUT_S, self._ledger.left_s)
            answer = self._transport.send(path_of(body), body, headers, timeout_s)
            if not is_busy(answer.status):
                break
            self._ledger.wait(2.0**attempt if answer.retry_after_s is None else answer.retry_after_s)
        return answer

    def _arm(self, arm: int) -> str:
        """What keeps an arm of this run from all else."""
        return f"{self._key} {ARMS[arm]}"

    def _predicted(self, tokens: BodyTokens, cache: CacheRule) -> tuple[Floats, Floats]:
        """(n, 2) each, by arm: prompt tokens, and those of them that a cache under the rule would not serve."""
        lengths, computed = [], []
        numbers = {salt: number for number, salt in enumerate(sorted({one.salt for one, _ in self._sent}))}
        isolation = np.array([numbers[one.salt] for one, _ in self._sent], dtype=np.uint64)
        for arm in range(len(ARMS)):
            own = [
                tokens(self._wording.body(one.bodies[arm], self._arm(arm), one.salt)) for one, _ in self._sent
            ]
            offsets = np.concatenate([[0], np.cumsum([len(one) for one in own])]).astype(np.int64)
            served = replay(Requests(np.concatenate(own), offsets, isolation), cache).served
            lengths.append(np.diff(offsets))
            computed.append(np.diff(offsets) - served)
        return np.stack(lengths, axis=1).astype(float), np.stack(computed, axis=1).astype(float)

    def _column(self, name: str) -> Floats:
        """(n, 2) What answers tell of their tokens, NaN where they do not."""
        return np.array(
            [[answer.told.get(name, np.nan) for answer in answers] for _, answers in self._sent], dtype=float
        )

    def _ttft_ms(self) -> Floats:
        def ms(answer: Answer) -> float:
            return np.nan if answer.ttft_s is None else 1000 * answer.ttft_s

        return np.array([[ms(answer) for answer in answers] for _, answers in self._sent])


def _failed(answer: Answer) -> bool:
    return bool(answer.error) or answer.ttft_s is None


def _why(answers: Sequence[Answer]) -> str:
    return next((answer.error for answer in answers if answer.error), "no first token")


def _unit(cache: CacheRule) -> int:
    """Tokens that a cache keeps together."""
    if isinstance(cache, BlockRule):
        return cache.law.unit
    if isinstance(cache, RadixRule):
        return cache.page_size
    return cache.granularity if isinstance(cache, ProviderRule) else 1
