"""What a run may cost, and the books that keep it: each request is charged with the most it can cost before it is sent.

What was sent stays charged whether it was answered or refused, so that no failure of a server can make a run dearer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, Protocol

_SHORTEST_S = 0.01  # what no request can be answered in


class Clock(Protocol):
    """Seconds that never go back, and waiting."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The machine's."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Budget:
    """requests: of any kind, questions that generate nothing included. tokens: of prompts and completions. seconds: of
    the whole run. rate: requests a second at most. price: of a million tokens, None where nobody asks."""

    requests: int = 200
    tokens: int = 200_000
    seconds: float = 300.0
    rate: float = 5.0
    price: float | None = None


Part = Literal["requests", "tokens", "seconds"]


class Spent(Exception):
    """The next step would exceed the budget. The message says so in words for people; part: what of it is too small."""

    def __init__(self, part: Part, message: str) -> None:
        super().__init__(message)
        self.part: Part = part


class Ledger:
    """The books of one run; its time begins when they are opened. Not thread-safe."""

    def __init__(self, budget: Budget, clock: Clock) -> None:
        self.budget, self.clock = budget, clock
        self.requests = self.tokens = 0
        self._began = clock.now()
        self._next_at = self._began

    @property
    def elapsed_s(self) -> float:
        return self.clock.now() - self._began

    @property
    def left_s(self) -> float:
        return self.budget.seconds - self.elapsed_s

    @property
    def cost(self) -> float | None:
        """In the currency of the price; None without one."""
        return None if self.budget.price is None else self.tokens * self.budget.price / 1e6

    def charge(self, tokens: int) -> None:
        """Enter a request of at most `tokens` tokens, once the rate lets it go. Raises Spent and enters nothing."""
        budget = self.budget
        if self.requests + 1 > budget.requests:
            raise Spent("requests", f"the budget of {budget.requests:,} requests is spent")
        if self.tokens + tokens > budget.tokens:
            raise Spent("tokens", f"the budget of {budget.tokens:,} tokens has no room for {tokens:,} more")
        self.wait(self._next_at - self.clock.now())
        if self.left_s < _SHORTEST_S:
            raise Spent("seconds", f"the budget of {budget.seconds:g} seconds is spent")
        self.requests += 1
        self.tokens += tokens
        self._next_at = self.clock.now() + 1 / budget.rate

    def settle(self, charged: int, actual: int) -> None:
        """A request turned out to have had `actual` tokens."""
        self.tokens += actual - charged

    def wait(self, seconds: float) -> None:
        """Let time pass. Raises Spent, without waiting, where there is not so much of it."""
        if seconds <= 0:
            return
        if seconds >= self.left_s:
            raise Spent(
                "seconds",
                f"the budget of {self.budget.seconds:g} seconds has no room to wait {seconds:.3g} s more",
            )
        self.clock.sleep(seconds)
