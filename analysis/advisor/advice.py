"""Advice on a log of prompts: what breaks the cache, what to write instead, and what that would save."""

from __future__ import annotations

import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from analysis.advisor.learning.cause import REMEDIES, Remedy
from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.model import Slot
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.pricing.gains import PICTURES, Body, Change, Gain, Replayed, Tokenize, Total, gains
from analysis.advisor.pricing.marked import Ends
from analysis.advisor.rewriting.rules import Rule, apply
from analysis.advisor.serving.beside import Beside, beside
from analysis.advisor.serving.rendered import template_slots
from analysis.advisor.serving.retokenised import retokenised_slots
from analysis.prefix_replay.rules import ProviderRule
from analysis.prefix_replay.rules import Rule as CacheRule
from cachemodel.prompts.model import Prompt

SCHEMA_VERSION = 1
MOST_REPLAYED = 5000  # requests, the last ones, that gains are worked out on
MIN_SHARE = 0.01  # of the computed tokens: what saves less is not worth a change
NOTHING = 0.1  # of the tokens behind a slot: a rule that saves less does not do what it should
MUCH = 0.05  # of the computed tokens, stands behind a slot that is told though its rules do nothing for it
DIFF_LINES = 40


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One slot and what to do about it.

    gain: of the replay, None where no rule can write it otherwise, or where rules change next to nothing of what stands
    behind it; these are left out then. at_most: tokens behind the slot that would be found again, if nothing else were
    in the way; never more than its requests compute. share: of the computed tokens, what `gain.most` saves, else of
    `at_most`. diff: what the rules change in the request of the slot's example, unified. also: other slots that its
    rules mend.
    """

    slot: Slot
    remedy: Remedy
    rules: tuple[Rule, ...]
    gain: Gain | None
    at_most: int
    share: float
    diff: str
    also: tuple[Slot, ...] = ()


@dataclass(frozen=True)
class Advice:
    """n prompts of a log. requests: ids of the last ones, that gains are worked out on, and servers: which had each,
    empty where the log does not tell; together: what the cache's rule
    makes of these as they were sent, and with all rules in place. counted: prompt and cached tokens by the usage of
    those responses that told both, None where none did. min_share: of the computed tokens, what a suggestion saves at
    least. untold: of `requests`, how many have no tokens that could be told."""

    n: int
    requests: tuple[str, ...]
    together: Change
    suggestions: tuple[Suggestion, ...]
    beside: tuple[Beside, ...]
    cache: str
    tokens_by: str
    counted: Total | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    min_share: float = MIN_SHARE
    untold: int = 0
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
    computed = max(1, replayed.as_sent.computed)
    per_character = _per_character(recent, replayed.as_sent.prompt, picture_tokens)
    slots += template_slots(recent, replayed.tokens, per_character)
    slots += retokenised_slots(recent, replayed.tokens, per_character)
    ordered = _in_order(prompts, slots)  # what breaks a prefix first hides the others
    rules = [_without_doubles(rules_of(slot), ordered[:at]) for at, slot in enumerate(ordered)]
    told, also = [], _mended_by_others(ordered, rules)
    mended = {id(slot) for slots in also.values() for slot in slots}
    for slot, own, gain in zip(ordered, rules, gains(replayed, rules), strict=True):
        if id(slot) in mended:
            continue
        at_most = _at_most(slot, replayed, per_character, len(prompts))
        if gain and 0 <= gain.most.saved < min(min_share * computed, NOTHING * at_most):
            if at_most < MUCH * computed:
                continue
            # The rules are not where it stands. One that costs more than it saves is, and is refuted.
            own, gain = (), None
        saved = gain.most.saved if gain else at_most
        if saved and saved / computed >= min_share:
            told.append(
                Suggestion(
                    slot=slot,
                    remedy=REMEDIES[slot.cause],
                    rules=own,
                    gain=gain,
                    at_most=at_most,
                    share=saved / computed,
                    diff=_example_diff(prompts, slot, own),
                    also=tuple(also[id(slot)]),
                )
            )
    told.sort(key=lambda one: -one.share)
    all_rules = [rule for one in told for rule in one.rules]
    return Advice(
        n=len(prompts),
        requests=tuple(prompt.request_id for prompt in recent),
        together=Change(replayed.sent, replayed.rewritten(all_rules) if all_rules else replayed.sent),
        suggestions=tuple(told),
        beside=tuple(beside(recent, replayed, min_share)),
        cache=cache_name,
        tokens_by=tokens_by,
        counted=_counted(recent),
        notes=tuple(_too_short(replayed)),
        min_share=min_share,
        untold=sum(len(one) == 0 for one in replayed.tokens),
        servers=tuple(prompt.server for prompt in recent),
    )


def _per_character(prompts: Sequence[Prompt], tokens: int, picture_tokens: int) -> float:
    """Tokens of a character of text."""
    characters = sum(len(p.text) for prompt in prompts for p in prompt.parts if p.kind not in PICTURES)
    pictures = sum(p.kind in PICTURES for prompt in prompts for p in prompt.parts)
    return max(0, tokens - pictures * picture_tokens) / max(1, characters)


def _at_most(slot: Slot, replayed: Replayed, per_character: float, n: int) -> int:
    """Tokens of the requests replayed, of n that were learned from, that are computed for the slot if for nothing else:
    behind it and sent before. Of a request that found them all the same, those are none."""
    recent = len(replayed.tokens)
    own = [one for at in _about(slot) if (one := at - (n - recent)) >= 0]
    computed = replayed.sent.computed
    behind = slot.behind * per_character
    each = float(np.minimum(computed[own], behind).mean()) if own else behind
    lost = slot.requests if slot.anew is None else min(slot.anew, slot.requests)
    return round(min(lost * each * recent / n, float(computed.sum())))


def _about(slot: Slot) -> list[int]:
    """Requests that pay for the slot, of those that were looked at: that have a value there which none before them had;
    where what stands there is no value, all that have not what most have."""
    values = [one.value for one in slot.seen]
    if slot.anew is not None:
        firsts = {
            value: one.request for value, one in zip(reversed(values), reversed(slot.seen), strict=True)
        }
        return sorted(firsts.values())[1:]
    usual, often = Counter(values).most_common(1)[0] if values else ("", 0)
    most = 2 * often > len(values)
    return [one.request for one in slot.seen if not most or one.value != usual] or [
        one.request for one in slot.seen
    ]


def _too_short(replayed: Replayed) -> Iterator[str]:
    """What a cache with a minimum never keeps, whatever stands in it."""
    rule, n = replayed.rule, len(replayed.tokens)
    if isinstance(rule, ProviderRule) and (short := sum(len(one) < rule.minimum for one in replayed.tokens)):
        yield (
            f"{short:,} of {n:,} prompts are shorter than the {rule.minimum:,} tokens that this cache keeps at least."
        )


def _in_order(prompts: Sequence[Prompt], slots: Sequence[Slot]) -> list[Slot]:
    """As they stand in the prompt of their example."""
    by_id = {prompt.request_id: prompt for prompt in prompts}

    def place(slot: Slot) -> tuple[int, int, float]:
        paths = [part.path for part in by_id[slot.example].parts]
        return paths.index(slot.path) if slot.path in paths else len(paths), slot.offset, -slot.behind

    return sorted(slots, key=place)


def _without_doubles(rules: tuple[Rule, ...], before: Sequence[Slot]) -> tuple[Rule, ...]:
    """Rules that no earlier slot has: two values of one sentence move with it together."""
    known = {rule for slot in before for rule in rules_of(slot)}
    return tuple(rule for rule in rules if rule not in known)


def _mended_by_others(slots: Sequence[Slot], rules: Sequence[tuple[Rule, ...]]) -> dict[int, list[Slot]]:
    """By the id of a slot, those that have no rule of their own, since its rules are theirs."""
    owner = {rule: slot for slot, own in zip(slots, rules, strict=True) for rule in own}
    found: dict[int, list[Slot]] = defaultdict(list)
    for slot, own in zip(slots, rules, strict=True):
        first = next((owner[rule] for rule in rules_of(slot) if rule in owner), None)
        if not own and first:
            found[id(first)].append(slot)
    return found


def _example_diff(prompts: Sequence[Prompt], slot: Slot, rules: Sequence[Rule]) -> str:
    """Of the slot's example, or of the first request that the rules change."""
    if not rules:
        return ""
    requests = [at for at, one in enumerate(prompts) if one.request_id == slot.example]
    for at in (*requests, *(one.request for one in slot.seen)):
        if (body := prompts[at].body) and (changed := diff(body, apply(rules, body))):
            return changed
    return ""


def diff(before: Body, after: Body) -> str:
    """What was changed in a request: a unified diff of its readable form, at most DIFF_LINES of it."""
    lines = difflib.unified_diff(
        list(_lines(before)), list(_lines(after)), "as sent", "rewritten", n=1, lineterm=""
    )
    told = list(islice(lines, DIFF_LINES + 1))
    return "\n".join([*told[:DIFF_LINES], "..."] if len(told) > DIFF_LINES else told)


def _lines(body: Body) -> Iterator[str]:
    """Tools one a line, then what stands before the conversation, then messages, their text line by line."""
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        yield f"tool {json.dumps(tool, ensure_ascii=False)}"
    for name in ("system", "instructions"):  # Anthropic's, and OpenAI's Responses API
        if told := body.get(name):
            yield f"[{name}]"
            yield from _said(told)
    talk = body.get("messages", body.get("input"))
    for message in talk if isinstance(talk, list) else ():
        yield f"[{message.get('role')}]" if isinstance(message, dict) else "[]"
        yield from _said(message.get("content") if isinstance(message, dict) else message)
    for text in (talk, body.get("prompt")):
        if isinstance(text, str):
            yield from text.splitlines()


def _said(content: object) -> Iterator[str]:
    """Texts as they read, anything else as JSON."""
    for block in content if isinstance(content, list) else [content]:
        text = block.get("text") if isinstance(block, dict) else block
        yield from (text if isinstance(text, str) else json.dumps(block, ensure_ascii=False)).splitlines()


def _counted(prompts: Sequence[Prompt]) -> Total | None:
    told = [
        (prompt.prompt_tokens, prompt.cached_tokens)
        for prompt in prompts
        if prompt.prompt_tokens is not None and prompt.cached_tokens is not None
    ]
    return Total(sum(p for p, _ in told), sum(c for _, c in told)) if told else None
