"""Metrics in the text form that Prometheus reads (version 0.0.4). Pure; the caller keeps threads apart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Labels = tuple[str, ...]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One row of a table of metrics, equal to itself alone.

    kind: counter, gauge or histogram. buckets: upper bounds of a histogram.
    """

    name: str
    kind: str
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()

    def lines(self, values: Mapping[Labels, float] | Mapping[Labels, Histogram]) -> Iterator[str]:
        """Its text; nothing where it has no values."""
        if not values:
            return
        name = f"{self.name}_total" if self.kind == "counter" else self.name
        yield f"# HELP {name} {self.help}\n# TYPE {name} {self.kind}\n"
        for labels, value in values.items():
            if isinstance(value, Histogram):
                yield from value.lines(self, labels)
            else:
                yield f"{name}{_braces(self.labels, labels)} {_number(value)}\n"


@dataclass(slots=True)
class Histogram:
    """Observations of one series."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, family: Family, labels: Labels) -> Iterator[str]:
        below = 0
        for bound, count in zip((*map(_number, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield f"{family.name}_bucket{_braces((*family.labels, 'le'), (*labels, bound))} {below}\n"
        braces = _braces(family.labels, labels)
        yield f"{family.name}_sum{braces} {_number(self.total)}\n{family.name}_count{braces} {below}\n"


def _braces(names: Labels, values: Labels) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}" if names else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
