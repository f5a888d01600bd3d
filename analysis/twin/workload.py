"""A side as the twin sees it: what it was given, and what really came of it."""

from __future__ import annotations

import numpy as np

from analysis.attribution.model import NOT_TOLD, Side
from analysis.quantiles import Floats
from analysis.twin.model import NoTwin, Replay, Told, Workload
from cachemodel.layers import TokenSource

FEWEST = 100
"""Requests of a side: with fewer, the five numbers of a law are a guess."""
MOST_UNKNOWN = 0.05
"""Share of a side's requests whose times or tokens may be unknown: they loaded the server all the same."""
MOST_UNSEEN = 0.1
"""And the same of requests that only the server's counters know of."""
_NEEDED = ("queue", "prefill", "decode")
_BEFORE = ("frontend", "response", "prefix")
_PROMPT_BINS, _QUIET = 8, 0.05


def known(side: Side, told: Told | None = None) -> Side:
    """The side's requests of which all is known that a twin needs; it needs every serving layer, so that a side by
    time to first token has the others beside.

    Raises NoTwin where so much is missing that a replay would serve another load than there was.
    """
    names = {int(server) for server in np.unique(side.server) if server != NOT_TOLD}
    if len(names) > 1:
        raise NoTwin(f"{side.name} has {len(names)} servers, a twin is of one: ask for one with server=NAME")
    if side.sampled > 1:
        raise NoTwin(f"{side.name} was thinned to one request in {side.sampled}: ask for a shorter window")
    missing = [name for name in _NEEDED if not np.isfinite(side.time(name)).any()]
    if missing:
        raise NoTwin(
            f"the requests of {side.name} have no {' and '.join(missing)} time: it takes the server's spans"
        )
    complete = np.isfinite(_computed(side)) & np.isfinite(side.completion) & (side.completion >= 1)
    for name in _NEEDED:
        complete &= np.isfinite(side.time(name))
    if not np.isfinite(_computed(side)).any():
        raise NoTwin(f"how many prompt tokens of {side.name} were cached is told for no request")
    if complete.mean() < 1 - MOST_UNKNOWN:
        raise NoTwin(
            f"{1 - complete.mean():.0%} of the requests of {side.name} lack times or tokens, and loaded the server too"
        )
    if complete.sum() < FEWEST:
        raise NoTwin(f"{side.name} has {int(complete.sum())} requests, a twin takes {FEWEST}")
    if told and told.requests and side.n < (1 - MOST_UNSEEN) * told.requests:
        raise NoTwin(
            f"{side.name} has {side.n:,} requests, and the server's counters say {told.requests:,}: a replay would"
            " lack the load of the others"
        )
    return side if complete.all() else side.subset(complete)


def observed(side: Side) -> Replay:
    """What really came of a side's requests, as a replay tells it. preemptions: NaN, a side does not tell them."""
    layers = {name: _time(side, name) for name in ("queue", "host", "remote", "prefill", "decode")}
    before = np.sum([_time(side, name) for name in _BEFORE], axis=0)
    ttft = before + layers["queue"] + layers["host"] + layers["remote"] + layers["prefill"]
    told_ttft = side.time("ttft")
    ttft = np.where(np.isfinite(told_ttft), told_ttft, ttft)
    e2e = before + sum(layers.values()) + _time(side, "other")
    return Replay(before=before, ttft=ttft, e2e=e2e, preemptions=np.full(side.n, np.nan), **layers)


def workload(side: Side, hidden_wait: bool = False, quiet: tuple[float, float] = (0.0, 0.0)) -> Workload:
    """What a side's server was given. hidden_wait, quiet: as in Fit."""
    before = observed(side).before
    if hidden_wait:
        before = np.minimum(before, quiet[0] + quiet[1] * side.prompt)
    return Workload(
        arrival=side.arrival,
        prompt=side.prompt,
        completion=side.completion,
        host=_tokens(side, TokenSource.HOST),
        remote=_tokens(side, TokenSource.REMOTE),
        computed=np.maximum(_computed(side), 1.0),
        before=before,
        after=_time(side, "other"),
        hidden_wait=hidden_wait,
    )


def quiet_before(side: Side) -> tuple[float, float]:
    """What comes before the queue where nobody is in the way: a line (ms, ms a prompt token) through the low end of
    it for prompts of one size."""
    before = observed(side).before
    edges = np.unique(np.quantile(side.prompt, np.linspace(0, 1, _PROMPT_BINS + 1)))
    bins = np.searchsorted(edges[1:-1], side.prompt, side="right")
    used = [b for b in np.unique(bins) if (bins == b).sum() >= _PROMPT_BINS]
    if len(used) < 2:
        return float(np.quantile(before, _QUIET)), 0.0
    size = np.array([side.prompt[bins == b].mean() for b in used])
    low = np.array([np.quantile(before[bins == b], _QUIET) for b in used])
    slope = max(0.0, float(np.polyfit(size, low, 1)[0]))
    return max(0.0, float(np.median(low - slope * size))), slope


def _computed(side: Side) -> Floats:
    """Prompt tokens that no tier served."""
    served = [_tokens(side, source) for source in TokenSource if source is not TokenSource.COMPUTED]
    return np.asarray(side.prompt - np.sum(served, axis=0))


def _tokens(side: Side, source: str) -> Floats:
    return side.tokens[side.sources.index(source)] if source in side.sources else np.zeros(side.n)


def _time(side: Side, name: str) -> Floats:
    """A layer that nothing tells of took no time that could be told from its neighbours'."""
    return np.nan_to_num(side.time(name), nan=0.0)
