"""The table of rules: the YAML files in `rules/`, and what a user's file and settings change of it.

A mistake is a UsageError that names every wrong field, in a file with its line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from analysis.alerts.fields import FIELDS, REQUIRED, SETTABLE, rule_of
from analysis.alerts.model import Rule
from cachemodel.errors import UsageError

_MAX_BYTES = 1 << 20


class _Entry(NamedTuple):
    """An entry of a file: its values as YAML reads them, and the line of each field; "" is the entry itself."""

    values: dict[str, Any]
    lines: dict[str, int]


@cache
def rules() -> tuple[Rule, ...]:
    """The rules that hitmap brings, in the order of their files."""
    folder = resources.files("analysis.alerts").joinpath("rules")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    known: dict[str, Rule] = {}
    for file in files:
        known = _changed(known, file.name, file.read_text(encoding="utf-8"))
    return tuple(known.values())


def with_file(table: Iterable[Rule], path: Path) -> tuple[Rule, ...]:
    """The table after a user's file: an entry with a known id changes the fields it names, any other is a new rule."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path}: more than {_MAX_BYTES >> 20} MB: is this the right file?")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is no text in UTF-8") from None
    return tuple(_changed({rule.id: rule for rule in table}, str(path), text).values())


def with_settings(table: Iterable[Rule], settings: Sequence[str]) -> tuple[Rule, ...]:
    """The table after settings such as `hit-ratio-low.threshold=0.7`."""
    known = {rule.id: rule for rule in table}
    for setting in settings:
        name, equals, text = setting.partition("=")
        id, dot, field = name.strip().partition(".")
        if not (equals and dot):
            raise UsageError(
                f"{setting!r} sets nothing: write RULE.FIELD=VALUE, as hit-ratio-low.threshold=0.7"
            )
        if id not in known:
            raise UsageError(f"there is no rule {id!r}; {_hint(id, known)}")
        if field not in SETTABLE:
            raise UsageError(f"{setting!r}: {field!r} cannot be set here; {_hint(field, SETTABLE)}")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        if mistake := FIELDS[field].mistake(value):
            raise UsageError(f"{setting!r}: {field} {mistake}")
        known[id] = replace(known[id], **FIELDS[field].as_argument(value))
    return tuple(known.values())


def _changed(known: Mapping[str, Rule], name: str, text: str) -> dict[str, Rule]:
    """The rules after one file."""
    result = dict(known)
    mistakes: list[tuple[int, str]] = []
    seen: dict[str, int] = {}
    for values, lines in _entries(name, text):
        found = _mistakes(values, lines, result)
        id = str(values.get("id"))
        if not found and (first := seen.setdefault(id, lines[""])) != lines[""]:
            found = [(lines["id"], f"rule {id} is there twice, first in line {first}")]
        if found:
            mistakes += found
            continue
        result[id] = rule_of(values, result.get(id))
    if mistakes:
        raise UsageError("\n".join(f"{name}:{line}: {said}" for line, said in sorted(mistakes)))
    return result


def _mistakes(
    values: Mapping[str, Any], lines: Mapping[str, int], known: Mapping[str, Rule]
) -> list[tuple[int, str]]:
    """What is wrong with one entry, by line."""
    id, entry = values.get("id"), lines[""]
    if mistake := "is missing" if id is None else FIELDS["id"].mistake(id):
        return [(lines.get("id", entry), f"id {mistake}")]
    found = []
    for field, value in values.items():
        if field not in FIELDS:
            found.append((lines[field], f"rule {id}: no field of a rule: {field}; {_hint(field, FIELDS)}"))
        elif mistake := FIELDS[field].mistake(value):
            found.append((lines[field], f"rule {id}: {field} {mistake}"))
    if id not in known and (missing := [field for field in REQUIRED if field not in values]):
        close = difflib.get_close_matches(str(id), known, 1)
        hint = f"; did you mean to change {close[0]}?" if close else ""
        found.append((entry, f"rule {id} is new and lacks {', '.join(missing)}{hint}"))
    return found


def _entries(name: str, text: str) -> list[_Entry]:
    """The entries of a file. Raises UsageError where it is no list of mappings."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if root is None:
            return []
        if not isinstance(root, yaml.SequenceNode):
            raise UsageError(f"{name}:1: a file of rules is a list: begin each rule with `- id:`")
        return [_entry(name, node) for node in root.value]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"{mark.line + 1}" if mark else "1"
        raise UsageError(f"{name}:{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: cannot be read as YAML: {' '.join(str(error).split())[:200]}") from None


def _entry(name: str, node: yaml.Node) -> _Entry:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{name}:{line}: a rule is fields with values: begin it with `- id:`")
    loader = yaml.SafeLoader("")
    lines = {"": line}
    for key, _ in node.value:
        at = key.start_mark.line + 1
        if (first := lines.setdefault(str(key.value), at)) != at:
            raise UsageError(f"{name}:{at}: {key.value} stands twice, first in line {first}")
    return _Entry({str(k): v for k, v in loader.construct_mapping(node, deep=True).items()}, lines)


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(names)}"
