"""Where every source hands its data: durable when `put` returns, refused when full, never lost in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """One unit of intake.

    kind: which table family it is for, a key of `collector.kinds.KINDS`.
    payload: concatenable bytes in that kind's input format (see docs/architecture.md).
    rows: how many rows it will become (spans, data points, events, samples).
    """

    kind: str
    payload: bytes
    rows: int


class Backpressure(Exception):
    """The sink is full for now; the same entries may be offered again after `retry_after_s` seconds."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"the spool is full; try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class Sink(Protocol):
    """Accepts entries all or none."""

    def put(self, entries: Sequence[Entry]) -> int:
        """Make the entries durable and return how many rows are new.

        Entries with the kind and bytes of one accepted before count as accepted and are not stored again.
        Raises Backpressure when there is no room for all of them.
        """
        ...
