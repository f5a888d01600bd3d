"""A metric under its canonical name, and how a dialect finds it behind the names a server exposes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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


def row(
    prefix: str,
    name: str,
    kind: str,
    unit: str,
    text: str,
    *aliases: str | tuple[str, str],
    traps: tuple[Trap, ...] = (),
) -> Metric:
    """A row of a dialect's table, its aliases (newest first) without the server's prefix.

    An alias without versions is the name of every version that has the metric.
    """
    named = ((alias, "") if isinstance(alias, str) else alias for alias in aliases)
    return Metric(
        name, kind, unit, text, tuple(Alias(prefix + raw, versions) for raw, versions in named), traps
    )


def notes(table: Iterable[Metric], version: str, present: Collection[str]) -> tuple[str, ...]:
    """Traps of this version among the metrics (canonical names) that are there, each text once."""
    key = version_key(version)
    metrics_of: dict[str, list[str]] = {}
    for metric in table:
        for trap in metric.traps if metric.name in present else ():
            if not trap.before or (key and key < version_key(trap.before)):
                metrics_of.setdefault(trap.text, []).append(metric.name)
    return tuple(f"{', '.join(names)}: {text}" for text, names in metrics_of.items())


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
