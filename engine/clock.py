"""One clock for spans, events and metrics: Unix nanoseconds that never go back while the process lives."""

from __future__ import annotations

import time

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Nanoseconds since 1970. Times of one process differ by what really passed, also when the wall clock is set."""
    return time.monotonic_ns() + _OFFSET_NS
