"""When requests come: the arrival processes of an open-loop load, seeded.

poisson: independent callers, exponential gaps. uniform: a steady beat. burst: groups of BURST at once, the groups as a
Poisson process. All have the same mean rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

PROCESSES = ("poisson", "uniform", "burst")
BURST = 8


def arrivals(process: str, rate: float, seed: int) -> Iterator[float]:
    """Seconds after the start at which requests are due, without end. rate: requests a second on average."""
    random = Random(f"{seed}/arrivals")  # noqa: S311 - it is to be repeatable
    now = 0.0
    if process == "uniform":
        number = 0
        while True:
            yield number / rate
            number += 1
    size = BURST if process == "burst" else 1
    while True:
        now += random.expovariate(rate / size)
        for _ in range(size):
            yield now
