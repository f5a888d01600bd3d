"""What keeps prompts from the cache that is not in them: salts, options, slots, and what a server does not serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.messages.examples import key
from analysis.advisor.learning.messages.threads import threads
from analysis.advisor.pricing.gains import Replayed
from analysis.advisor.serving.rendered import common
from analysis.prefix_replay.rules import BlockRule, ProviderRule, SlotRule
from cachemodel.prompts.model import Kind, Prompt

FEWEST = 3  # requests of a kind, to say something of it
NOT_SERVED, SERVED = 0.1, 0.5  # of what the cache's rule says: what is not served at all, and what is
MARKED = 0.7  # of it, which moving markers leave less than
NEAR, LARGE = 0.03, 128  # of a unit: as near below a boundary; units below LARGE tokens are not worth a word
_PICTURES = (Kind.IMAGE, Kind.AUDIO, Kind.FILE)


@dataclass(frozen=True, slots=True)
class Beside:
    """tokens: computed because of it, 0 where that is not known; share: of the computed ones."""

    cause: Cause
    requests: int
    tokens: int
    share: float
    detail: str


def beside(prompts: Sequence[Prompt], replayed: Replayed, min_share: float) -> Iterator[Beside]:
    """All of it that costs at least `min_share` of the computed tokens, or is of as many of the requests."""
    computed = max(1, replayed.as_sent.computed)
    for cause, requests, tokens, detail in _found(prompts, replayed):
        if tokens >= min_share * computed or (not tokens and cause is Cause.EMBEDS):
            yield Beside(cause, requests, tokens, tokens / computed, detail)


Told = tuple[Cause, int, int, str]
"""Cause, requests, tokens, and what is particular."""


def _found(prompts: Sequence[Prompt], replayed: Replayed) -> Iterator[Told]:
    computed = replayed.as_sent.computed
    yield from _isolated(prompts, replayed)
    yield from _unmarked(prompts, replayed)
    if off := [prompt.reads_off for prompt in prompts if prompt.reads_off]:
        yield Cause.READS_OFF, len(off), computed - replayed.read().computed, ", ".join(sorted(set(off)))
    if given := sum(any(part.kind is Kind.EMBEDS for part in prompt.parts) for prompt in prompts):
        yield Cause.EMBEDS, given, 0, "their tokens have no names that a prefix cache could know again"
    yield from _not_text(prompts, replayed)
    yield from _markers(prompts, replayed)
    if isinstance(rule := replayed.rule, SlotRule):
        more = replace(rule, slots=4 * rule.slots)
        saved = computed - replayed.by(more).computed
        yield Cause.SLOTS, len(prompts), saved, f"with {more.slots} slots instead of {rule.slots}"
    yield from _boundary(replayed)


def _isolated(prompts: Sequence[Prompt], replayed: Replayed) -> Iterator[Told]:
    """By salts, and by models: vLLM's adapters are models to those who ask."""
    apart = len({prompt.isolation for prompt in prompts})
    shared = replayed.as_sent.computed
    if apart > 1:
        salted = sum(bool(prompt.isolation) for prompt in prompts)
        shared = replayed.shared().computed
        detail = f"{apart} salts or adapters keep prompts from each other's blocks"
        yield Cause.ISOLATION, salted, replayed.as_sent.computed - shared, detail
    if (models := len({model for _, model in replayed.caches})) > 1:
        detail = f"{models} models, or adapters that go by the name of one, have blocks of their own"
        yield Cause.ISOLATION, len(prompts), shared - replayed.of_one_model().computed, detail


def _unmarked(prompts: Sequence[Prompt], replayed: Replayed) -> Iterator[Told]:
    """Requests that ask for no entry of a cache that keeps nothing by itself, or for entries that few find again."""
    if (marked := replayed.marked()) is None:
        return
    tokens = replayed.as_sent.computed - marked.computed
    without = sum(not prompt.marks for prompt in prompts)
    detail = "breakpoints behind the system prompt and at the end of each request would serve that"
    if not without:
        detail = f"breakpoints stand where few requests find them; {detail}"
    yield Cause.UNMARKED, without or len(prompts), tokens, detail


def _counted(prompts: Sequence[Prompt]) -> NDArray[np.float64]:
    """Cached tokens by the usage of responses, NaN where none told."""
    return np.array(
        [np.nan if one.cached_tokens is None else one.cached_tokens for one in prompts], dtype=float
    )


def _part_served(
    counted: NDArray[np.float64], expected: NDArray[np.int64], of: NDArray[np.bool_]
) -> float | None:
    """Of what the rule says for some requests, the share that was counted."""
    known = of & np.isfinite(counted) & (expected > 0)
    return float(counted[known].sum() / expected[known].sum()) if known.sum() >= FEWEST else None


def _lost(
    counted: NDArray[np.float64], expected: NDArray[np.int64], of: NDArray[np.bool_]
) -> tuple[int, int]:
    """How many of some requests told, and what they were served less than the rule says."""
    told = of & np.isfinite(counted)
    return int(told.sum()), int(np.maximum(expected[told] - counted[told], 0).sum())


def _not_text(prompts: Sequence[Prompt], replayed: Replayed) -> Iterator[Told]:
    """Prompts with images that are served nothing, where those without are."""
    counted, expected = _counted(prompts), replayed.served
    own = np.array([any(part.kind in _PICTURES for part in prompt.parts) for prompt in prompts], dtype=bool)
    of_those, of_others = (_part_served(counted, expected, of) for of in (own, ~own))
    if of_those is not None and of_those < NOT_SERVED and (of_others is None or of_others > SERVED):
        requests, lost = _lost(counted, expected, own)
        yield (
            Cause.NOT_TEXT,
            requests,
            lost,
            f"served {of_those:.0%} of what the cache's rule would serve them",
        )


def _markers(prompts: Sequence[Prompt], replayed: Replayed) -> Iterator[Told]:
    """Requests whose cache markers stand elsewhere than in the request before them, and that are served too little."""
    if not any(prompt.marks for prompt in prompts):
        return
    moved = np.zeros(len(prompts), dtype=bool)
    for index, thread in threads(list(enumerate(prompts))).items():
        if thread.earlier is not None and thread.surely:
            moved[index] = _moved(prompts[thread.earlier], prompts[index])
    counted, expected = _counted(prompts), replayed.served
    part = _part_served(counted, expected, moved)
    if part is not None and part < MARKED:
        requests, lost = _lost(counted, expected, moved)
        none = int((counted[moved] == 0).sum())
        yield Cause.MARKERS, requests, lost, f"{none} of {requests} with a moved marker were served nothing"


def _moved(earlier: Prompt, later: Prompt) -> bool:
    """Whether a marker in what both share is there in one of them only."""
    shared = {
        ours.path
        for ours, theirs in zip(later.parts, earlier.parts, strict=False)
        if key(ours) == key(theirs)
    }

    def within(prompt: Prompt) -> set[str]:
        return {mark for mark in prompt.marks if any(path.startswith(mark) for path in shared)}

    return bool(earlier.marks or later.marks) and within(earlier) != within(later)


def _boundary(replayed: Replayed) -> Iterator[Told]:
    """A beginning that requests share and that ends just below what the cache would keep."""
    rule = replayed.rule
    if isinstance(rule, ProviderRule):
        unit, least = rule.granularity, rule.minimum
    elif isinstance(rule, BlockRule):
        unit, least = rule.law.unit, rule.law.unit
    else:
        return
    if max(unit, least) < LARGE or len(replayed.tokens) <= FEWEST:
        return
    shared = [common(a, b) for a, b in pairwise(replayed.tokens)]
    told = [(length, _next(length, unit, least)) for length in shared]
    near = [(length, upto) for length, upto in told if 0 < upto - length <= max(8, NEAR * max(unit, least))]
    if len(near) < max(FEWEST, len(shared) / 2):
        return
    length, upto = near[len(near) // 2]
    won = sum(upto - (0 if upto == least else upto - unit) for _, upto in near)
    yield Cause.BOUNDARY, len(near), won, f"{length:,} tokens are shared, {upto:,} would be kept"


def _next(length: int, unit: int, least: int) -> int:
    """The shortest prefix that is kept and is longer."""
    return least if length < least else least + unit * ((length - least) // unit + 1)
