"""A metric under its canonical name, and how a dialect finds it behind the names a server exposes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from collector.ranks import Ranks


class Alias(NamedTuple):
    """A name that some versions of a server expose.

    raw: the family's name, a counter's without `_total`, or `family{label=value}` where a server keeps unlike numbers
    in one family; versions: for people, as in "0.8 to 0.10".
    """

    raw: str
    versions: str


class Trap(NamedTuple):
    """What the numbers of versions before `before` (all of them where empty) get wrong or leave out."""

    before: str
    text: str


class Origin(NamedTuple):
    """The label by which a server says where tokens came from, and its values in the words of
    `cachemodel.layers.TokenSource`: they are stored as the label `source` beside the server's own."""

    label: str
    sources: tuple[tuple[str, str], ...]

    def source(self, labels: Mapping[str, str]) -> str:
        """Empty where the server does not say."""
        return dict(self.sources).get(labels.get(self.label, ""), "")


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of a dialect's table. name: canonical, the same for every server; aliases: newest first; ranks: None
    where every series counts."""

    name: str
    kind: str
    unit: str
    help: str
    aliases: tuple[Alias, ...]
    traps: tuple[Trap, ...] = ()
    ranks: Ranks | None = None
    origin: Origin | None = None


def row(
    prefix: str,
    name: str,
    kind: str,
    unit: str,
    text: str,
    *aliases: str | tuple[str, str],
    traps: tuple[Trap, ...] = (),
    ranks: Ranks | None = None,
    origin: Origin | None = None,
) -> Metric:
    """A row of a dialect's table, its aliases (newest first) without the server's prefix.

    An alias without versions is the name of every version that has the metric.
    """
    named = ((alias, "") if isinstance(alias, str) else alias for alias in aliases)
    found = tuple(Alias(prefix + raw, versions) for raw, versions in named)
    return Metric(name, kind, unit, text, found, traps, ranks, origin)


# What the Prometheus clients of several languages expose of the process they run in.
PROCESS = (
    row("", "process.start_time", "gauge", "s", "Unix time", "process_start_time_seconds"),
    row("", "process.cpu_time", "counter", "s", "User and system", "process_cpu_seconds"),
    row("", "process.resident_bytes", "gauge", "bytes", "Resident memory", "process_resident_memory_bytes"),
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
        raw = next((alias.raw for alias in metric.aliases if alias.raw.partition("{")[0] in names), None)
        if raw is not None:
            chosen[raw] = metric
    return chosen


def resolve_all(tables: Iterable[Iterable[Metric]], exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The same for a server that passes on what others say: a metric that several tables find is the first one's."""
    names = set(exposed)
    chosen: dict[str, Metric] = {}
    taken: set[str] = set()
    for table in tables:
        found = resolve(table, names)
        chosen |= {raw: metric for raw, metric in found.items() if metric.name not in taken}
        taken |= {metric.name for metric in found.values()}
    return chosen


def metric_of(names: Mapping[str, Metric], family: str, labels: Iterable[tuple[str, str]]) -> Metric | None:
    """The metric of a sample among resolved names: by its family, or by its family and one of its labels."""
    if family in names:
        return names[family]
    keys = (f"{family}{{{label}={value}}}" for label, value in labels)
    return next((names[key] for key in keys if key in names), None)


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
