"""The root causes of a change, and what the twin is to replay when some of them are as on side B and the rest as on A.

| cause | what changes over |
|---|---|
| workload | which requests come and when, and how long prompts and answers are |
| a miss cause | of the prompt tokens that reach its rung, the share it takes; `hits` where causes are not known |
| prefill speed, decode speed, tier speed | numbers of the step-time law |
| capacity | limits of the scheduler and room for KV; with another room also what is evicted or held by a lower tier |
| other | time before the queue and behind the last token |
| other arm | what the other arm's requests find, where one server serves both arms at one time |

Arms of one server share its laws and limits, so that neither can have changed. They are replayed together; on A those
of A are judged and B's are load, on B the other way round. So lost hits of B delay A, too, and less than the change is
seen; that is `other arm`, and not a part of the load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analysis.attribution.caused.borrowed import Strata, borrowed, strata
from analysis.attribution.caused.sticks import OF_TIERS, Sticks, sticks
from analysis.attribution.model import Side
from analysis.attribution.tokens import COMPUTED
from analysis.quantiles import Floats
from analysis.twin.model import Law, Limits, Workload, together
from analysis.twin.simulate import Case
from cachemodel.causes import MissCause
from cachemodel.layers import Tier

WORKLOAD, HITS, CAPACITY, OTHER, OTHER_ARM = "workload", "hits", "capacity", "other", "other arm"
SPEEDS: Mapping[str, tuple[str, ...]] = {
    "prefill speed": ("prefill", "attention"),
    "decode speed": ("step", "decode", "context"),
    "tier speed": ("host", "host_fixed", "remote", "remote_fixed"),
}
_EVICTED = str(MissCause.EVICTED)


@dataclass(frozen=True)
class Half:
    """One side of one server as the twin takes it: n requests all of whose tokens are known, in order of arrival.

    beyond: (n,) ms by which the metric exceeds what the server tells of it (0 unless it is a client's). drawn: (n,) how
    often each request counts where the other side borrows from this one.
    """

    side: Side
    workload: Workload
    law: Law
    limits: Limits
    beyond: Floats
    drawn: Floats


@dataclass(frozen=True)
class Pair:
    """Both sides of one server, with the same sources. another_room: its tiers hold more or fewer tokens on B. arms:
    it served both at one time."""

    a: Half
    b: Half
    another_room: bool = False
    arms: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Causes that can have changed anything, in the order in which they are told."""
        used = [
            name
            for name in self._sticks[0].names
            if any(half.side.tokens[half.side.sources.index(name)].any() for half in (self.a, self.b))
        ]
        of_tokens = dict.fromkeys(self._cause_of(name) for name in used)
        if self.arms:
            return (WORKLOAD, *of_tokens, OTHER, OTHER_ARM)
        capacity = CAPACITY in of_tokens or _scheduler(self.a.limits) != _scheduler(self.b.limits)
        loads = any(half.workload.host.any() or half.workload.remote.any() for half in (self.a, self.b))
        return (
            WORKLOAD,
            *(name for name in of_tokens if name != CAPACITY),
            *(name for name in SPEEDS if loads or name != "tier speed"),
            *([CAPACITY] if capacity else []),
            OTHER,
        )

    def case(self, inside: Collection[str]) -> tuple[Case, Floats]:
        """What to replay with the causes `inside` as on B, and what to add to the times of its first n requests, which
        are to be judged, (n,) ms."""
        on_b = WORKLOAD in inside
        base = self.b if on_b else self.a
        workload = self._served(
            on_b, [stick for stick in self._sticks[on_b].names if (self._cause_of(stick) in inside) != on_b]
        )
        before, after, beyond = self._outside[on_b][(OTHER in inside) != on_b]
        workload = replace(workload, before=before, after=after)
        if self.arms:
            lent = self._sticks[not on_b].names if (OTHER_ARM in inside) != on_b else ()
            workload = together(workload, self._served(not on_b, lent))
        limits = self.b.limits if CAPACITY in inside else self.a.limits
        return (workload, self._law(inside), replace(limits, shared=base.limits.shared)), beyond

    def _served(self, on_b: bool, lent: Collection[str]) -> Workload:
        """The requests of a side, with some sticks as on the other."""
        broken = self._sticks[on_b].broken(lent)
        return replace(
            (self.b if on_b else self.a).workload,
            host=broken[str(Tier.HOST)],
            remote=broken[str(Tier.REMOTE)],
            computed=np.maximum(broken[COMPUTED], 1.0),
        )

    def _law(self, inside: Collection[str]) -> Law:
        """Its numbers from A or B. What was never loaded on a side has the law of the other."""
        a, b = _lent(self.a.law, self.b.law), _lent(self.b.law, self.a.law)
        taken = {field for name, fields in SPEEDS.items() if name in inside for field in fields}
        return replace(a, **{field: getattr(b, field) for field in taken})

    def _cause_of(self, stick: str) -> str:
        """What a lower tier holds made room on the device: it goes with what is held no more."""
        if stick == COMPUTED or (stick in OF_TIERS and COMPUTED in self.a.side.sources):
            return CAPACITY if stick in OF_TIERS and self.another_room else HITS
        if stick == _EVICTED or stick in OF_TIERS:
            return CAPACITY if self.another_room else _EVICTED
        return stick

    @cached_property
    def _alike(self) -> Strata:
        return strata(self.a.side, self.b.side)

    @cached_property
    def _sticks(self) -> tuple[Sticks, Sticks]:
        a, b = self.a.side, self.b.side
        return (
            sticks(a, b, self._alike, self.b.drawn),
            sticks(b, a, self._alike.reversed(), self.a.drawn),
        )

    @cached_property
    def _outside(self) -> tuple[tuple[_Outside, _Outside], tuple[_Outside, _Outside]]:
        """Of A and of B: time outside the scheduler, its own and as on the other side."""
        a, b = _outside(self.a), _outside(self.b)
        return (
            (a, _lent_outside(a, b, self._alike, self.b.drawn)),
            (b, _lent_outside(b, a, self._alike.reversed(), self.a.drawn)),
        )


_Outside = tuple[Floats, Floats, Floats]
"""before, after and beyond, (n,) ms each."""


def _outside(half: Half) -> _Outside:
    return half.workload.before, half.workload.after, half.beyond


def _lent_outside(own: _Outside, other: _Outside, alike: Strata, drawn: Floats) -> _Outside:
    def lent(at: int) -> Floats:
        there = borrowed(own[at], other[at], alike, np.ones(len(own[at])), drawn)
        return np.where(np.isnan(there), own[at], there)

    return lent(0), lent(1), lent(2)


def _scheduler(limits: Limits) -> Limits:
    return replace(limits, shared=0.0)


def _lent(law: Law, other: Law) -> Law:
    """With the other's numbers for tiers that nothing was loaded from."""
    for numbers in (("host", "host_fixed"), ("remote", "remote_fixed")):
        if not any(getattr(law, name) for name in numbers):
            law = replace(law, **{name: getattr(other, name) for name in numbers})
    return law
