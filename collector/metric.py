"""A metric under its canonical name, and how a dialect finds it behind the names a server exposes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Alias(NamedTuple):
    """A name that some versions of a server expose. raw: the family's name, a counter's without `_total`;
    versions: for people, as in "0.8 to 0.10"."""

    raw: str
    versions: str


class Trap(NamedTuple):
    """What the numbers of versions before `before` (all of them where empty) get wrong or leave out."""

    before: str
    text: str


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of a dialect's table. name: canonical, the same for every server; aliases: newest first."""

    name: str
    kind: str
    unit: str
    help: str
    aliases: tuple[Alias, ...]
    traps: tuple[Trap, ...] = ()


def resolve(table: Iterable[Metric], exposed: Iterable[str]) -> Mapping[str, Metric]:
    """Which exposed family stands for which metric of the table.

    A metric that is exposed under an old and a new name at once belongs to the new one only: its numbers would
    otherwise count twice.
    """
    names = set(exposed)
    chosen = {}
    for metric in table:
        raw = next((alias.raw for alias in metric.aliases if alias.raw in names), None)
        if raw is not None:
            chosen[raw] = metric
    return chosen


def version_key(version: str) -> tuple[int, ...]:
    """A version's leading numbers, to compare by: "0.32.0rc1+cpu" gives (0, 32, 0)."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
