"""The fields of a rule as a file has them: what each may hold, and which of `Rule`'s it fills."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analysis.alerts.model import BREACHES, SEVERITIES, Prometheus, Rule

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_COLUMN = re.compile(r"[a-z][a-z_0-9]{0,62}")
_LONGEST_S = 86_400
PLACES = frozenset({"start", "end", "before", "server_name", "slowest"})
"""What a `look` may name beside the rule's own `by`."""


@dataclass(frozen=True, slots=True)
class Field:
    """mistake: what is wrong with a value, as the rest of a sentence, empty where nothing is. argument: of `Rule`.
    made: the argument's value."""

    mistake: Callable[[Any], str]
    argument: str
    made: Callable[[Any], Any] = lambda value: value

    def as_argument(self, value: Any) -> dict[str, Any]:
        return {self.argument: self.made(value)}


def rule_of(values: Mapping[str, Any], before: Rule | None) -> Rule:
    """A rule of values without mistakes; of a known one those that are not named stay."""
    arguments: dict[str, Any] = {}
    for field, value in values.items():
        arguments |= FIELDS[field].as_argument(value)
    return replace(before, **arguments) if before else Rule(**arguments)


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value.strip() else "must be a text"


def _number(value: Any) -> str:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "" if good else f"must be a number, not {value!r}"


def _seconds(least: int) -> Callable[[Any], str]:
    def mistake(value: Any) -> str:
        good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LONGEST_S
        return "" if good else f"must be whole seconds from {least} to {_LONGEST_S}, not {value!r}"

    return mistake


def _amount(value: Any) -> str:
    return _number(value) or ("" if value >= 0 else f"must be 0 or more, not {value!r}")


def _one_of(known: tuple[str, ...]) -> Callable[[Any], str]:
    return lambda value: "" if value in known else f"must be one of {', '.join(known)}, not {value!r}"


def _texts(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(one, str) and one for one in value)
    return "" if good else "must be a list of texts"


def _columns(value: Any) -> str:
    good = not _texts(value) and value and all(_COLUMN.fullmatch(one) for one in value)
    return "" if good else "must be a list of columns of its sql, such as [server]"


def _commands(value: Any) -> str:
    if mistake := _texts(value):
        return mistake
    try:
        for one in value:
            list(string.Formatter().parse(one))
    except ValueError as error:
        return f"has a placeholder that is not closed: {error}"
    return ""


def _prometheus(value: Any) -> str:
    if not isinstance(value, dict) or not value or not value.keys() <= {"expr", "reason"}:
        return "must have expr, reason or both"
    if not all(isinstance(one, str) and one.strip() for one in value.values()):
        return "must have texts as expr and reason"
    if "expr" in value:
        template = string.Template(value["expr"])
        if not template.is_valid() or template.get_identifiers() != ["threshold"]:
            return "must have an expr with $threshold and no other $ in it"
    return ""


def _id(value: Any) -> str:
    good = isinstance(value, str) and _ID.fullmatch(value)
    return "" if good else f"must be a name of a-z, 0-9 and -, not {value!r}"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else f"must be true or false, not {value!r}"


FIELDS = {
    "id": Field(_id, "id"),
    "means": Field(_text, "means"),
    "value": Field(_text, "value"),
    "unit": Field(_text, "unit"),
    "severity": Field(_one_of(SEVERITIES), "severity"),
    "breach": Field(_one_of(BREACHES), "breach"),
    "threshold": Field(_number, "threshold", float),
    "window": Field(_seconds(1), "window_s"),
    "for": Field(_seconds(0), "hold_s"),
    "gap": Field(_seconds(0), "gap_s"),
    "delay": Field(_seconds(0), "delay_s"),
    "by": Field(_columns, "by", tuple),
    "of": Field(_text, "of"),
    "minimum": Field(_amount, "minimum", float),
    "metrics": Field(_texts, "metrics", tuple),
    "needs": Field(_text, "needs"),
    "sql": Field(_text, "sql"),
    "look": Field(_commands, "look", tuple),
    "prometheus": Field(_prometheus, "prometheus", lambda value: Prometheus(**value)),
    "enabled": Field(_flag, "enabled"),
}
REQUIRED = (
    *("means", "value", "unit", "severity", "breach", "threshold", "window", "for"),
    *("by", "of", "minimum", "needs", "sql"),
)
SETTABLE = ("threshold", "window", "for", "minimum", "gap", "delay", "severity", "enabled")
