"""Reads the table of rules: every YAML file in `rules/`, checked field by field."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from analysis.rule_files import rule_files
from analysis.sanity.model import SEVERITIES, UNITS, Cause, Rule

_FIELDS = {field.name for field in fields(Rule)}
_LISTS = ("metrics", "dialects", "answers")


@cache
def rules() -> tuple[Rule, ...]:
    """All rules: the gravest first, then in the order of the files. Raises ValueError naming the rule that is amiss."""
    found = [_rule(raw) for raw in rule_files("analysis.sanity")]
    return tuple(sorted(found, key=lambda rule: SEVERITIES.index(rule.severity)))


def rule(id: str) -> Rule:
    """The rule of that id; raises KeyError."""
    return {rule.id: rule for rule in rules()}[id]


def _rule(raw: dict[str, Any]) -> Rule:
    name = raw.get("id", "a rule without id")
    if unknown := raw.keys() - _FIELDS:
        raise ValueError(f"{name}: no field of a rule: {', '.join(sorted(unknown))}")
    made = Rule(
        **{
            **raw,
            **{field: tuple(raw.get(field, ())) for field in _LISTS},
            "causes": tuple(Cause(**cause) for cause in raw.get("causes", ())),
        }
    )
    if made.severity not in SEVERITIES or made.unit not in UNITS:
        raise ValueError(f"{name}: severity is one of {SEVERITIES}, unit one of {UNITS}")
    return made
