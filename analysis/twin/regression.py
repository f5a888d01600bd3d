"""A first law, by regression: how long each request's prefill and decode took against what the server did meanwhile.

What it did between two moments is a difference of running totals: a request's tokens are spread evenly over the
interval in which they were computed, which is exact over whole requests and nearly so over parts of them. So every
interval is a sum, step * passes + prefill * prompt tokens + ..., of unknowns that are the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.quantiles import Floats
from analysis.twin.model import Law, Replay, Workload

_SHORTEST_MS = 1e-3
_FEWEST_PASSES = 4  # of a decode: with fewer, its ends are most of it
_ROUNDS, _HUBER = 10, 1.5
_SWEEPS = 2000
_LEAST = 0.003  # of all time: what a number is given that seems to be nothing
_FEWEST_LOADS = 20


@dataclass(frozen=True)
class During:
    """What the server did during the decode (or prefill) of each of n requests: prompt tokens computed, these times the
    thousands of tokens before them, tokens generated, thousands of tokens that these attended to."""

    tokens: Floats
    attended: Floats
    generated: Floats
    context: Floats


@dataclass(frozen=True)
class Intervals:
    """ms since the first arrival (n,): a request's prompt is computed from `begun` to `first`, its answer generated
    from there to `end`."""

    begun: Floats
    first: Floats
    end: Floats

    @classmethod
    def of(cls, work: Workload, real: Replay) -> Intervals:
        arrived = (work.arrival - work.arrival.min()) * 1e3
        begun = arrived + real.before + real.queue + real.host + real.remote
        return cls(begun, begun + real.prefill, begun + real.prefill + real.decode)

    def running(self, at: Floats) -> Floats:
        """How many requests run at each moment (m,)."""
        begun, end = np.sort(self.begun), np.sort(self.end)
        return (np.searchsorted(begun, at, "right") - np.searchsorted(end, at, "right")).astype(np.float64)


def during(work: Workload, spans: Intervals, begin: Floats, end: Floats) -> During:
    """What the server did between two moments each (m,)."""
    found = work.prompt - work.computed
    attended = work.computed * (found + work.computed / 2) / 1e3
    steps = work.completion - 1
    context = steps * (work.prompt + work.completion / 2) / 1e3
    prompts = [_between(spans.begun, spans.first, amount, begin, end) for amount in (work.computed, attended)]
    answers = [_between(spans.first, spans.end, amount, begin, end) for amount in (steps, context)]
    return During(prompts[0], prompts[1], answers[0], answers[1])


def first_law(work: Workload, real: Replay, batched_tokens: int) -> Law:
    """The law by robust regression with no number below 0."""
    spans = Intervals.of(work, real)
    steps = work.completion - 1
    design, taken = [], []
    answer = during(work, spans, spans.first, spans.end)
    long = steps >= _FEWEST_PASSES
    design.append(np.stack([steps, *_columns(answer)], axis=1)[long])
    taken.append(real.decode[long])
    prompt = during(work, spans, spans.begun, spans.first)
    room = np.maximum(batched_tokens - np.minimum(spans.running(spans.begun), batched_tokens / 2), 1)
    passes = np.maximum(np.ceil(work.computed / room), np.round(prompt.tokens / room))
    design.append(np.stack([passes, *_columns(prompt)], axis=1))
    taken.append(real.prefill)
    rows, target = np.concatenate(design), np.concatenate(taken)
    amounts = rows.sum(axis=0)
    least = np.divide(_LEAST * target.sum(), amounts, out=np.zeros_like(amounts), where=amounts > 0)
    values = np.maximum(robust(rows, target), least)
    host = _loads(work.host, real.host, float(values[0]))
    remote = _loads(work.remote, real.remote, float(values[0]))
    return Law(*np.concatenate([values, host, remote]).tolist())


def robust(design: Floats, taken: Floats) -> Floats:
    """Non-negative least squares (p,) on rows (m, p) whose error grows as the square root of what they take; rows far
    off count less (Huber 1964, by reweighting)."""
    scale = np.sqrt(np.maximum(taken, np.quantile(taken, 0.05) + _SHORTEST_MS))
    rows, target = design / scale[:, None], taken / scale
    weights = np.ones(len(target))
    values = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        values = _non_negative(rows * weights[:, None], target * weights)
        error = np.abs(target - rows @ values)
        spread = 1.4826 * np.median(error) + 1e-12
        weights = np.sqrt(np.minimum(1.0, _HUBER * spread / np.maximum(error, 1e-12)))
    return values


def _non_negative(rows: Floats, target: Floats) -> Floats:
    """Least squares with no value below 0, by coordinate descent on the normal equations of few unknowns."""
    size = np.sqrt((rows**2).sum(axis=0))
    size[size == 0] = 1.0
    gram, moment = (rows / size).T @ (rows / size), (rows / size).T @ target
    values = np.zeros(len(moment))
    for _ in range(_SWEEPS):
        before = values.copy()
        for i in range(len(values)):
            if gram[i, i] > 0:
                values[i] = max(0.0, values[i] + (moment[i] - gram[i] @ values) / gram[i, i])
        if np.abs(values - before).max() <= 1e-10 * np.abs(values).max(initial=1e-300):
            break
    return np.asarray(values / size)


def _columns(what: During) -> tuple[Floats, ...]:
    return what.tokens, what.attended, what.generated, what.context


def _loads(tokens: Floats, taken: Floats, step: float) -> tuple[float, float]:
    """ms a token, and a load; behind a pass that takes `step` at least."""
    loaded = tokens > 0
    if loaded.sum() < _FEWEST_LOADS:
        return 0.0, 0.0
    per_token, fixed = robust(np.stack([tokens[loaded], np.ones(int(loaded.sum()))], axis=1), taken[loaded])
    least = _LEAST * taken[loaded].mean()
    return max(float(per_token), least / tokens[loaded].mean()), max(float(fixed) - step, least)


def _between(begun: Floats, ended: Floats, amount: Floats, begin: Floats, end: Floats) -> Floats:
    """Of amounts (n,), each spread evenly over its interval, what lies between two moments each (m,)."""
    ended = np.maximum(ended, begun + _SHORTEST_MS)
    rate = amount / (ended - begun)
    knots = np.concatenate([begun, ended])
    order = np.argsort(knots, kind="stable")
    knots = knots[order]
    slope = np.cumsum(np.concatenate([rate, -rate])[order])
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(knots))])
    return np.asarray(np.interp(end, knots, total) - np.interp(begin, knots, total))
