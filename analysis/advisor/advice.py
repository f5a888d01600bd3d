"""Advice on a log of prompts: what breaks the cache, what to write instead, and what that would save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from analysis.advisor.learning.cause import Safety
from analysis.advisor.learning.learn import learn
from analysis.advisor.pricing.at_most import per_character
from analysis.advisor.pricing.gains import Change, Replayed, Tokenize, Total
from analysis.advisor.pricing.marked import Ends
from analysis.advisor.rewriting.rules import Rule
from analysis.advisor.serving.beside import Beside, beside
from analysis.advisor.serving.rendered import template_slots
from analysis.advisor.serving.retokenised import retokenised_slots
from analysis.advisor.suggest import Suggestion, suggestions
from analysis.prefix_replay.rules import ProviderRule, unlimited
from analysis.prefix_replay.rules import Rule as CacheRule
from cachemodel.prompts.model import Prompt

SCHEMA_VERSION = 1
MOST_REPLAYED = 50_000  # requests, the last ones, that gains are worked out on
MIN_SHARE = 0.01  # of the computed tokens: what saves less is not worth a change


@dataclass(frozen=True)
class Advice:
    """n prompts of a log. requests: ids of the last ones, that gains are worked out on, and servers: which had each,
    empty where the log does not tell; together: what the cache's rule makes of these as they were sent, and with all
    rules in place; nothing_less: with those in place after which the model sees all that it saw, None where that is all
    of them. counted: prompt and cached tokens by the usage of those responses that told both, None where none did.
    min_share: of the computed tokens, what a suggestion saves at least. untold: of `requests`, how many have no tokens
    that could be told. evicts: whether the cache's room is limited."""

    n: int
    requests: tuple[str, ...]
    together: Change
    nothing_less: Change | None
    suggestions: tuple[Suggestion, ...]
    beside: tuple[Beside, ...]
    cache: str
    tokens_by: str
    counted: Total | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    min_share: float = MIN_SHARE
    untold: int = 0
    evicts: bool = False
    servers: tuple[str, ...] = ()

    @property
    def undecided(self) -> bool:
        """Whether so little could be looked at that silence says nothing."""
        return 2 * self.untold > len(self.requests)

    @property
    def as_sent(self) -> Total:
        """Of the requests as they were sent."""
        return self.together.before.total

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Of all suggestions, in the order in which they are applied."""
        return tuple(rule for one in self.suggestions for rule in one.rules)


def advise(
    prompts: Sequence[Prompt],
    tokenize: Tokenize,
    cache: CacheRule,
    *,
    cache_name: str,
    tokens_by: str,
    ends: Ends | None = None,
    picture_tokens: int = 0,
    min_share: float = MIN_SHARE,
    progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """Learn from all prompts, which are in order of time, and replay the last of them. ends: as Replayed takes it.
    picture_tokens: that `tokenize` makes of an image, a recording or a file."""
    progress("comparing prompts")
    slots = learn(prompts)
    progress("replaying")
    recent = prompts[-MOST_REPLAYED:]
    replayed = Replayed(recent, tokenize, cache, ends)
    per_text = per_character(recent, replayed.as_sent.prompt, picture_tokens)
    slots += template_slots(recent, replayed.tokens, per_text)
    slots += retokenised_slots(recent, replayed.tokens, per_text)
    told = suggestions(prompts, slots, replayed, per_text, min_share)
    less = any(one.rules and one.remedy.safety is Safety.DROP for one in told)
    kept = [one for one in told if one.remedy.safety is not Safety.DROP]
    return Advice(
        n=len(prompts),
        requests=tuple(prompt.request_id for prompt in recent),
        together=_together(replayed, told),
        nothing_less=_together(replayed, kept) if less else None,
        suggestions=tuple(told),
        beside=tuple(beside(recent, replayed, min_share)),
        cache=cache_name,
        tokens_by=tokens_by,
        counted=_counted(recent),
        notes=tuple(_too_short(replayed)),
        min_share=min_share,
        untold=sum(len(one) == 0 for one in replayed.tokens),
        evicts=not unlimited(cache),
        servers=tuple(prompt.server for prompt in recent),
    )


def _together(replayed: Replayed, told: Sequence[Suggestion]) -> Change:
    rules = [rule for one in told for rule in one.rules]
    return Change(replayed.sent, replayed.rewritten(rules) if rules else replayed.sent)


def _too_short(replayed: Replayed) -> Iterator[str]:
    """What a cache with a minimum never keeps, whatever stands in it."""
    rule, n = replayed.rule, len(replayed.tokens)
    if isinstance(rule, ProviderRule) and (short := sum(len(one) < rule.minimum for one in replayed.tokens)):
        yield (
            f"{short:,} of {n:,} prompts are shorter than the {rule.minimum:,} tokens that this cache keeps at least."
        )


def _counted(prompts: Sequence[Prompt]) -> Total | None:
    told = [
        (prompt.prompt_tokens, prompt.cached_tokens)
        for prompt in prompts
        if prompt.prompt_tokens is not None and prompt.cached_tokens is not None
    ]
    return Total(sum(p for p, _ in told), sum(c for _, c in told)) if told else None
