"""The source of functions with all that they need of this package, as a module that stands alone."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

PACKAGE = "analysis."
_CACHES = {"cache", "lru_cache"}  # would keep what callers send in memory, and change nothing else


@dataclass
class _Source:
    """A module's definitions and imports by the name they give. wanted: names of definitions that are needed."""

    lines: list[str]
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)


class Standalone:
    """Definitions gathered from modules of this package: code, and the imports of others' modules that it needs."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._sources: dict[str, _Source] = {}  # a module behind those that it imports
        self._imports: set[tuple[str, str]] = set()
        for function in functions:
            self._load(function.__module__)
            self._want(function.__module__, function.__name__)

    def imports(self) -> Iterator[str]:
        """Statements, in order."""
        yield from sorted(f"import {module}" for module, name in self._imports if not name)
        for module in sorted({module for module, name in self._imports if name}):
            names = sorted(name for other, name in self._imports if other == module and name)
            yield f"from {module} import {', '.join(names)}"

    def definitions(self) -> Iterator[str]:
        """Each with its decorators, in an order in which they can be executed."""
        for source in self._sources.values():
            for name, node in source.definitions.items():
                if name in source.wanted:
                    yield "\n".join(_written(source, node))

    def _load(self, module: str) -> None:
        if module in self._sources:
            return
        source = _read(sys.modules[module])
        for origin, _ in source.imports.values():
            if origin.startswith(PACKAGE):
                self._load(origin)
        self._sources[module] = source

    def _want(self, module: str, name: str) -> None:
        """Take in a name of a module with all that its definition names. Raises ValueError where two modules define the
        same name: they would be one."""
        source = self._sources[module]
        if name in source.wanted:
            return
        if name in source.definitions:
            if any(name in other.wanted for other in self._sources.values()):
                raise ValueError(f"{name} is defined in two modules")
            source.wanted.add(name)
            for used in sorted(_names(source.definitions[name])):
                self._want(module, used)
        elif name in source.imports:
            origin, own = source.imports[name]
            if origin.startswith(PACKAGE):
                self._want(origin, own)
            else:
                self._imports.add((origin, own))


def _read(module: ModuleType) -> _Source:
    text = inspect.getsource(module)
    source = _Source(text.splitlines())
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            source.definitions[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            source.definitions |= {target.id: node for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.asname:
                    raise ValueError(f"{module.__name__} imports {alias.name} as {alias.asname}")
                origin = node.module if isinstance(node, ast.ImportFrom) and node.module else alias.name
                own = alias.name if isinstance(node, ast.ImportFrom) else ""
                source.imports[alias.name] = origin, own
    return source


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []


def _is_cache(decorator: ast.expr) -> bool:
    return not _CACHES.isdisjoint(_names(decorator))


def _names(node: ast.stmt | ast.expr) -> set[str]:
    """What it names, apart from caches that it is decorated with."""
    left_out = {
        id(one) for one in (_decorators(node) if isinstance(node, ast.stmt) else ()) if _is_cache(one)
    }
    parts = [part for part in ast.iter_child_nodes(node) if id(part) not in left_out]
    named = {one.id for part in parts for one in ast.walk(part) if isinstance(one, ast.Name)}
    return named | {node.id} if isinstance(node, ast.Name) else named


def _written(source: _Source, node: ast.stmt) -> Iterator[str]:
    for one in _decorators(node):
        if not _is_cache(one):
            yield "\n".join(source.lines[one.lineno - 1 : one.end_lineno])
    yield from source.lines[node.lineno - 1 : node.end_lineno]
