"""One request as five observation layers saw it.

Times are microseconds after the request's arrival. None is what nothing tells, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cachemodel.layers import ObservationLayer

Point = tuple[float, float, float]
"""Begin, end and value of a point: of a counter what it grew by in between, of a gauge its value (begin = end)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of the request's trace. layer: its serving layer, empty where it names none. depth: 0 for a root. counted:
    by the names of cachemodel.observed.SPAN_COUNTERS. own: it is the request itself or below it."""

    span_id: str
    parent_id: str
    name: str
    service: str
    start_us: float
    duration_us: float
    depth: int
    layer: str = ""
    status: str = ""
    own: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that does a server's work. by: how that is known: `spans` (they name it), `name` (whoever started the
    probe said so) or `port`."""

    host: str
    pid: int
    executable: str
    by: str

    @property
    def name(self) -> str:
        """Without its host."""
        return f"{self.executable or 'process'} ({self.pid})"


@dataclass(frozen=True, slots=True)
class Observed:
    """A number of one observation layer.

    metric: a name of cachemodel.observed; attributes: what it is told apart by. of: whose it is, in words, such as
    `the request` or `python3 (4711)`. value: of a counter the sum over the request's time, of a gauge the mean of its
    points. share: the request's part of the work that went on meanwhile, 1 where it was counted for it alone; None for
    gauges.
    low, high: of the points of a gauge. source: which rung counted. points: what it rests on. covered: of a counter of
    a process or GPU, the part of the request's time in which its source was there to count; nothing is made up for the
    rest. own: the threads that worked for the request counted it, for it alone.
    """

    layer: ObservationLayer
    metric: str
    attributes: Mapping[str, str]
    unit: str
    meaning: str
    of: str
    value: float
    share: float | None
    source: str
    points: int
    low: float | None = None
    high: float | None = None
    series: Sequence[Point] = ()
    covered: float | None = None
    own: bool = False

    @property
    def estimate(self) -> float | None:
        """The request's own part of a counter."""
        return None if self.share is None else self.value * self.share


@dataclass(frozen=True, slots=True)
class Missing:
    """A layer that nothing tells of, and what would."""

    layer: ObservationLayer
    why: str
    do: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A request with all that was seen of it. layers: (serving layer, us), in the order in which they are passed, those
    that are known. together: requests of its server in flight with it, on average, itself included."""

    request_id: str
    server: str
    model: str
    time: str
    e2e_us: float | None
    ttft_us: float | None
    tokens: Mapping[str, int]
    labels: Mapping[str, str]
    layers: Sequence[tuple[str, float]]
    spans: Sequence[Span]
    processes: Sequence[Process]
    observed: Sequence[Observed]
    missing: Sequence[Missing]
    together: float | None
    notes: Sequence[str] = ()
    finish_reason: str = ""
    preemptions: int | None = None
