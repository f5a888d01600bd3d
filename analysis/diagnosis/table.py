"""Reads the table of rules: every YAML file in `rules/`, checked field by field."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import Any

from analysis.diagnosis.model import Condition, Rule
from analysis.diagnosis.vocabulary import FACTS
from analysis.rule_files import rule_files

_FIELDS = {field.name for field in fields(Rule)}
_NEEDED = ("id", "title", "when", "remedy", "confirm")
_LISTS = ("blamed", "evidence", "dialects", "unless", "answers")
_CONDITION = re.compile(r"(\w+)(?:\.(a|change|ratio|sigmas))? ([<>]) (-?\d+(?:\.\d+)?)")


@cache
def rules() -> tuple[Rule, ...]:
    """All rules in the order of the files. Raises ValueError naming the rule that is amiss."""
    found = [rule_of(raw) for raw in rule_files("analysis.diagnosis")]
    ids = {rule.id for rule in found}
    for rule in found:
        if unknown := set(rule.unless) - ids:
            raise ValueError(f"{rule.id}: unless names no rule: {', '.join(sorted(unknown))}")
    return tuple(found)


def rule_of(raw: dict[str, Any]) -> Rule:
    """A rule from what a file says of it; raises ValueError."""
    name = raw.get("id", "a rule without id")
    if unknown := raw.keys() - _FIELDS:
        raise ValueError(f"{name}: no field of a rule: {', '.join(sorted(unknown))}")
    if missing := [field for field in _NEEDED if not raw.get(field)]:
        raise ValueError(f"{name}: a rule needs {', '.join(missing)}")
    made = Rule(
        **{
            **raw,
            **{field: tuple(raw.get(field, ())) for field in _LISTS},
            "when": tuple(_condition(name, text) for text in raw["when"]),
        }
    )
    if unknown := {*made.evidence, *(condition.fact for condition in made.when)} - FACTS.keys():
        raise ValueError(f"{name}: no fact: {', '.join(sorted(unknown))}; facts are {', '.join(FACTS)}")
    return made


def _condition(rule: str, text: str) -> Condition:
    if not (found := _CONDITION.fullmatch(text)):
        raise ValueError(f"{rule}: {text!r} is no condition; write: fact.change > 0.05")
    fact, aspect, sign, bound = found.groups(default="b")
    return Condition(fact, aspect, sign, float(bound))  # type: ignore[arg-type]
