"""Reads the configuration file: YAML in, a checked `Config` out, or every mistake with its line and a remedy.

`${NAME}` in a value stands for the environment variable NAME, `$${` for `${` itself.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from cachemodel.errors import UsageError
from hitmap.config.model import Config

DEFAULT_NAME = "hitmap.yaml"
MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_VALUES = 10_000
_VARIABLE = re.compile(r"\$(\$(?=\{)|\{(\w+)\})")

Place = tuple[Any, ...]  # the names and indices that lead to a value


class ConfigError(UsageError):
    """What is wrong with a file, one line a mistake."""


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """The configuration in `path`. Raises ConfigError that names every mistake with its line."""
    tree, lines, mistakes = _read(path)
    tree = _expanded(tree, environment, (), mistakes)
    try:
        config = Config.model_validate(tree, context={"folder": path.parent})
    except ValidationError as error:
        mistakes += [_mistake(detail) for detail in error.errors()]
    if mistakes:
        ordered = sorted({(_line(lines, place), text) for place, text in mistakes})
        raise ConfigError("\n".join(f"{path}:{line}: {text}" for line, text in ordered))
    return config


def _read(path: Path) -> tuple[Any, dict[Place, int], list[tuple[Place, str]]]:
    """The file's values, the line of each, and names that stand twice (YAML itself lets the last one win)."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; `hitmap config example` prints one to start from"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no text in UTF-8") from None
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{path}: more than {MAX_BYTES >> 20} MB: is this the right file?")
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(
            f"{path}:{mark.line + 1 if mark else 1}: {error.problem or error.context}"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    lines: dict[Place, int] = {}
    mistakes: list[tuple[Place, str]] = []
    if root is None:
        return {}, lines, mistakes
    return _values(root, (), lines, mistakes), lines, mistakes


def _values(node: yaml.Node, place: Place, lines: dict[Place, int], mistakes: list[tuple[Place, str]]) -> Any:
    lines.setdefault(place, node.start_mark.line + 1)
    if (
        len(place) > MAX_DEPTH or len(lines) > MAX_VALUES
    ):  # also the end of nodes that hold themselves or each other
        mistakes.append((place[:1], "nested too deeply"))
        return None
    if isinstance(node, yaml.SequenceNode):
        return [_values(item, (*place, i), lines, mistakes) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, place, mistakes)
    found: dict[Hashable, Any] = {}
    for key_node, value_node in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else ""
        inner = (*place, key)
        if key in found:
            line = key_node.start_mark.line + 1
            mistakes.append((inner, f"{_dotted(inner)} stands twice, again in line {line}"))
            continue
        lines[inner] = key_node.start_mark.line + 1
        found[key] = _values(value_node, inner, lines, mistakes)
    return found


def _scalar(node: yaml.Node, place: Place, mistakes: list[tuple[Place, str]]) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (
        yaml.YAMLError,
        ValueError,
        AttributeError,
    ) as error:  # a tag on what it does not fit, as !!timestamp "x"
        mistakes.append((place, f"{_dotted(place)}: {' '.join(str(error).split())}"))
        return None


def _expanded(
    value: Any, environment: Mapping[str, str], place: Place, mistakes: list[tuple[Place, str]]
) -> Any:
    """Values with the environment's in them; what is not set is a mistake."""
    if isinstance(value, dict):
        return {k: _expanded(v, environment, (*place, k), mistakes) for k, v in value.items()}
    if isinstance(value, list):
        return [_expanded(v, environment, (*place, i), mistakes) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        name = match[2]
        if name is None:
            return "$"
        if name not in environment:
            mistakes.append((place, f"{_dotted(place)}: ${{{name}}} is not set in the environment"))
        return environment.get(name, "unset")

    return _VARIABLE.sub(replaced, value)


def _mistake(detail: Any) -> tuple[Place, str]:
    place = tuple(part for part in detail["loc"] if part != "[key]")
    return place, _words(place, detail)


def _words(place: Place, detail: Mapping[str, Any]) -> str:
    """A mistake in words that say what to do. The value itself is not shown: it may be a secret."""
    name = _dotted(place)
    match detail["type"]:
        case "extra_forbidden":
            known = _names_at(place[:-1])
            close = difflib.get_close_matches(str(place[-1]), known, 1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            return f"{name} is unknown: {hint}"
        case "missing":
            return f"{name} is missing"
        case "value_error":
            return f"{name}: {detail['ctx']['error']}" if name else str(detail["ctx"]["error"])
        case "string_pattern_mismatch":
            return f"{name}: a name has letters, digits, '_', '.' and '-' only"
        case "model_type" | "dict_type":
            return f"{name or 'the file'} must hold names and values, such as {', '.join(_names_at(place)) or 'blue:'}"
    message = str(detail["msg"])
    return f"{name}: {message[:1].lower()}{message[1:]}"


def _names_at(place: Place) -> list[str]:
    """The names that may stand at a place of the file."""
    at: Any = Config
    for part in place:
        if isinstance(at, type) and issubclass(at, BaseModel):
            at = at.model_fields[part].annotation if part in at.model_fields else None
        else:  # a mapping by name: its values
            at = (get_args(at) or (None,))[-1]
    return list(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else []


def _dotted(place: Place) -> str:
    return ".".join(str(part) for part in place)


def _line(lines: Mapping[Place, int], place: Place) -> int:
    """The line of a place, or of what it should stand in."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)
