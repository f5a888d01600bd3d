"""The front door of attribution: two sets of requests in, all that is said of the change between them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.caused.told import told
from analysis.attribution.certainty.gate import LOWEST_GATE, Own, judge, level_of
from analysis.attribution.certainty.history import Past, deploys, past_of
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.intervals import Drawn, drawn_for
from analysis.attribution.certainty.onset import onsets
from analysis.attribution.certainty.placebo import placebo
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.compose import composition
from analysis.attribution.linear import linear
from analysis.attribution.model import (
    Attribution,
    Fidelity,
    Finding,
    Placebo,
    Refused,
    Resampling,
    Side,
    Split,
    View,
)
from analysis.attribution.reader import alike, read_side
from analysis.attribution.shows.split import shows
from analysis.attribution.words import headline
from analysis.numbers import quantile_name
from analysis.quantiles import Floats
from analysis.report.metrics import Metric
from analysis.selection import Selection

ROUNDS = 200
Progress = Callable[[str], None]
Blame = Callable[[], tuple[Split | Refused, list[Fidelity], Mapping[str, Own]]]
Look = Callable[[Sequence[View]], list[Finding]]


@dataclass(frozen=True)
class Asked:
    """What is asked of two sides. metric: its name, what: in words. q: a quantile, None for the mean. progress: told
    what is being done."""

    metric: str
    what: str
    q: float | None
    seed: int = 0
    rounds: int = ROUNDS
    progress: Progress = lambda _: None


@dataclass(frozen=True)
class Pair:
    """Two sides and the resamples of them that all of a comparison shares."""

    a: Side
    b: Side
    drawn: Resampling

    @classmethod
    def of(cls, a: Side, b: Side, asked: Asked) -> Pair:
        """With resamples drawn by the seed."""
        return cls(a, b, resampling(a, b, np.random.default_rng(asked.seed), asked.rounds))

    def drawn_for(self, arrivals: tuple[Floats, Floats]) -> Drawn:
        """The same resamples for requests that arrived then, seconds (n,)."""
        return drawn_for(self.drawn, (self.a, self.b), arrivals)


def read_pair(client: Client, a: Selection, b: Selection, metric: Metric, asked: Asked) -> Pair:
    """Both sides from the store; raises UserError where one is empty or does not tell the metric."""
    asked.progress("reading requests, their prompts and what the caches held")
    return Pair.of(*alike(read_side(client, a, metric), read_side(client, b, metric)), asked)


def attribute(
    client: Client, pair: Pair, selection: Selection, metric: Metric, asked: Asked, *, past: bool = True
) -> Attribution:
    """What moved the q-quantile (None: the mean) of a metric from A to B; raises UserError.

    selection: of A. past: whether windows in which nothing was deployed are compared, too, which costs seconds.
    """
    from analysis.attribution.caused.split import caused  # numba: only where there is something to replay
    from analysis.diagnosis import diagnose

    a, b = pair.a, pair.b
    limits = told(client, a), told(client, b)
    before = Past(deploys(client, a, b))
    if past:
        asked.progress("reading requests of the past")
        before = past_of(client, selection, a, b, metric, before.deploys)

    def blame() -> tuple[Split | Refused, list[Fidelity], Mapping[str, Own]]:
        return caused(a, b, asked.q, metric, limits, pair.drawn, rng=np.random.default_rng(asked.seed))

    def look(views: Sequence[View]) -> list[Finding]:
        asked.progress("looking for what it looks like")
        return diagnose(client, a, b, pair.drawn, views)

    return explain(pair, asked, blame, before, look)


def explain(pair: Pair, asked: Asked, blame: Blame, past: Past, look: Look = lambda _: []) -> Attribution:
    """The same of two sides, whatever they were read from. blame: splits the change over its causes, and tells how well
    it knows the servers and what changed there; look: what "what caused it" and "where it shows" look like."""
    a, b, drawn, q, tell = pair.a, pair.b, pair.drawn, asked.q, asked.progress
    rng = np.random.default_rng([asked.seed, 1])
    null = _null(past, a, drawn, asked, rng)
    own, level = own_changes(a, b, drawn), level_of(q, a, b)
    tell("taking the change apart")
    described = [judge(split(a, b, q, drawn), own, drawn) for split in (composition, linear)]
    shown = judge(shows(a, b, q, drawn), own, drawn, null, level)
    tell("replaying the requests through what the servers do")
    split, fidelity, of_servers = blame()
    caused = judge(split, {**own, **of_servers}, drawn, null, level)
    since = onsets(a, b, past.deploys, rng)
    what = f"{quantile_name(q, 'mean')} {asked.what}"
    ends = ((level_of(q, a), a.n), (level_of(q, b), b.n))
    return Attribution(
        headline=headline(what, ends, caused, shown, null, since),
        metric=asked.metric,
        q=q,
        composition=described[0],
        linear=described[1],
        shows=shown,
        caused=caused,
        placebo=null,
        fidelity=fidelity,
        onsets=since,
        findings=look((caused, shown)),
        paired=drawn.paired,
        seed=asked.seed,
        notes=[f"{side.name}: {note}" for side in (a, b) for note in side.notes],
    )


def _null(past: Past, a: Side, drawn: Resampling, asked: Asked, rng: np.random.Generator) -> Placebo:
    """How often "where it shows" names somebody in windows in which nothing happened."""
    length = a.end - a.begin
    if past.history is None or drawn.paired:
        why = "two arms of one time have no windows of the past" if drawn.paired else past.why
        return Placebo(0, 0, None, None, None, LOWEST_GATE, length, why)
    asked.progress("comparing windows in which nothing was deployed")

    def split(before: Side, after: Side, resampled: Resampling) -> Split | Refused:
        return shows(before, after, asked.q, resampled)

    return placebo(past.history, length, split, rng, spans=past.spans, rounds=asked.rounds)
