"""Rules of suggestions as a Python module that stands alone, and as data.

The module is this package's own code of the rules (`export_source`), so that both do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from analysis.advisor.advice import Advice
from analysis.advisor.evidence import evidence
from analysis.advisor.learning.cause import Safety
from analysis.advisor.rewriting.export_source import Standalone
from analysis.advisor.rewriting.rules import Action, Rule, apply
from analysis.advisor.suggest import Suggestion
from cachemodel.printable import printable

VERSION = 1
"""Of the form of rules.yaml."""
RISING = (Safety.CANONICALISE, Safety.MOVE, Safety.DROP)
"""From what changes nothing to what the model sees less of."""

_DOCUMENTATION = '''"""Rewrites requests to an LLM server so that its prefix cache finds more of them.

    from rewriter import rewrite
    body = rewrite(body)  # a request of OpenAI's, Anthropic's, Gemini's or Bedrock's API, as decoded from JSON

Written by `hitmap advise --apply`, for Python 3.9 or newer and its standard library alone. rules.yaml has the rules as
data, and why each is there.
"""'''
_REWRITE = '''def rewrite(body: dict[str, Any]) -> dict[str, Any]:
    """A copy of the request as RULES write it; the request itself stays as it is."""
    try:
        return copy.deepcopy(dict(apply(RULES, body)))
    except RecursionError:  # nested deeper than any prompt
        return dict(body)'''


@dataclass(frozen=True)
class Export:
    """taken: suggestions whose rules are applied, in this order; left: those that have rules and are riskier than
    `most`."""

    taken: tuple[Suggestion, ...]
    left: tuple[Suggestion, ...]
    most: Safety

    @property
    def rules(self) -> tuple[Rule, ...]:
        """In the order in which they are applied."""
        return tuple(rule for one in self.taken for rule in one.rules)


def chosen(advice: Advice, most: Safety = Safety.MOVE) -> Export:
    """The suggestions of an advice that have rules. most: the riskiest rewrite that is wanted."""
    wanted = RISING[: RISING.index(most) + 1]
    ruled = [one for one in advice.suggestions if one.rules]
    return Export(
        taken=tuple(one for one in ruled if one.remedy.safety in wanted),
        left=tuple(one for one in ruled if one.remedy.safety not in wanted),
        most=most,
    )


def module(export: Export) -> str:
    """The source of a module with `rewrite(body)`."""
    code = Standalone(apply)
    told = [(printable(_about(one), lines=False), rule) for one in export.taken for rule in one.rules]
    rules = [line for about, rule in told for line in (f"    # {about}", f"    {_literal(rule)},")]
    head = "\n".join(["from __future__ import annotations", "", "import copy", *code.imports()])
    listed = "\n".join(["RULES: tuple[Rule, ...] = (", *rules, ")"])
    return "\n\n\n".join([f"{_DOCUMENTATION}\n\n{head}", *code.definitions(), listed, _REWRITE]) + "\n"


def rules_yaml(export: Export, *, cache: str, tokens_by: str, by: str) -> str:
    """The same as data. cache, tokens_by: by what the advice was worked out; by: name and version of who writes."""
    told = {
        "version": VERSION,
        "written_by": by,
        "cache": cache,
        "tokens_by": tokens_by,
        "rules": [{**_why(one), **_data(rule)} for one in export.taken for rule in one.rules],
        "left_out": [_why(one) for one in export.left],
    }
    return str(yaml.safe_dump(told, allow_unicode=False, sort_keys=False, width=100))


def read_rules(told: dict[str, Any]) -> tuple[Rule, ...]:
    """The rules of a rules.yaml. Raises ValueError for another version or an action that there is not."""
    if told.get("version") != VERSION:
        raise ValueError(f"rules of version {told.get('version')}; this reads version {VERSION}")
    return tuple(
        Rule(
            Action(one["action"]),
            one["role"],
            pattern=one.get("pattern", ""),
            items=tuple(one.get("items", ())),
            message=one.get("message", 0),
            within=one.get("within", False),
        )
        for one in told["rules"]
    )


def _about(one: Suggestion) -> str:
    return f"{one.slot.cause.value} at {one.slot.path} ({one.remedy.safety.value}): {evidence(one.slot)}"


def _why(one: Suggestion) -> dict[str, Any]:
    return {
        "cause": one.slot.cause.value,
        "path": one.slot.path,
        "safety": one.remedy.safety.value,
        "evidence": evidence(one.slot),
        "what": one.remedy.what,
        "why": one.remedy.why,
    }


def _data(rule: Rule) -> dict[str, Any]:
    """Without what says nothing."""
    told: dict[str, Any] = {"action": rule.action.value, "role": rule.role}
    return told | {name: _plain(value) for name, value in _given(rule)}


def _plain(value: str | int | Sequence[str]) -> str | int | list[str]:
    return value if isinstance(value, (str, int)) else list(value)


def _given(rule: Rule) -> Iterator[tuple[str, str | int | tuple[str, ...]]]:
    """The fields beside action and role that are not as by default."""
    given: dict[str, str | int | tuple[str, ...]] = {
        "pattern": rule.pattern,
        "items": rule.items,
        "message": rule.message,
        "within": rule.within,
    }
    yield from ((name, value) for name, value in given.items() if value)


def _literal(rule: Rule) -> str:
    """In ASCII, so that nothing in it can steer what shows it."""
    more = "".join(f", {name}={value!a}" for name, value in _given(rule))
    return f"Rule(Action.{rule.action.name}, {rule.role!a}{more})"
