"""Applies the rules to two sides: what the facts and the named causes look like, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Finding, Resampling, Share, Side, Verdict, View
from analysis.diagnosis.facts import dialects, facts
from analysis.diagnosis.model import Facts, Rule
from analysis.diagnosis.table import rules
from analysis.diagnosis.vocabulary import sentence
from analysis.numbers import signed

Blamed = Mapping[str, tuple[Share, View]]


def diagnose(client: Client, a: Side, b: Side, drawn: Resampling, views: Sequence[View]) -> list[Finding]:
    """What the change from A to B looks like, in the order of the rules; empty where no rule holds.

    drawn: the resamples that the views were judged by. views: "what caused it" and "where it shows". A rule that asks
    for a cause holds only where one of them names it; a fact that is not known lets no rule hold.
    """
    if not a.n or not b.n:
        return []
    blamed = slower(views)
    return findings(facts(client, a, b, drawn, views), blamed, dialects(client, b))


def findings(
    known: Facts, blamed: Blamed, kinds: Iterable[str], table: Iterable[Rule] | None = None
) -> list[Finding]:
    """The rules that hold of these facts. kinds: dialects of B's servers; table: the rules, all by default."""
    held = [rule for rule in table or rules() if _holds(rule, known, blamed, set(kinds))]
    ids = {rule.id for rule in held}
    return [
        Finding(rule.id, rule.title, list(_evidence(rule, known, blamed)), rule.remedy, rule.confirm)
        for rule in held
        if not ids & set(rule.unless)
    ]


def slower(views: Sequence[View]) -> Blamed:
    """What is named for making it slower, by name; the earlier view speaks where several name it."""
    return {
        share.name: (share, view)
        for view in reversed(views)
        for share in view.shares
        if share.verdict is Verdict.NAMED and share.value > 0
    }


def _holds(rule: Rule, known: Facts, blamed: Blamed, kinds: set[str]) -> bool:
    if rule.dialects and not kinds & set(rule.dialects):
        return False
    if rule.blamed and not blamed.keys() & set(rule.blamed):
        return False
    return all(condition.holds(known) for condition in rule.when)


def _evidence(rule: Rule, known: Facts, blamed: Blamed) -> Iterator[str]:
    for name in rule.blamed:
        if name in blamed:
            share, view = blamed[name]
            yield f"{name} {signed(share.value)} of {signed(view.change)} ({view.provenance}, named)"
    for name in dict.fromkeys([*(condition.fact for condition in rule.when), *rule.evidence]):
        if fact := known.get(name):
            yield sentence(name, fact)
