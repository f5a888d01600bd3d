"""No run exceeds its budget, whatever the server does."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemodel.errors import UserError
from collector.canary import MEASURES, Budget, Options, rehearse, run
from collector.canary.budget import Ledger, Spent
from collector.canary.wire import Answer
from tests.collector.canary.fakes import FakeClock, FakeServer

budgets = st.builds(
    Budget,
    requests=st.integers(1, 200),
    tokens=st.integers(1, 60_000),
    seconds=st.floats(0.5, 300),
    rate=st.floats(0.5, 100),
)


class Moody:
    """A Transport that fails in every way there is, and counts what it was sent as a bill would."""

    def __init__(self, seed: int, trouble: float, clock: FakeClock, *, ids: bool, usage: bool) -> None:
        self.random, self.trouble, self.clock = Random(seed), trouble, clock
        self.ids, self.usage = ids, usage
        self.requests = self.tokens = 0
        self.times: list[float] = []

    def send(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        fresh: bool = False,
    ) -> Answer:
        self.requests += 1
        self.times.append(self.clock.now())
        assert timeout_s > 0
        if body is not None and path != "/tokenize":
            content = body["messages"][0]["content"] if "messages" in body else body["prompt"]
            # the dearest tokenizer there can be has a token for each byte
            count = len(content) if isinstance(content, list) else len(content.encode())
            self.tokens += count + 1
        took_s = min(timeout_s, self.random.expovariate(2))
        if self.random.random() < self.trouble:
            kind = self.random.randrange(6)
            if kind == 0:
                self.clock.sleep(timeout_s)
                return Answer(error="no whole answer in time")
            self.clock.sleep(took_s)
            status = [None, 429, 503, 500, 400][kind - 1]
            wait = self.random.choice([None, 0.0, 1.5, 1e6]) if status in (429, 503) else None
            return Answer(status, error="trouble with max_completion_tokens", retry_after_s=wait)
        self.clock.sleep(took_s)
        if path == "/v1/models":
            return Answer(200, took_s, body={"data": [{"id": "m"}]})
        if path == "/tokenize":
            return Answer(200, took_s, body={"tokens": list(range(300)) if self.ids else []})
        told = {"prompt_tokens": count, "cached_tokens": self.random.randrange(count)} if self.usage else {}
        return Answer(200, took_s, True, told)


@settings(max_examples=150)
@given(budgets, st.integers(0, 2**32), st.floats(0, 0.7), st.booleans(), st.booleans())
def test_no_budget_is_exceeded(budget: Budget, seed: int, trouble: float, ids: bool, usage: bool) -> None:
    clock = FakeClock()
    server = Moody(seed, trouble, clock, ids=ids, usage=usage)
    options = Options(longest=512, waits_s=(1.0, 20.0), repeats=5)
    try:
        report = run(server, "moody", list(MEASURES), options, budget, clock=clock)
    except UserError:
        report = None
    assert server.requests <= budget.requests
    assert server.tokens <= budget.tokens
    assert clock.now() <= budget.seconds * (1 + 1e-9)
    gaps = [later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)]
    assert all(gap >= 1 / budget.rate - 1e-6 for gap in gaps)
    if report:
        assert report.requests == server.requests
        assert report.tokens >= server.tokens
        assert sum(course.requests for course in report.courses) == report.requests


def test_every_limit_stops_before_and_says_which() -> None:
    clock = FakeClock()
    books = Ledger(Budget(requests=2, tokens=100, seconds=10, rate=1), clock)
    books.charge(60)
    with pytest.raises(Spent, match="budget of 100 tokens has no room for 41 more") as spent:
        books.charge(41)
    assert spent.value.part == "tokens"
    books.charge(40)
    assert clock.now() == 1.0, "the second waited for the rate"
    with pytest.raises(Spent, match="2 requests") as spent:
        books.charge(0)
    assert spent.value.part == "requests"
    with pytest.raises(Spent, match="10 seconds has no room to wait 9 s") as spent:
        books.wait(9)
    assert spent.value.part == "seconds"
    assert (books.requests, books.tokens, clock.now()) == (2, 100, 1.0)


def test_what_a_text_really_had_is_what_it_costs() -> None:
    books = Ledger(Budget(tokens=1000, price=2.5), FakeClock())
    books.charge(900)
    books.settle(900, 300)
    books.charge(700)
    assert books.tokens == 1000
    assert books.cost == pytest.approx(0.0025)


class Chatty(FakeServer):
    """Ignores max_tokens: answers of `answer` tokens."""

    answer = 500

    def _generate(self, body: Mapping[str, Any]) -> Answer:
        told = super()._generate(body)
        return replace(told, told={**told.told, "completion_tokens": self.answer})


def test_answers_longer_than_asked_for_are_charged_and_end_the_run() -> None:
    server = Chatty()
    budget = Budget(requests=1000, tokens=5_000, seconds=1e5, rate=1000, price=1e6)
    report = run(server, "chatty", ["prefill"], Options(longest=64), budget, clock=server.clock)
    spent = sum(len(body["prompt"]) + Chatty.answer for body, _ in server.generated)
    assert report.tokens == report.cost == spent <= budget.tokens
    assert len(server.generated) < 10
    assert "the budget of 5,000 tokens has no room for 5" in report.courses[-1].stopped
    (note,) = report.notes
    assert note.startswith(f"the server ignores max_tokens: of {len(server.generated)} requests")
    assert "the longest answer had 500" in note


def test_one_answer_can_cost_more_than_the_budget_and_no_second_does() -> None:
    server = Chatty()
    server.answer = 10**6
    budget = Budget(requests=1000, tokens=5_000, seconds=1e5, rate=1000)
    report = run(server, "chatty", ["prefill"], Options(longest=64), budget, clock=server.clock)
    assert len(server.generated) == 1
    assert report.tokens == 10**6 + 8


def test_a_rehearsal_of_huge_prompts_builds_none() -> None:
    tracemalloc.start()
    options = Options(longest=1 << 20)
    report = rehearse(list(MEASURES), options, Budget(10**4, 10**9, 1e6, 1000.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.tokens > 9 * 10**8
    assert peak < 8 << 20, "a prompt's token ids alone would be as much"
