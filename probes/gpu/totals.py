"""Counters that never go back, made of counters that do."""

from __future__ import annotations

from collections.abc import Hashable


class Totals:
    """What one device counted since the sensor began, by key; a key's total is the sum over its parts.

    A device's counter goes back when a driver is loaded again, when it wraps, and when it is reset. How much it had
    counted until then nobody knows, so that stretch adds nothing: a total is at most too small, and never falls.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, float] = {}
        self._total: dict[Hashable, float] = {}

    def seen(self, key: Hashable, part: Hashable, raw: float) -> bool:
        """Takes in what a device's counter shows now. False where it went back."""
        last = self._last.get((key, part), raw)
        self._last[key, part] = raw
        self.add(key, max(0.0, raw - last))
        return raw >= last

    def add(self, key: Hashable, amount: float) -> None:
        """Takes in what was counted since the last time."""
        self._total[key] = self._total.get(key, 0.0) + amount

    def of(self, key: Hashable) -> float | None:
        """None where nothing was taken in yet."""
        return self._total.get(key)

    def pause(self) -> None:
        """What comes next is where counting goes on from: the device was away, and others may have counted for it."""
        self._last.clear()
