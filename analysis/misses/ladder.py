"""The ladder of ideal caches, climbed for many requests at once.

Each rung is a cache that can do all that the one before can and one thing more (cachemodel/causes.py); the tokens that
it newly serves are its cause's.

    actual      what the server says it served; where it says nothing, what its cache held when the prompt was looked up
                (positions.py), as far as the server's alignment lets it through
    unaligned   all that the cache held, with the part of a block that an earlier prompt shares behind it
                (one of another server or under another salt, if the chains show that: unknown)
    not_loaded  what that cache held by its events though less was served; what an earlier request was still computing;
                what had been sent to this server and was never stored, all its events being known
    elsewhere   the same over all caches
    isolated    the same under any salt, adapter or image
    evicted     all that was ever sent or stored before
    changed     pieces of the rest that were sent before, anywhere in a prompt
    cold        the rest

Where events are missing a block is only *maybe* served. What a rung serves counts all that it may, so that the rungs
above are not blamed for it; the part that it does not serve for sure is unknown.

What a request generated is known by events alone. Where these may be missing, what follows an earlier prompt that was
running then is unknown rather than never sent.

Less served than was held at the alignment's price: what the alignment would have cost anyway is `unaligned`, the rest
was not loaded. More served than the events tell (a tier that tells none): that much was held.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.misses.changed import moved_tokens
from analysis.misses.evictions import evicted_tokens
from analysis.misses.flights import Flights
from analysis.misses.history import History
from analysis.misses.model import NOT_TOLD, Chains, Events, Flags, Ints, Ladder, Sent
from analysis.misses.numbering import number
from analysis.misses.positions import Groups, find, grouped
from analysis.misses.residency import Look, Residency, with_silent
from analysis.misses.runs import Beyond, Runs, beyond, maybe_generated, own_look
from analysis.misses.shared import from_afar, split_tokens
from analysis.misses.survey import Survey
from analysis.misses.told import Laws, alignments_of, keep_used, settle
from cachemodel.alignment import Alignment
from cachemodel.causes import LADDER

RUNGS = 1 + len(LADDER)
_ACTUAL, _UNALIGNED, _NOT_LOADED, _ELSEWHERE, _ISOLATED, _EVICTED, _CHANGED, _COLD = range(RUNGS)


def climb(
    chains: Chains,
    events: Events,
    blocks_sent: Sent,
    pieces_sent: Sent,
    alignments: Mapping[str, Alignment],
) -> Ladder:
    """Take n requests up the ladder.

    events: at least those of the chains' contents. blocks_sent, pieces_sent: what was sent before the chains, too.
    alignments: by server; one that is missing reuses whole blocks.
    """
    whole, laws = alignments_of(chains, alignments)
    events, server = with_silent(chains, events)
    numbers = number(chains, events, blocks_sent)
    residency = Residency(events, numbers.event, numbers.root)
    groups = grouped(chains, numbers, server)
    history = History(chains, numbers, blocks_sent, residency, groups)
    positions = find(chains, numbers, residency, server, groups)
    runs = Runs(chains, numbers, residency, history, positions)
    survey = Survey(chains, numbers, residency, history, positions, server)

    held = runs.held(np.arange(chains.n), positions.place, positions.own)
    keep_used(runs, held)
    settle(runs, laws, held)
    those = beyond(runs, held)
    look = own_look(runs, those)
    steps = _Steps(chains, laws, split_tokens(runs, those), from_afar(runs, those))
    shown = _actual(steps, those, look, held)
    surely = look.held | (those.depth < shown[those.row])
    there = _climb_caches(steps, runs, survey, groups, those, look, surely)

    before = steps.top(_ISOLATED)
    steps.reach(_EVICTED, those.ends, those.ends)
    gone = steps.top(_EVICTED).copy()
    steps.afar[:] = False
    steps.reach(_EVICTED, those.ends, those.ends)
    split = steps.top(_EVICTED) - gone
    evicted = evicted_tokens(runs, survey, those, there, before, gone)
    steps.serve(_EVICTED, np.maximum(steps.top(_EVICTED), steps.tokens(maybe_generated(runs, those))))
    shared = np.where(chains.known & (steps.top(_EVICTED) == gone + split), split, 0)
    steps.unknown[:, _EVICTED] = steps.top(_EVICTED) - before - evicted.sum(axis=1)
    moved = moved_tokens(chains, pieces_sent, steps.top(_EVICTED))
    steps.serve(_CHANGED, steps.top(_EVICTED) + moved)
    steps.serve(_COLD, chains.prompt)
    steps.forget()
    return Ladder(steps.served, steps.unknown, evicted, shared, chains.cached == NOT_TOLD, whole)


class _Steps:
    """served, unknown: (n, 8) as in Ladder, filled from the first rung on. split: tokens that an earlier prompt
    shares behind the known blocks; afar: where that prompt was none of this cache."""

    def __init__(self, chains: Chains, laws: Laws, split: Ints, afar: Flags) -> None:
        self.chains, self.laws, self.split, self.afar = chains, laws, split, afar
        self.served = np.zeros((chains.n, RUNGS), np.int64)
        self.unknown = np.zeros((chains.n, RUNGS), np.int64)

    def top(self, rung: int) -> Ints:
        """Tokens (n,) that a rung serves."""
        served: Ints = self.served[:, rung]
        return served

    def tokens(self, blocks: Ints) -> Ints:
        """Tokens of so many leading blocks, with what an earlier prompt shares of the block behind them."""
        chains = self.chains
        split = np.where((blocks == chains.split_depth) & ~self.afar, self.split, 0)
        tokens: Ints = np.minimum(chains.prompt, blocks * chains.block_size + split)
        return tokens

    def serve(self, rung: int, tokens: Ints) -> None:
        """A rung serves so many tokens, and no less than the one before."""
        floor = self.served[:, rung - 1] if rung else 0
        self.served[:, rung] = np.minimum(np.maximum(floor, tokens), self.chains.prompt)

    def reach(self, rung: int, surely: Ints, maybe: Ints) -> None:
        """A rung serves a run of blocks, of which so many for sure."""
        self.reach_tokens(rung, self.tokens(surely), self.tokens(maybe))

    def reach_tokens(self, rung: int, surely: Ints, maybe: Ints) -> None:
        """A rung serves so many tokens, of which so many for sure."""
        self.serve(rung, np.maximum(surely, maybe))
        known = np.maximum(self.served[:, rung - 1], surely)
        self.unknown[:, rung] = np.maximum(0, self.served[:, rung] - known)

    def forget(self) -> None:
        """Of requests whose chain is not known nothing can be told of what was computed."""
        lost = np.flatnonzero(~self.chains.known)
        self.served[lost, _UNALIGNED:] = self.chains.prompt[lost, None]
        self.unknown[lost] = 0
        self.unknown[lost, _UNALIGNED] = self.chains.prompt[lost] - self.served[lost, _ACTUAL]


def _actual(steps: _Steps, those: Beyond, look: Look, held: Ints) -> Ints:
    """Fill the first two rungs; returns how many leading blocks were held, with what the server's own figure shows.

    Where a figure is just what the alignment lets through of all that may have been held, what it shows to have been
    there was, with what is known to have been held behind that, and the rest may have been.
    """
    chains, laws = steps.chains, steps.laws
    size, prompt = chains.block_size, chains.prompt
    told = chains.cached != NOT_TOLD
    of_held = laws.served(prompt, held * size)
    steps.serve(
        _ACTUAL, np.where(told, np.minimum(chains.cached, prompt), np.where(chains.reads_off, 0, of_held))
    )
    actual = steps.top(_ACTUAL)

    most = those.run(look.maybe)
    full = told & (laws.served(prompt, most * size) == actual)
    shown = np.where(told & (actual > of_held), np.maximum(held, laws.shown(prompt, actual) // size), held)
    shown = np.maximum(shown, those.run(look.held | (those.depth < shown[those.row])))
    whole, of_shown = steps.tokens(shown), laws.served(prompt, shown * size)
    less = told & (actual < of_shown)
    surely = np.where(chains.reads_off, actual, np.where(less, actual + whole - of_shown, whole))
    maybe = np.where(full & ~chains.reads_off, steps.tokens(np.maximum(most, shown)), surely)
    steps.reach_tokens(_UNALIGNED, surely, maybe)
    return np.where(chains.reads_off, held, shown)


def _climb_caches(
    steps: _Steps, runs: Runs, survey: Survey, groups: Groups, those: Beyond, look: Look, shown: Flags
) -> Flags:
    """Fill the rungs whose caches held what is asked for: this one, all, all under any isolation. shown: blocks that
    this one held; returns those that the last one serves for sure."""
    row, key, moment = those.row, those.key, runs.positions.moment[those.row]
    ends = runs.positions.computed
    flying = groups.flights.until(ends).running(key * groups.width + groups.where[row], row, moment)
    # where it may have been held, too, a hit and a block that was being computed look alike
    surely = shown | (flying & ~look.maybe)
    several = survey.several(runs.chains.server)[row]
    surely |= look.never & ~several
    maybe = surely | look.maybe | flying
    lacks = np.flatnonzero(~surely & several)
    found = survey.seek(key[lacks], row[lacks], look.never[lacks], own_server=True)
    surely[lacks] |= found.surely
    maybe[lacks] |= found.surely | (found.maybe & (runs.positions.holder[row[lacks]] < 0))
    steps.reach(_NOT_LOADED, those.run(surely), those.run(maybe))

    content = runs.numbers.content
    for rung, any_key in ((_ELSEWHERE, False), (_ISOLATED, True)):
        if runs.numbers.isolations > 1 if any_key else survey.holders > 1:
            lacks = np.flatnonzero(~surely)
            every = content[runs.numbers.key] if any_key else runs.numbers.key
            wanted = content[key[lacks]] if any_key else key[lacks]
            flights = Flights(every, np.repeat(np.arange(runs.chains.n), runs.lengths), runs.chains.n)
            surely[lacks] |= flights.until(ends).running(wanted, row[lacks], moment[lacks])
            lacks = lacks[~surely[lacks]]
            found = survey.seek(key[lacks], row[lacks], look.never[lacks], any_key=any_key)
            surely[lacks] |= found.surely
            maybe |= surely
            maybe[lacks] |= found.maybe
        steps.reach(rung, those.run(surely), those.run(maybe))
    return surely
