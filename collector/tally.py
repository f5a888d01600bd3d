"""What came in, what was refused and what reached the store: counters every source and the writer share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock


@dataclass
class KindTally:
    """Counters of one kind, in rows (spans, points, events) unless a name says otherwise."""

    accepted: int = 0
    duplicates: int = 0
    written: int = 0
    retries: int = 0  # inserts whose answer was unclear or an error
    rejected: Counter[str] = field(default_factory=Counter)  # rows by reason
    last_error: str = ""  # the store's last complaint, empty once a batch went through


class Tally:
    """Thread-safe counters by kind; `snapshot` is what status lines and tests read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kinds: dict[str, KindTally] = {}

    def accepted(self, kind: str, offered: int, new: int) -> None:
        """Count rows a sink took: `offered` of them, of which `new` had not been seen before."""
        with self._lock:
            tally = self._of(kind)
            tally.accepted += new
            tally.duplicates += offered - new

    def rejected(self, kind: str, reason: str, rows: int) -> None:
        """Count rows refused for good. `reason` is a fixed phrase: it becomes a key."""
        with self._lock:
            self._of(kind).rejected[reason] += rows

    def written(self, kind: str, rows: int) -> None:
        """Count rows the store has."""
        with self._lock:
            tally = self._of(kind)
            tally.written += rows
            tally.last_error = ""

    def failed(self, kind: str, error: str) -> None:
        """Count one insert that did not go through; it will be tried again."""
        with self._lock:
            tally = self._of(kind)
            tally.retries += 1
            tally.last_error = error

    def snapshot(self) -> dict[str, KindTally]:
        """A copy by kind that stays as it is."""
        with self._lock:
            return {
                kind: KindTally(
                    t.accepted, t.duplicates, t.written, t.retries, Counter(t.rejected), t.last_error
                )
                for kind, t in self._kinds.items()
            }

    def _of(self, kind: str) -> KindTally:
        return self._kinds.setdefault(kind, KindTally())
