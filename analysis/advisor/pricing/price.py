"""What rewrites would save in milliseconds: the server's own requests through its twin, with fewer tokens to compute.

A replay of prompts says how many tokens a rewrite saves of which request; how long these take, and who waits for them,
the scheduler twin knows, which was fitted to the same requests. So a saving shortens the queue of others as well, and
tokens that are computed while nobody waits save little. Nothing is promised from a hit rate.

The replay's cache evicts nothing. Where the real one served less than that, a rewrite is taken to save in proportion.

Error bars join, as in attribution/caused, which requests came (blocks of time, the same ones as sent and rewritten) and
what else the twin could have been fitted to (laws drawn by their covariance, on a stretch of the requests).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.advisor.pricing.gains import Change, Outcome
from analysis.attribution.caused.step_laws import of_one_time
from analysis.attribution.certainty.fall import fall
from analysis.attribution.model import Side
from analysis.interval import Interval
from analysis.quantiles import Floats
from analysis.twin.model import Fit, Law, Workload, part
from analysis.twin.simulate import replay_all
from analysis.twin.workload import workload

Q = 0.95
DRAWS, DRAWN_REQUESTS = 16, 4000  # laws, and requests in a row that they are drawn for
NOT_KNOWN = -1
"""In `Traffic.prompt`: the prompt of this request is not among those replayed."""


@dataclass(frozen=True)
class Traffic:
    """The requests of one server, all that a twin needs of them being known, and its twin. prompt: (n,) which of the
    replayed prompts each had, or NOT_KNOWN."""

    side: Side
    fit: Fit
    prompt: NDArray[np.int64]


@dataclass(frozen=True)
class Price:
    """Milliseconds of the time to first token that a rewrite saves, by the twin: of the Q quantile and of the mean,
    which are `p95_before` and `mean_before` without it."""

    p95: Interval
    mean: Interval
    p95_before: float
    mean_before: float

    @property
    def share(self) -> float:
        """Of the Q quantile."""
        return self.p95.value / self.p95_before if self.p95_before else 0.0


@dataclass(frozen=True)
class Prices:
    """Of the suggestions in their order, None where no rule can write it, and of all of them together. requests: how
    many the twins were given; servers: their names; refused: why there is no price, empty where there is one."""

    each: tuple[Price | None, ...] = ()
    together: Price | None = None
    requests: int = 0
    servers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""


def prices(
    servers: Sequence[Traffic], sent: Outcome, changes: Sequence[Change], rng: np.random.Generator
) -> list[Price]:
    """Of each change, for the requests of all servers together. sent: the replayed prompts as they were."""
    arrival = np.concatenate([one.side.arrival for one in servers])
    order = np.argsort(arrival, kind="stable")
    works = [workload(one.side, one.fit.hidden_wait, one.fit.quiet) for one in servers]
    laws = [one.fit.law for one in servers]
    times = [(before[order], after[order]) for before, after in _played(servers, works, laws, sent, changes)]
    of_fits = _of_fits(servers, works, sent, changes, rng)
    side = _of_times(servers[0].side, arrival[order])
    return [
        _price(side, before, after, of_fit, rng)
        for (before, after), of_fit in zip(times, of_fits, strict=True)
    ]


def given(traffic: Traffic, work: Workload, sent: Outcome, outcome: Outcome) -> Workload:
    """What a server is given where the replay of its prompts comes out as `outcome`, not as `sent`.

    Tokens are the server's: a prompt that a tokenizer tells in other numbers counts in proportion. What the replay
    saves counts as much as the real cache served of what the replay's did.
    """
    rows = np.flatnonzero(traffic.prompt != NOT_KNOWN)
    at = traffic.prompt[rows]
    scale = work.prompt[rows] / np.maximum(sent.prompt[at], 1)
    real = work.prompt[rows] - work.computed[rows]
    held = min(1.0, float(real.sum()) / max(1.0, float((sent.served[at] * scale).sum())))
    grown = (outcome.prompt[at] - sent.prompt[at]) * scale
    found = (outcome.served[at] - sent.served[at]) * scale * held
    prompt, computed = work.prompt.copy(), work.computed.copy()
    prompt[rows] = np.maximum(prompt[rows] + grown, 1.0)
    computed[rows] = np.clip(computed[rows] + grown - found, 1.0, prompt[rows])
    return replace(work, prompt=prompt, computed=computed)


def _played(
    servers: Sequence[Traffic],
    works: Sequence[Workload],
    laws: Sequence[Law],
    sent: Outcome,
    changes: Sequence[Change],
) -> list[tuple[Floats, Floats]]:
    """Times to first token (n,), of the servers one after the other, before and after each change."""
    outcomes = {id(one): one for change in changes for one in (change.before, change.after)}
    cases = (
        (given(traffic, work, sent, outcome), law, traffic.fit.limits)
        for outcome in outcomes.values()
        for traffic, work, law in zip(servers, works, laws, strict=True)
    )
    played = replay_all(cases, lambda replay: replay.ttft)
    at = {key: slice(n * len(servers), (n + 1) * len(servers)) for n, key in enumerate(outcomes)}
    return [
        (np.concatenate(played[at[id(change.before)]]), np.concatenate(played[at[id(change.after)]]))
        for change in changes
    ]


def _of_fits(
    servers: Sequence[Traffic],
    works: Sequence[Workload],
    sent: Outcome,
    changes: Sequence[Change],
    rng: np.random.Generator,
) -> list[tuple[float, float]]:
    """How far what each change saves, of the Q quantile and the mean, ms, is spread by what the twins are fitted to."""
    short, stretches = [], []
    for traffic, work in zip(servers, works, strict=True):
        n = traffic.side.n
        start = max(0, (n - DRAWN_REQUESTS // len(servers)) // 2)
        rows = slice(start, n - start)
        short.append(replace(traffic, prompt=traffic.prompt[rows]))
        stretches.append(part(work, rows))
    drawn = [of_one_time(traffic.fit).draw(rng, DRAWS) for traffic in servers]
    saved = np.array(
        [
            [
                (float(np.quantile(before, Q) - np.quantile(after, Q)), float((before - after).mean()))
                for before, after in _played(short, stretches, [one[draw][0] for one in drawn], sent, changes)
            ]
            for draw in range(DRAWS)
        ]
    ).reshape(DRAWS, len(changes), 2)
    return [(float(p95), float(mean)) for p95, mean in saved.std(axis=0, ddof=1)]


def _price(
    side: Side, before: Floats, after: Floats, of_fit: tuple[float, float], rng: np.random.Generator
) -> Price:
    sides = replace(side, totals=before), replace(side, totals=after)
    p95, p95_before = fall(*sides, Q, rng, of_fit[0])
    mean, mean_before = fall(*sides, None, rng, of_fit[1])
    return Price(p95, mean, p95_before, mean_before)


def _of_times(like: Side, arrival: Floats) -> Side:
    """A side that tells nothing but when its requests came: what blocks of time are cut by."""
    n = len(arrival)
    untold = np.full(n, np.nan)
    return replace(
        like,
        arrival=arrival,
        totals=untold,
        layers=(),
        times=np.zeros((0, n)),
        prompt=untold,
        completion=untold,
        sources=(),
        tokens=np.zeros((0, n)),
        template=np.full(n, -1),
        server=np.zeros(n, np.int64),
        beside={},
    )
