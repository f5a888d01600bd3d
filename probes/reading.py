"""What every sensor gives: readings of the metrics in cachemodel.observed, and why some are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Reading(NamedTuple):
    """One number of one sensor. metric: a name of cachemodel.observed.METRICS.

    value: of a counter the total since the sensor began, of a gauge the number now. source: the rung that counted.
    pid, tid: None where it is of the whole host (or GPU), or of the whole process. attributes: (key, value), keys as
    the table names them. running: share of the time in which a multiplexed counter counted; `value` is scaled up by it
    already.
    """

    metric: str
    value: float
    source: str
    pid: int | None = None
    tid: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    running: float = 1.0


class Gap(NamedTuple):
    """What a sensor cannot tell here. what: metrics or a short name; why: one sentence; needs: what would open it
    (package, capability, setting or hardware), empty where nothing does."""

    what: str
    why: str
    needs: str = ""


class Sensor(Protocol):
    """Reads on one thread. Nothing raises out of `read`: what fails becomes a gap, and its readings are left out."""

    def read(self) -> Sequence[Reading]:
        """All it knows now."""

    def gaps(self) -> Sequence[Gap]:
        """What it cannot tell, as of the last read."""

    def close(self) -> None:
        """Let go of descriptors and programs. Can be called again."""
