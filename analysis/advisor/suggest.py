"""Suggestions: the slots whose rules save what is worth a change, and those at which no rule can help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from analysis.advisor.diff import diff
from analysis.advisor.learning.cause import REMEDIES, Remedy
from analysis.advisor.learning.model import Slot
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.pricing.at_most import AtMost
from analysis.advisor.pricing.gains import Gain, Replayed, gains
from analysis.advisor.rewriting.rules import Rule, apply
from cachemodel.prompts.model import Prompt

NOTHING = 0.1  # of the tokens behind a slot: a rule that saves less does not do what it should
LEFT = 0.2  # of the tokens behind a slot: where the rules of others mend more of it, it is the same fault as theirs
MUCH = 0.05  # of the computed tokens, stands behind a slot that is told though its rules do nothing for it


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One slot and what to do about it.

    gain: of the replay, None where no rule can write it otherwise, or where rules change next to nothing of what stands
    behind it; these are left out then. at_most: tokens behind the slot that would be found again, if nothing else were
    in the way; where it has no rules, those that the rules of others leave to it. share: of the computed tokens, what
    `gain.most` saves, else of `at_most`. diff: what the rules change in the request of the slot's example, unified.
    also: other slots that its rules mend.
    """

    slot: Slot
    remedy: Remedy
    rules: tuple[Rule, ...]
    gain: Gain | None
    at_most: int
    share: float
    diff: str
    also: tuple[Slot, ...] = ()


def suggestions(
    prompts: Sequence[Prompt],
    slots: Sequence[Slot],
    replayed: Replayed,
    per_character: float,
    min_share: float,
) -> list[Suggestion]:
    """Of all prompts, of which the last were replayed; what saves most first. per_character: tokens of text; min_share:
    of the computed tokens, what one saves at least."""
    mending = _mending(_in_order(prompts, slots))  # what breaks a prefix first hides the others
    scales = _Scales(prompts, replayed, per_character, min_share)
    told = list[Suggestion]()
    for one, gain in zip(mending, gains(replayed, [one.rules for one in mending]), strict=True):
        told += scales.weighed(one, gain)
    rules = [rule for one in told for rule in one.rules]
    if rules and not all(one.rules for one in told):
        told = list(scales.beside(replayed, rules, told))
    return sorted(told, key=lambda one: (one.share, one.gain.next.saved if one.gain else 0), reverse=True)


@dataclass(frozen=True, slots=True)
class _Mending:
    """A slot, its rules, and other slots that have no rule beside these: two values of one sentence move together."""

    slot: Slot
    rules: tuple[Rule, ...]
    also: list[Slot] = field(default_factory=list)


def _mending(slots: Sequence[Slot]) -> list[_Mending]:
    """A rule belongs to the first slot that has it."""
    owner, found = dict[Rule, _Mending](), list[_Mending]()
    for slot in slots:
        rules = rules_of(slot)
        own = tuple(rule for rule in rules if rule not in owner)
        if rules and not own:
            owner[rules[0]].also.append(slot)
            continue
        found.append(_Mending(slot, own))
        owner |= dict.fromkeys(own, found[-1])
    return found


class _Scales:
    """What a suggestion has to be worth."""

    def __init__(
        self, prompts: Sequence[Prompt], replayed: Replayed, per_character: float, min_share: float
    ) -> None:
        self._prompts, self._at_most = prompts, AtMost(prompts, replayed, per_character)
        self._computed = max(1, replayed.as_sent.computed)
        self._least = min_share * self._computed

    def weighed(self, mending: _Mending, gain: Gain | None) -> Iterator[Suggestion]:
        """None, one, or one for each slot where the rules they share are none for them."""
        if gain is None:
            yield from self._without_rules(mending.slot, self._least)
            return
        behind, saved = self._at_most(mending.slot), gain.most.saved
        if 0 <= saved < min(self._least, NOTHING * behind):
            # They are not where these stand. Rules that cost more than they save are, and are refuted.
            for slot in (mending.slot, *mending.also):
                yield from self._without_rules(slot, max(self._least, MUCH * self._computed))
        elif saved > 0 and saved >= self._least:
            first, *others = sorted((mending.slot, *mending.also), key=self._at_most, reverse=True)
            yield Suggestion(
                slot=first,
                remedy=REMEDIES[first.cause],
                rules=mending.rules,
                gain=gain,
                at_most=self._at_most(first),
                share=saved / self._computed,
                diff=_example_diff(self._prompts, first, mending.rules),
                also=tuple(others),
            )

    def beside(
        self, replayed: Replayed, rules: Sequence[Rule], told: Sequence[Suggestion]
    ) -> Iterator[Suggestion]:
        """Suggestions; those without rules by what they still keep from the cache when these rules are in place."""
        self._at_most = self._at_most.with_rules(replayed, rules)
        for one in told:
            if one.rules:
                yield one
            else:
                yield from self._without_rules(one.slot, max(self._least, LEFT * one.at_most))

    def _without_rules(self, slot: Slot, least: float) -> Iterator[Suggestion]:
        behind = self._at_most(slot)
        if behind and behind >= least:
            yield Suggestion(slot, REMEDIES[slot.cause], (), None, behind, behind / self._computed, "")


def _in_order(prompts: Sequence[Prompt], slots: Sequence[Slot]) -> list[Slot]:
    """As they stand in the prompt of their example."""
    by_id = {prompt.request_id: prompt for prompt in prompts}

    def place(slot: Slot) -> tuple[int, int, float]:
        paths = [part.path for part in by_id[slot.example].parts]
        return paths.index(slot.path) if slot.path in paths else len(paths), slot.offset, -slot.behind

    return sorted(slots, key=place)


def _example_diff(prompts: Sequence[Prompt], slot: Slot, rules: Sequence[Rule]) -> str:
    """Of the slot's example, or of the first request that the rules change."""
    if not rules:
        return ""
    requests = [at for at, one in enumerate(prompts) if one.request_id == slot.example]
    for at in (*requests, *(one.request for one in slot.seen)):
        if (body := prompts[at].body) and (changed := diff(body, apply(rules, body))):
            return changed
    return ""
