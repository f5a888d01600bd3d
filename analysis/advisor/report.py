"""Advice as it is told: plain figures and short texts, the same for a terminal, Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analysis.advisor.advice import SCHEMA_VERSION, Advice
from analysis.advisor.evidence import evidence, mends_as_well
from analysis.advisor.key import key_of
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.model import Slot
from analysis.advisor.pricing.gains import Total
from analysis.advisor.pricing.price import Price, Prices
from analysis.advisor.suggest import Suggestion
from analysis.interval import Interval
from analysis.treatments import ANCHORS, CONSTRAINTS

_TEMPLATES = {Cause.SLIDING_WINDOW: ANCHORS, Cause.SHARED_BEHIND: CONSTRAINTS}
CLOSE = 0.02  # of the prompt tokens: more apart, the replay's cache is not the server's
_OTHERWISE = (
    " Say what the server has where that is not by chance: --tokenizer, --block-size, --set capacity=."
)
VALUES_SHOWN, VALUE_CHARACTERS = 4, 60


@dataclass(frozen=True)
class Told:
    """A suggestion. key: what it is called in every log. saves: prompt tokens that the replay computes less, next to
    those told before; alone: without those; needed: with all others in place; None where no rule can write it. p95_ms,
    mean_ms: of the time to first token that it saves, the most of these three; p95_share: of P95; None where nothing is
    priced. at_most: tokens behind the slot that were sent before. template: of how to ask instead, empty where there is
    none. share: of all computed tokens. values: some that stand in the slot. token: how many tokens stand before it in
    the prompt of its example, None where nobody knows."""

    key: str
    cause: str
    path: str
    role: str
    offset: int
    before: str
    after: str
    requests: int
    of: int
    values: list[str]
    evidence: str
    saves: int | None
    alone: int | None
    needed: int | None
    at_most: int
    share: float
    safety: str
    what: str
    why: str
    diff: str
    template: str
    p95_ms: Interval | None
    mean_ms: Interval | None
    p95_share: float | None
    token: int | None = None


@dataclass(frozen=True)
class Priced:
    """All rewrites together in milliseconds of the time to first token, of requests of these servers: what they save of
    P95 and mean, which the twin has at so many before."""

    p95_ms: Interval
    mean_ms: Interval
    p95_before_ms: float
    mean_before_ms: float
    requests: int
    servers: list[str]
    notes: list[str]


@dataclass(frozen=True)
class ToldBeside:
    """Tokens that are computed for a reason outside the prompts."""

    cause: str
    requests: int
    tokens: int
    share: float
    detail: str


@dataclass(frozen=True)
class AdviceReport:
    """Advice on a log. prompt, served, computed: tokens by the replay; computed_after: with all rewrites in place;
    computed_after_nothing_less: with those alone that leave nothing out, None where none does.
    counted_prompt, counted_cached: by the usage of responses, None where none told. price: None where there is none;
    no_price: why, empty where nobody asked."""

    schema_version: int
    answer: str
    prompts: int
    replayed: int
    cache: str
    tokens_by: str
    prompt_tokens: int
    served_tokens: int
    computed_tokens: int
    computed_after: int
    computed_after_nothing_less: int | None
    counted_prompt: int | None
    counted_cached: int | None
    suggestions: list[Told]
    beside: list[ToldBeside]
    notes: list[str]
    left_out: list[str]
    partings: list[str]
    price: Priced | None
    no_price: str


Position = Callable[[Slot], int | None]
"""Tokens before a slot in the prompt of its example; None where nobody knows."""


def report(
    advice: Advice,
    left_out: Sequence[str] = (),
    prices: Prices | None = None,
    position: Position = lambda slot: None,
    partings: Sequence[str] = (),
) -> AdviceReport:
    """left_out: what of the log was no prompt, one sentence each; partings: where prompts part by their hashes.
    position: asked where a slot does not tell its own. Suggestions that are priced come first, dearest first."""
    counted, nothing_less, prices = advice.counted, advice.nothing_less, prices or Prices()
    told = [_told(one, price, position) for one, price in ordered(advice, prices)]
    return AdviceReport(
        schema_version=SCHEMA_VERSION,
        answer=_answer(advice),
        prompts=advice.n,
        replayed=len(advice.requests),
        cache=advice.cache,
        tokens_by=advice.tokens_by,
        prompt_tokens=advice.as_sent.prompt,
        served_tokens=advice.as_sent.served,
        computed_tokens=advice.as_sent.computed,
        computed_after=advice.together.after.total.computed,
        computed_after_nothing_less=nothing_less.after.total.computed if nothing_less else None,
        counted_prompt=counted.prompt if counted else None,
        counted_cached=counted.served if counted else None,
        suggestions=told,
        beside=[
            ToldBeside(one.cause.value, one.requests, one.tokens, one.share, one.detail)
            for one in advice.beside
        ],
        notes=list(_notes(advice)),
        left_out=list(left_out),
        partings=list(partings),
        price=_priced(prices),
        no_price=prices.refused,
    )


def told_apart(keys: Iterable[str]) -> list[str]:
    """Keys in their order, with a number behind each that was there before: two templates may have one suggestion."""
    counts: Counter[str] = Counter()
    told = []
    for key in keys:
        counts[key] += 1
        told.append(key if counts[key] == 1 else f"{key}-{counts[key]}")
    return told


def ordered(advice: Advice, prices: Prices | None) -> list[tuple[Suggestion, Price | None]]:
    """The suggestions as they are told: those that are priced first, dearest first."""
    each = (prices.each if prices else ()) or (None,) * len(advice.suggestions)
    both = list(zip(advice.suggestions, each, strict=True))
    return sorted(both, key=lambda one: -one[1].p95.value if one[1] else 0.0)


def _priced(prices: Prices) -> Priced | None:
    if (price := prices.together) is None:
        return None
    return Priced(
        p95_ms=price.p95,
        mean_ms=price.mean,
        p95_before_ms=price.p95_before,
        mean_before_ms=price.mean_before,
        requests=prices.requests,
        servers=list(prices.servers),
        notes=list(prices.notes),
    )


def _answer(advice: Advice) -> str:
    """The one sentence."""
    if not advice.n:
        return "There is no text of prompts to lay beside each other."
    sent = advice.as_sent
    replayed = len(advice.requests)
    if advice.undecided:
        return (
            f"Not decided: the tokens of {advice.untold:,} of {replayed:,} prompts cannot be told, so nothing can be"
            " said of what a cache finds of them."
        )
    which = f"The last {replayed:,} of {advice.n:,}" if replayed < advice.n else f"{advice.n:,}"
    begin = f"{which} prompts: of {sent.prompt:,} tokens {_percent(sent.computed, sent.prompt)} are computed"
    if not advice.suggestions:
        return f"{begin}. No slot was found that keeps more than {100 * advice.min_share:g}% of that from the cache."
    saved = advice.together.saved
    first = advice.suggestions[0]
    place = f"{first.slot.cause.value} at {first.slot.path}"
    if saved <= 0:
        return f"{begin}; {place} keeps up to {first.share:.0%} of that from the cache."
    what = "the suggestion below" if len(advice.suggestions) == 1 else "the suggestions below"
    found = f"{begin}; with {what} {_percent(saved, sent.computed)} of that would be found"
    if advice.nothing_less:
        found += f" ({_percent(advice.nothing_less.saved, sent.computed)} where nothing is left out)"
    return f"{found}. First: {place}."


def _notes(advice: Advice) -> list[str]:
    if not advice.n:
        return []
    told = [
        f"Tokens by {advice.tokens_by}; found by replay through {advice.cache}"
        + ("." if advice.evicts else ", which evicts nothing: an upper bound where the cache is small.")
    ]
    if (replayed := len(advice.requests)) < advice.n:
        told.append(f"Learned from all {advice.n:,} prompts, replayed with the last {replayed:,}.")
    if counted := advice.counted:
        told.append(
            f"By the usage of responses {_percent(counted.served, counted.prompt)} of {counted.prompt:,} tokens came"
            f" from the cache; the replay says {_percent(advice.as_sent.served, advice.as_sent.prompt)}."
            + (_OTHERWISE if _differ(counted, advice.as_sent) else "")
        )
    return [*told, *advice.notes]


def _differ(counted: Total, replayed: Total) -> bool:
    shares = [one.served / max(1, one.prompt) for one in (counted, replayed)]
    return abs(shares[0] - shares[1]) > CLOSE


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def _told(one: Suggestion, price: Price | None, position: Position) -> Told:
    slot = one.slot
    token = position(slot) if slot.token is None else slot.token
    return Told(
        key=key_of(one),
        cause=slot.cause.value,
        path=slot.path,
        role=slot.role,
        offset=slot.offset,
        before=" ".join(slot.before.split()),
        after=" ".join(slot.after.split()),
        requests=slot.requests,
        of=slot.of,
        values=_values(slot),
        evidence="; ".join([evidence(slot, token), *(mends_as_well(slot, other) for other in one.also)]),
        saves=one.gain.next.saved if one.gain else None,
        alone=one.gain.alone.saved if one.gain else None,
        needed=one.gain.last.saved if one.gain else None,
        at_most=one.at_most,
        share=one.share,
        safety=one.remedy.safety.value,
        what=one.remedy.what,
        why=one.remedy.why,
        diff=one.diff,
        template=_TEMPLATES[slot.cause].template if slot.cause in _TEMPLATES else "",
        p95_ms=price.p95 if price else None,
        mean_ms=price.mean if price else None,
        p95_share=price.share if price else None,
        token=token,
    )


def _values(slot: Slot) -> list[str]:
    """The commonest, or the first where all differ."""
    counts = Counter(one.value for one in slot.seen if one.value)
    return [value[:VALUE_CHARACTERS] for value, _ in counts.most_common(VALUES_SHOWN)]
