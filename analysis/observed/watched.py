"""Processes, GPUs and hosts that probes watched, and their figures over time. None is what nothing tells, never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Key = tuple[str, str, str, str]
"""Host, pid, executable, GPU; empty for what it is not."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A process, a GPU (gpu is not empty) or a host with its probe (neither pid nor gpu).

    server: whose work it does, empty where nothing tells. figures: by the names of analysis.observed.figures; what no
    point tells has no entry.
    """

    host: str
    pid: int | None = None
    executable: str = ""
    gpu: str = ""
    product: str = ""
    port: str = ""
    server: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What tells it from all others."""
        return self.host, "" if self.pid is None else str(self.pid), self.executable, self.gpu

    @property
    def name(self) -> str:
        """Without its host."""
        if self.gpu:
            return f"{self.product or 'GPU'} {self.gpu}"
        return self.host if self.pid is None else f"{self.executable or 'process'} ({self.pid})"


@dataclass(frozen=True, slots=True)
class Hosts:
    """begin, end: microseconds since 1970. processes: those that took most CPU time first; gpus, probes: by host."""

    begin: int
    end: int
    processes: Sequence[Watched]
    gpus: Sequence[Watched]
    probes: Sequence[Watched]


@dataclass(frozen=True, slots=True)
class Lane:
    """A figure of one process or GPU over time: a value a bin, None where nothing tells."""

    of: Key
    figure: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Lanes:
    """begin, step: microseconds; bin n is [begin + n * step, begin + (n + 1) * step). in_flight: requests of the
    server that was asked for, on average of each bin, None where none was asked for."""

    begin: int
    step: int
    lanes: Sequence[Lane]
    in_flight: Sequence[float] | None = None
