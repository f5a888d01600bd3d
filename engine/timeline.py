"""Where a request's time went: intervals that follow each other without a gap."""

from __future__ import annotations

from dataclasses import dataclass, field

Value = str | int | float | bool


@dataclass(slots=True)
class Interval:
    """layer: a serving layer's name (cachemodel.layers); times in Unix nanoseconds; end_ns 0 while it is open.

    spent: what the thread that worked for it counted, by the names of cachemodel.observed.SPAN_COUNTERS; empty where
    none did.
    """

    layer: str
    start_ns: int
    end_ns: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)


class Timeline:
    """A request's intervals from its arrival on. One thread writes at a time.

    An interval begins where the one before ends, so that their lengths add up to the request's by construction.
    """

    def __init__(self, layer: str, start_ns: int) -> None:
        self.intervals = [Interval(layer, start_ns)]

    @property
    def start_ns(self) -> int:
        return self.intervals[0].start_ns

    @property
    def end_ns(self) -> int:
        """0 while the last interval is open."""
        return self.intervals[-1].end_ns

    @property
    def layer(self) -> str:
        """Of the last interval."""
        return self.intervals[-1].layer

    def enter(self, layer: str, now_ns: int, **attributes: Value) -> Interval:
        """End the open interval and begin the next, also where the layer stays the same (a prefill's next chunk)."""
        last = self.intervals[-1]
        last.end_ns = max(now_ns, last.start_ns)
        interval = Interval(layer, last.end_ns, attributes=attributes)
        self.intervals.append(interval)
        return interval

    def note(self, **attributes: Value) -> None:
        """Say more of the open interval."""
        self.intervals[-1].attributes.update(attributes)

    def spend(self, name: str, amount: float) -> None:
        """Add to what was spent in the open interval."""
        spent = self.intervals[-1].spent
        spent[name] = spent.get(name, 0.0) + amount

    def spent(self) -> dict[str, float]:
        """Of all intervals together."""
        total: dict[str, float] = {}
        for interval in self.intervals:
            for name, amount in interval.spent.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def close(self, now_ns: int) -> None:
        """End the last interval."""
        last = self.intervals[-1]
        last.end_ns = max(now_ns, last.start_ns)

    def layer_ns(self) -> dict[str, int]:
        """Nanoseconds by layer, of the intervals that have ended."""
        total: dict[str, int] = {}
        for interval in self.intervals:
            if interval.end_ns:
                total[interval.layer] = total.get(interval.layer, 0) + interval.end_ns - interval.start_ns
        return total
