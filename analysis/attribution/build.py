"""The front door of attribution: two sets of requests in, all that is said of the change between them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.caused.told import told
from analysis.attribution.certainty.gate import LOWEST_GATE, Own, judge
from analysis.attribution.certainty.history import Past, deploys, past_of
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.onset import onsets
from analysis.attribution.certainty.placebo import placebo
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.compose import composition
from analysis.attribution.linear import linear
from analysis.attribution.model import Attribution, Fidelity, Placebo, Refused, Resampling, Side, Split
from analysis.attribution.reader import alike, read_side
from analysis.attribution.shows.split import shows
from analysis.attribution.words import headline
from analysis.numbers import quantile_name
from analysis.quantiles import hd_quantile
from analysis.report.metrics import Metric
from analysis.selection import Selection

ROUNDS = 200
Progress = Callable[[str], None]
Blame = Callable[[Resampling], tuple[Split | Refused, list[Fidelity], Mapping[str, Own]]]


@dataclass(frozen=True)
class Asked:
    """What is asked of two sides. metric: its name, what: in words. q: a quantile, None for the mean."""

    metric: str
    what: str
    q: float | None
    seed: int = 0
    rounds: int = ROUNDS
    progress: Progress = lambda _: None


def attribute(
    client: Client,
    a: Selection,
    b: Selection,
    metric: Metric,
    q: float | None,
    *,
    seed: int = 0,
    rounds: int = ROUNDS,
    past: bool = True,
    progress: Progress = lambda _: None,
) -> Attribution:
    """What moved the q-quantile (None: the mean) of a metric from A to B; raises UserError.

    past: whether windows in which nothing was deployed are compared, too, which costs seconds. progress: told what is
    being done.
    """
    from analysis.attribution.caused.split import caused  # numba: only where there is something to replay
    from analysis.diagnosis import diagnose

    asked = Asked(metric.name, metric.meaning, q, seed, rounds, progress)
    progress("reading requests, their prompts and what the caches held")
    left, right = alike(read_side(client, a, metric), read_side(client, b, metric))
    limits = told(client, left), told(client, right)
    marked = deploys(client, left, right)
    before = Past(marked)
    if past:
        progress("reading requests of the past")
        before = past_of(client, a, left, right, metric, marked)

    def blame(drawn: Resampling) -> tuple[Split | Refused, list[Fidelity], Mapping[str, Own]]:
        return caused(left, right, q, metric, limits, drawn, rng=np.random.default_rng(seed))

    found = explain(left, right, asked, blame, before)
    progress("looking for what it looks like")
    return replace(found, findings=diagnose(client, left, right, (found.caused, found.shows)))


def explain(a: Side, b: Side, asked: Asked, blame: Blame, past: Past) -> Attribution:
    """The same of two sides, whatever they were read from. blame: splits the change over its causes, and tells how well
    it knows the servers and what changed there."""
    q, tell, rng = asked.q, asked.progress, np.random.default_rng(asked.seed)
    drawn = resampling(a, b, rng, asked.rounds)
    null = _null(past, a, drawn, asked, rng)
    own = own_changes(a, b, drawn)
    tell("taking the change apart")
    described = [judge(split(a, b, q, drawn), own, drawn) for split in (composition, linear)]
    shown = judge(shows(a, b, q, drawn), own, drawn, null)
    tell("replaying the requests through what the servers do")
    split, fidelity, of_servers = blame(drawn)
    caused = judge(split, {**own, **of_servers}, drawn, null)
    since = onsets(a, b, past.deploys, rng)
    what = f"{quantile_name(q, 'mean')} {asked.what}"
    ends = (_end(a, q), _end(b, q))
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
        findings=[],
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


def _end(side: Side, q: float | None) -> tuple[float, int]:
    value = float(side.totals.mean()) if q is None else hd_quantile(side.totals, q)
    return value, side.n
