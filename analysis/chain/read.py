"""Reads a chain from YAML: a checked `Chain` out, or every mistake with its line and what to write."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from analysis.chain.model import Chain, Hit, Layer, Spans, Workload
from cachemodel.errors import UsageError
from cachemodel.printable import printable

MOST_BYTES = 1 << 20
_MOST_DEPTH = 8
_KNOWN = {
    (): Chain,
    ("request",): Spans,
    ("workload",): Workload,
    ("layers",): Layer,
    ("layers", "spans"): Spans,
    ("layers", "hit"): Hit,
}
Place = tuple[str | int, ...]


class ChainError(UsageError):
    """What is wrong with a description of layers, one line a mistake."""


def read_chain(path: Path) -> Chain:
    """The chain that a file describes (docs/layers.md); raises ChainError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ChainError(f"{path}: {error.strerror}; docs/layers.md has one to start from") from None
    except UnicodeDecodeError:
        raise ChainError(f"{path}: is no text in UTF-8") from None
    if len(text) > MOST_BYTES:
        raise ChainError(f"{path}: more than {MOST_BYTES >> 20} MB: is this the right file?")
    lines: dict[Place, int] = {}
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        tree = _value(node, (), lines) if node else {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ChainError(f"{path}:{mark.line + 1 if mark else 1}: {error.problem or error.context}") from None
    try:
        chain = TypeAdapter(Chain).validate_python(tree)
    except ValidationError as error:
        found = [_mistake(detail) for detail in error.errors()]
    else:
        found = list(_contradictions(chain))
        if not found:
            return chain
    ordered = sorted({(_line(lines, place), words) for place, words in found})
    raise ChainError("\n".join(printable(f"{path}:{line}: {words}") for line, words in ordered))


def _value(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    """A node as Python has it; numbers and the like stay the text they are written as."""
    lines.setdefault(place, node.start_mark.line + 1)
    if len(place) > _MOST_DEPTH:  # also the end of nodes that hold themselves
        raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=node.start_mark)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, at), lines) for at, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    found: dict[str, Any] = {}
    for key, value in node.value:
        name = str(key.value)
        if name in found:
            raise yaml.MarkedYAMLError(problem=f"{name} stands twice", problem_mark=key.start_mark)
        lines[(*place, name)] = key.start_mark.line + 1
        found[name] = _value(value, (*place, name), lines)
    return found


def _contradictions(chain: Chain) -> Iterator[tuple[Place, str]]:
    """What each value alone does not show."""
    names = [layer.name for layer in chain.layers]
    for at, layer in enumerate(chain.layers):
        place: Place = ("layers", at)
        if layer.name in names[:at]:
            yield (*place, "name"), f"there are two layers {layer.name!r}: give one another name"
        if layer.name in ("workload", "unattributed"):
            yield (*place, "name"), f"{layer.name!r} is a name of the report's own: take another"
        if bool(layer.spans) == bool(layer.attribute):
            words = "say where its time comes from: either spans: {span: NAME} or attribute: NAME, not both"
            yield place, f"layer {layer.name!r}: {words}"
        if layer.parent and layer.parent not in names[:at]:
            before = ", ".join(names[:at]) or "none"
            yield (
                (*place, "parent"),
                f"no layer {layer.parent!r} stands before {layer.name!r}; there: {before}",
            )
        if layer.hit and not layer.spans:
            yield (*place, "hit"), f"layer {layer.name!r}: hit is told by a span: give spans: {{span: NAME}}"


def _mistake(detail: Mapping[str, Any]) -> tuple[Place, str]:
    place: Place = tuple(detail["loc"])
    name = ".".join(str(part) for part in place)
    if detail["type"] == "unexpected_keyword_argument":
        known = _known(place[:-1])
        close = difflib.get_close_matches(str(place[-1]), known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
        return place, f"{name} is unknown: {hint}"
    if detail["type"] in ("missing", "missing_argument"):
        return place, f"{name} is missing"
    if detail["type"] in ("dataclass_type", "dict_type"):
        return place, f"{name or 'the file'} must hold names and values: {', '.join(_known(place))}"
    if detail["type"] == "string_pattern_mismatch":
        what = (
            "a colour is written #0072B2"
            if place[-1] == "colour"
            else "up to 40 letters, digits, . - and blanks"
        )
        return place, f"{name}: {what}"
    message = str(detail["msg"])
    return place, f"{name}: {message[:1].lower()}{message[1:]}"


def _known(place: Place) -> list[str]:
    """Names that may stand at a place."""
    kind = _KNOWN.get(tuple(part for part in place if isinstance(part, str)))
    return [{"values": "is"}.get(field.name, field.name) for field in fields(kind)] if kind else []


def _line(lines: Mapping[Place, int], place: Place) -> int:
    """The line of a place, or of what it should stand in."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)
