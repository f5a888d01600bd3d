"""Caches and pipes of a GPU through its performance monitors, in short bursts with long pauses.

Sampling all the time has cost servers more than half of their throughput, so the duty cycle is bounded here, by
construction: a burst that takes longer than planned makes the pause after it longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from cachemodel import observed
from cachemodel.errors import UserError
from probes.gpu.counters import (
    SETS,
    Burst,
    CounterSet,
    Sums,
    inside_one_kernel,
    mean_over_time,
    same_clock,
    summed,
)
from probes.gpu.nvml import FOR_GOOD, NO_PERMISSION, Refused
from probes.gpu.totals import Totals
from probes.reading import Gap, Reading

MOST = 0.05
"""Share of time in bursts that nobody may go beyond."""
_KERNEL = "hitmap.gpu.kernel"
_Attributes = tuple[tuple[str, str], ...]


class Collector(Protocol):
    """One GPU's performance monitors. Used by one thread."""

    def configure(self, counters: Sequence[str]) -> None:
        """Takes the GPU's monitors for these counters. Raises Refused: code 3 where they do not fit into one pass,
        NO_PERMISSION where this process may not."""

    def burst(self, seconds: float) -> Burst:
        """Samples for so long, and lets the monitors go. Raises Refused."""

    def close(self) -> None:
        """Lets everything go. Can be called again."""


class DutyCycle:
    """When the next burst may begin, so that bursts never take more than their share of the time since the first.

    burst_s: planned length; every_s: planned distance of their beginnings. Raises UserError beyond MOST.
    """

    def __init__(self, burst_s: float, every_s: float) -> None:
        if not 0 < burst_s <= MOST * every_s:
            raise UserError(
                f"bursts of {burst_s:g} s every {every_s:g} s: more than {MOST:.0%} of the time; "
                f"make them shorter, or rarer (at least every {burst_s / MOST:g} s)"
            )
        self.burst_s, self.every_s = burst_s, every_s
        self._next = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a burst may begin."""
        return max(0.0, self._next - now)

    def took(self, began: float, ended: float) -> None:
        """Takes in a burst, the setting up and letting go of the monitors included."""
        share = self.burst_s / self.every_s
        self._next = began + max(self.every_s, (ended - began) / share)


class CuptiSensor:
    """A sensor of `probes.reading` with a thread of its own that samples one GPU; `read` only fetches.

    gpu: its UUID and name, as GpuSensor gives them. Counters of a burst stand for the time since the set's last one:
    they are scaled up to it, and `running` says from which share. A kernel is named only where it runs in this process
    and a sample lies wholly inside it.
    """

    def __init__(
        self,
        collector: Collector,
        gpu: tuple[str, str],
        burst_s: float = 0.1,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._duty = DutyCycle(burst_s, every_s)
        self._collector, self._clock = collector, clock
        self._gpu: _Attributes = ((observed.GPU_ID, gpu[0]), (observed.GPU_NAME, gpu[1]))
        self._forms = [list(forms) for forms in SETS]
        self._turn = 0
        self._counted_to = dict.fromkeys(range(len(SETS)), clock())
        self._totals, self._running = Totals(), dict[tuple[str, _Attributes], float]()
        self._fresh: list[Reading] = []
        self._gaps: dict[int, list[Gap]] = {}
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to sample, from a daemon thread."""
        self._thread = threading.Thread(target=self._run, name="hitmap-cupti", daemon=True)
        self._thread.start()

    def read(self) -> Sequence[Reading]:
        """Gauges of the bursts since the last read, and all totals."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            for (metric, attributes), running in self._running.items():
                total = self._totals.of((metric, attributes)) or 0.0
                fresh.append(self._reading(metric, total, attributes, running))
        return fresh

    def gaps(self) -> Sequence[Gap]:
        """What the last bursts could not tell."""
        with self._lock:
            return [gap for gaps in self._gaps.values() for gap in gaps]

    def close(self) -> None:
        """Ends the thread after the burst that it is in, and lets the GPU's monitors go."""
        self._stopped.set()
        if self._thread is None:
            self._collector.close()
        else:
            self._thread.join(timeout=self._duty.burst_s + 5)

    def due_in(self) -> float:
        """Seconds until the next burst may begin."""
        return self._duty.wait(self._clock())

    def _run(self) -> None:
        try:
            while any(self._forms) and not self._stopped.wait(self.due_in()):
                self.once()
        finally:
            self._collector.close()

    def once(self) -> None:
        """One burst, of the set whose turn it is; none before one is due. What fails becomes a gap."""
        if self.due_in() > 0:
            return
        turns = [(self._turn + step) % len(SETS) for step in range(len(SETS))]
        turn = next((turn for turn in turns if self._forms[turn]), None)
        if turn is None:
            return
        self._turn = turn + 1
        form, began = self._forms[turn][0], self._clock()
        try:
            self._collector.configure(form.counters)
            burst = self._collector.burst(self._duty.burst_s)
            ended = self._clock()
            with self._lock:
                self._gaps[turn] = []
                self._decode(turn, form, burst, ended)
        except Refused as refusal:
            self._refused(turn, form, refusal)
        except Exception as error:  # the edge to a third party's C library: nothing of it may reach a server
            self._refused(turn, form, Refused(0, f"CUPTI failed: {error!r}"))
        finally:
            self._duty.took(began, self._clock())

    def _refused(self, turn: int, form: CounterSet, refusal: Refused) -> None:
        what = ", ".join(form.counters)
        with self._lock:
            if refusal.code == NO_PERMISSION:
                self._forms = [[] for _ in SETS]  # the rights of a process stay as they are
                what = "L1/TEX, L2, DRAM and tensor counters"
            elif refusal.code in FOR_GOOD:
                self._forms[turn].pop(0)
            self._gaps[turn] = [Gap(f"{what} of {self._gpu[0][1]}", refusal.why, refusal.needs)]

    def _decode(self, turn: int, form: CounterSet, burst: Burst, ended: float) -> None:
        whole = summed(burst.samples)
        if whole is None:
            raise Refused(
                0,
                "the burst gave no sample with numbers in it",
                "a GPU, or a MIG compute instance that has its GPU instance to itself",
            )
        since, self._counted_to[turn] = self._counted_to[turn], ended
        passed = max(ended - since, whole.seconds)
        if form.less:
            what, why = form.less
            self._gaps[turn].append(Gap(f"{what} of {self._gpu[0][1]}", why))
        self._tell(form, burst, whole, (), whole.seconds / passed)
        if not burst.kernels:
            return
        if not same_clock(burst):
            what = f"{form.counters[0]} by kernel of {self._gpu[0][1]}"
            self._gaps[turn].append(Gap(what, "samples and kernels are not on one clock here"))
            return
        for name, samples in inside_one_kernel(burst).items():
            own = summed(samples)
            if own is not None:
                part = Burst(samples, (), burst.window)
                self._tell(form, part, own, ((_KERNEL, name),), whole.seconds / passed)
        if turn == 0:  # the first set's bursts tell how long kernels ran: each counted once
            for kernel in burst.kernels:
                inside = min(kernel.end, burst.window[1]) - max(kernel.start, burst.window[0])
                key = ("hitmap.gpu.kernel.time", ((_KERNEL, kernel.name),))
                self._add(key, max(0, inside) * 1e-9, whole.seconds / passed)

    def _tell(self, form: CounterSet, burst: Burst, sums: Sums, of: _Attributes, running: float) -> None:
        if form.mean:
            mean = mean_over_time(burst.samples)
            if mean is not None:
                self._fresh.append(self._reading(form.mean, mean / 100, (*form.attributes, *of)))
        if form.ratio and sums.ratio is not None:
            self._fresh.append(self._reading(form.ratio, sums.ratio, of))
            if of and len(sums.values) > 2 and sums.values[2] > 0:
                self._fresh.append(self._reading("hitmap.gpu.tensor.miss_ratio", 1 - sums.ratio, of))
        for count, value in zip(form.counts, sums.values, strict=False):
            if count is not None:
                self._add((count[0], (*count[1], *of)), value, running)

    def _add(self, key: tuple[str, _Attributes], value: float, running: float) -> None:
        self._totals.add(key, value / running)
        self._running[key] = running

    def _reading(self, metric: str, value: float, attributes: _Attributes, running: float = 1.0) -> Reading:
        return Reading(metric, value, "cupti", attributes=(*attributes, *self._gpu), running=running)
