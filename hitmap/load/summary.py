"""What a load came to, as its client saw it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hitmap.load.client import Answer
from hitmap.load.plan import Schedule


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of `count` values, in seconds; between two values the line through them."""

    p50: float
    p95: float
    p99: float
    max: float
    count: int


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """None for no value."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return Quantiles(at(0.5), at(0.95), at(0.99), ordered[-1], len(ordered))


@dataclass(frozen=True, slots=True)
class Summary:
    """A load in figures; planned = sent + not_sent, sent = completed + failed.

    whole_plan: requests in all; planned: those that were due until an interruption. failed, not_sent: how many of each
    kind. errors: the first words of each kind of failure. ttft_s, e2e_s: from sending; *_from_due_s: from when the
    request was due, so that a late client or a full one cannot hide a slow server. time_per_output_token_s: between the
    first and last token, over the tokens after the first. lag_s: how late this client itself sent. cached_share: of the
    prompt tokens of responses that tell both counts. offered_per_s: as Schedule.per_s; until an interruption, what was
    due until then. achieved_per_s: completed, over the time that the offered rate is over or until the last answer,
    whichever is longer. None: nobody told, or there is nothing to divide by.
    """

    name: str
    whole_plan: int
    planned: int
    sent: int
    completed: int
    failed: dict[str, int]
    not_sent: dict[str, int]
    errors: dict[str, str]
    wall_s: float
    offered_per_s: float | None
    achieved_per_s: float | None
    ttft_s: Quantiles | None
    ttft_from_due_s: Quantiles | None
    e2e_s: Quantiles | None
    e2e_from_due_s: Quantiles | None
    time_per_output_token_s: Quantiles | None
    lag_s: Quantiles | None
    prompt_tokens: int | None
    cached_tokens: int | None
    cached_share: float | None
    completion_tokens: int | None
    interrupted: bool


@dataclass(slots=True)
class Tally:
    """Counts while a load runs; `summary` at its end. in_flight: requests sent and not yet answered."""

    planned: int = 0
    sent: int = 0
    in_flight: int = 0
    completed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    not_sent: Counter[str] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    _times: dict[str, list[float]] = field(default_factory=dict)
    _tokens: Counter[str] = field(default_factory=Counter)

    def answered(self, answer: Answer, due_ns: int) -> None:
        """A request that was sent has ended. Times of failed requests do not count: they would flatter."""
        self._time("lag_s", (answer.sent_ns - due_ns) / 1e9)
        if answer.failure:
            self.failed[answer.failure] += 1
            self.errors.setdefault(answer.failure, answer.error)
            return
        self.completed += 1
        self._time("e2e_s", (answer.done_ns - answer.sent_ns) / 1e9)
        self._time("e2e_from_due_s", (answer.done_ns - due_ns) / 1e9)
        if answer.first_ns is not None:
            self._time("ttft_s", (answer.first_ns - answer.sent_ns) / 1e9)
            self._time("ttft_from_due_s", (answer.first_ns - due_ns) / 1e9)
        self._usage(answer)

    def summary(self, name: str, schedule: Schedule, wall_s: float, interrupted: bool) -> Summary:
        """The figures so far, after `wall_s` seconds of a plan with this schedule."""
        tokens = self._tokens
        offered = Schedule(self.planned, wall_s, wall_s) if interrupted else schedule
        window_s = max(offered.window_s, wall_s)
        return Summary(
            name=name,
            whole_plan=schedule.requests,
            planned=self.planned,
            sent=self.sent,
            completed=self.completed,
            failed=dict(self.failed),
            not_sent=dict(self.not_sent),
            errors=dict(self.errors),
            wall_s=wall_s,
            offered_per_s=offered.per_s,
            achieved_per_s=self.completed / window_s if window_s else None,
            **{name: quantiles(self._times.get(name, ())) for name in _TIMES},
            prompt_tokens=tokens.get("prompt"),
            cached_tokens=tokens.get("cached"),
            cached_share=tokens["cached"] / tokens["told"] if tokens.get("told") else None,
            completion_tokens=tokens.get("completion"),
            interrupted=interrupted,
        )

    def _time(self, name: str, value_s: float) -> None:
        self._times.setdefault(name, []).append(value_s)

    def _usage(self, answer: Answer) -> None:
        usage = answer.said.get("usage")
        prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        cached = _count(details, "cached_tokens")
        told = prompt if cached is not None else None
        counts = {"prompt": prompt, "completion": completion, "cached": cached, "told": told}
        self._tokens.update({name: count for name, count in counts.items() if count is not None})
        if completion and completion > 1 and answer.first_ns and answer.last_ns:
            spent_s = (answer.last_ns - answer.first_ns) / 1e9
            self._time("time_per_output_token_s", spent_s / (completion - 1))


_MOST_TOKENS = 1 << 40  # more than anybody has; it is no count
_TIMES = ("ttft_s", "ttft_from_due_s", "e2e_s", "e2e_from_due_s", "time_per_output_token_s", "lag_s")


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if counts else None
