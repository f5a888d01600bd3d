"""Which counter of CUPTI is which metric, and what a burst of samples says of a GPU and of single kernels. Pure.

Names are those of NVIDIA's performance monitors as CUPTI 13 spells them. Tests ask its library, which needs no GPU for
that, whether Hopper (GH100), Blackwell (GB100), Ampere (GA100) and Ada (AD102) know them. Which of them fit into one
pass is known only on the card: a set that does not is refused there, and its next form is tried.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple


class Sample(NamedTuple):
    """What the counters of a set counted between two times (ns), in the order of the set."""

    start: int
    end: int
    values: tuple[float, ...]


class Kernel(NamedTuple):
    """A kernel that ran from start to end (ns)."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Burst:
    """samples: one set's, in time order. kernels: those of this process that ended in the burst. window: when it began
    and ended, on the clock of the kernels, which samples need not share."""

    samples: Sequence[Sample]
    kernels: Sequence[Kernel]
    window: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that are collected together, in one pass. counts: metric of each (with attributes). ratio: metric of
    hits / (hits + misses), of the first two. mean: metric of the mean over time of the first, a percentage. less: what
    it tells less than the form before it, and why that is so."""

    counters: tuple[str, ...]
    counts: tuple[tuple[str, tuple[tuple[str, str], ...]] | None, ...] = ()
    ratio: str = ""
    mean: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    less: tuple[str, str] | None = None


_INSTRUCTIONS, _DIRECTION = "hitmap.gpu.tensor.instructions", "disk.io.direction"
_NO_MORE = "this GPU does not count more in one pass"


def _over_time(counter: str, metric: str) -> CounterSet:
    what = f"{metric} by accesses (it is a mean over time here), and the misses"
    return CounterSet((counter,), mean=metric, less=(what, _NO_MORE))


SETS: tuple[tuple[CounterSet, ...], ...] = (
    (
        CounterSet(
            (
                "l1tex__t_sectors_lookup_hit.sum",
                "l1tex__t_sectors_lookup_miss.sum",
                "sm__inst_executed_pipe_tensor.sum",
            ),
            (None, ("hitmap.gpu.l1.misses", ()), (_INSTRUCTIONS, ())),
            ratio="hitmap.gpu.l1.hit_ratio",
        ),
        CounterSet(
            ("l1tex__t_sectors_lookup_hit.sum", "l1tex__t_sectors_lookup_miss.sum"),
            (None, ("hitmap.gpu.l1.misses", ())),
            ratio="hitmap.gpu.l1.hit_ratio",
            less=(_INSTRUCTIONS, _NO_MORE),
        ),
        _over_time("l1tex__t_sector_hit_rate.pct", "hitmap.gpu.l1.hit_ratio"),
    ),
    (
        CounterSet(
            ("lts__t_sectors_lookup_hit.sum", "lts__t_sectors_lookup_miss.sum"),
            (None, ("hitmap.gpu.l2.misses", ())),
            ratio="hitmap.gpu.l2.hit_ratio",
        ),
        _over_time("lts__average_t_sector_hit_rate_realtime.pct", "hitmap.gpu.l2.hit_ratio"),
        _over_time("lts__t_sector_hit_rate.pct", "hitmap.gpu.l2.hit_ratio"),
    ),
    (
        CounterSet(
            ("dram__bytes_read.sum", "dram__bytes_write.sum"),
            (
                ("hitmap.gpu.dram.io", ((_DIRECTION, "read"),)),
                ("hitmap.gpu.dram.io", ((_DIRECTION, "write"),)),
            ),
        ),
    ),
    (
        CounterSet(
            ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",),
            mean="hitmap.gpu.tensor.active",
            attributes=(("hitmap.gpu.pipe", "any"),),
        ),
    ),
)
"""One set a burst, in turns; of each the forms, best first."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What the counters of a set counted, and in how many seconds."""

    values: tuple[float, ...]
    seconds: float

    @property
    def ratio(self) -> float | None:
        """Hits (the first) of hits and misses (the second); None where there were neither."""
        asked = self.values[0] + self.values[1]
        return self.values[0] / asked if asked > 0 else None


def summed(samples: Iterable[Sample]) -> Sums | None:
    """Sums over the samples; one with a number that is not one (a unit shared with another instance) counts nothing
    at all. None where no sample is left."""
    whole = [sample for sample in samples if sample.end > sample.start and all(map(_known, sample.values))]
    if not whole:
        return None
    values = tuple(map(math.fsum, zip(*(sample.values for sample in whole), strict=True)))
    return Sums(values, sum(sample.end - sample.start for sample in whole) * 1e-9)


def mean_over_time(samples: Iterable[Sample]) -> float | None:
    """Of the first counter, weighted by the samples' lengths; None where no sample tells."""
    whole = [sample for sample in samples if sample.end > sample.start and _known(sample.values[0])]
    seconds = sum(sample.end - sample.start for sample in whole)
    if not seconds:
        return None
    return math.fsum(sample.values[0] * (sample.end - sample.start) for sample in whole) / seconds


def same_clock(burst: Burst, slack: int = 1_000_000) -> bool:
    """Whether the samples lie in the window of the kernels' clock (slack: ns): if not, nothing can be joined."""
    began, ended = burst.window
    return bool(burst.samples) and (
        began - slack <= burst.samples[0].start and burst.samples[-1].end <= ended + slack
    )


def inside_one_kernel(burst: Burst) -> dict[str, list[Sample]]:
    """By kernel name, the samples during all of which that kernel ran and no other: only what they counted is its own.

    samples: in time order, not overlapping. A sample that touches a second kernel, of the same name or not, and one
    with idle time in it, are nobody's.
    """
    kernels = sorted(burst.kernels, key=lambda kernel: kernel.start)
    starts = [kernel.start for kernel in kernels]
    ends = sorted(kernel.end for kernel in kernels)
    longest = list(accumulate(kernels, _later))
    found: dict[str, list[Sample]] = {}
    for sample in burst.samples:
        begun = bisect_left(starts, sample.end)  # began before the sample's end
        over = bisect_right(ends, sample.start)  # had ended when the sample began
        if begun - over != 1:
            continue  # none ran in it, or several did
        only = longest[begun - 1]  # all others had ended, so it is the one that ends last
        if only.start <= sample.start and sample.end <= only.end:
            found.setdefault(only.name, []).append(sample)
    return found


def _later(one: Kernel, other: Kernel) -> Kernel:
    return one if one.end >= other.end else other


def _known(value: float) -> bool:
    return math.isfinite(value) and value >= 0
