"""One GPU, or one MIG instance of it: what it tells, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cachemodel import observed
from probes.gpu.nvml import DEVICE_GONE, DRIVER_GONE, FOR_GOOD, INVALID_ARGUMENT, NO_PERMISSION, Nvml, Refused
from probes.gpu.samples import GpmSamples
from probes.gpu.table import (
    PROCESSES,
    ROWS,
    THROTTLE_BITS,
    THROTTLE_KNOWN,
    THROTTLED,
    Ask,
    Attributes,
    Call,
    Field,
    Gpm,
    Row,
)
from probes.gpu.totals import Totals
from probes.reading import Gap, Reading

ASK_AGAIN_S = 60.0
"""After which what was refused for lack of permission is asked again: somebody may have given it."""
NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE of 64 bits."""
_WENT_BACK = "the device's counter went back: what it counted since the last read is unknown and left out"
_USAGE, _REASON = "hw.gpu.memory.usage", "hitmap.gpu.throttle.reason"
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t, by nvmlValueType_t."""
_NARROW = (1, 5, 6)
"""Types of 32 bits and fewer: a byte counter so narrow wraps within a read at the speed of PCIe."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device is. handle: NVML's, of a MIG instance that one's; whole: that of the GPU it is a part of, and
    instance its GPU instance's id, both None for a whole GPU. split: a GPU in MIG mode, whose instances tell of their
    processes themselves."""

    uuid: str
    name: str
    handle: Any
    whole: Any = None
    instance: int | None = None
    split: bool = False

    @property
    def attributes(self) -> Attributes:
        """Of every reading of it."""
        return ((observed.GPU_ID, self.uuid), (observed.GPU_NAME, self.name))


class Device:
    """Reads one device. What it refuses for good is not asked again, and every metric left out has its reason."""

    def __init__(self, nvml: Nvml, place: Place, totals: Totals, clock: Callable[[], float]) -> None:
        self.place = place
        self._nvml, self._totals, self._clock = nvml, totals, clock
        self._samples = GpmSamples(nvml, place.handle if place.whole is None else place.whole, place.instance)
        self._rows = [row for row in ROWS if place.whole is None or row.instance]
        self._labels = {row: (*row.attributes, *place.attributes) for row in self._rows}
        self._expected = list(self._expect())
        self._refusals: dict[Ask, tuple[Refused, float]] = {}
        """Why, and when to ask again (infinity: never)."""
        self._calls_of: list[tuple[Row, Call]] = []
        self._fields_of: list[tuple[Row, Field]] = []
        self._gpm_of: list[tuple[Row, Gpm]] = []
        self._wanted_until = -math.inf
        self._readings: list[Reading] = []
        self._told: dict[Ask, Refused] = {}
        self._back: list[tuple[str, Attributes]] = []
        self._counted: dict[tuple[str, Attributes], Row] = {}
        """Counters that this read had a number of, and where from."""
        self._calls: dict[tuple[str, tuple[int, ...]], Any] = {}
        totals.pause()

    def read(self) -> list[Reading]:
        """All it knows now. Raises Refused where the device, or the driver, is gone."""
        self._readings, self._calls, self._back, self._counted = [], {}, [], {}
        self._told = {ask: refusal for ask, (refusal, _) in self._refusals.items()}
        if self._clock() >= self._wanted_until:
            self._want()
        for row, call in self._calls_of:
            self._take(row, self._called(call))
        self._fields(self._fields_of)
        self._gpm(self._gpm_of)
        self._count()
        self._throttling()
        if not self.place.split:
            self._processes()
        return self._readings

    def gaps(self) -> Iterator[Gap]:
        """What the last read left out, one gap a reason."""
        if not (self._told or self._back):
            return
        told = {(reading.metric, reading.attributes) for reading in self._readings}
        because: dict[tuple[str, str], list[tuple[str, Attributes]]] = {}
        for metric, attributes, asks in self._expected:
            refusals = [self._told[ask] for ask in asks if ask in self._told]
            if refusals and (metric, (*attributes, *self.place.attributes)) not in told:
                last = refusals[-1]
                because.setdefault((last.why, last.needs), []).append((metric, attributes))
        if self._back:
            because[_WENT_BACK, ""] = self._back
        for (why, needs), what in because.items():
            yield Gap(f"{_listed(what)} of {self.place.name} {self.place.uuid}", why, needs)

    def close(self) -> None:
        """Lets go of its samples."""
        self._samples.close()

    def _expect(self) -> Iterator[tuple[str, Attributes, list[Ask]]]:
        """Every metric that this device should tell, and whom it asks, the last resort last."""
        asks: dict[tuple[str, Attributes], list[Ask]] = {}
        for row in sorted(self._rows, key=lambda row: row.rung):
            asks.setdefault((row.metric, row.attributes), []).append(row.ask)
        yield from ((metric, attributes, asked) for (metric, attributes), asked in asks.items())
        if self.place.whole is None:
            yield "hitmap.gpu.throttled", (), [THROTTLED, THROTTLE_KNOWN]
        if not self.place.split:
            for what, call in PROCESSES.items():
                yield what, (), [call]

    def _want(self) -> None:
        """Of each metric the rows of the lowest rung that is not refused for good, less those refused until later;
        until when that stays so, if nothing is refused meanwhile."""
        rung: dict[tuple[str, Attributes], int] = {}
        for row in self._rows:
            if self._refusals.get(row.ask, (None, 0.0))[1] != math.inf:
                key = (row.metric, row.attributes)
                rung[key] = min(row.rung, rung.get(key, row.rung))
        self._calls_of, self._fields_of, self._gpm_of = [], [], []
        for row in self._rows:
            if rung.get((row.metric, row.attributes)) != row.rung or not self._may_ask(row.ask):
                continue
            match row.ask:
                case Call():
                    self._calls_of.append((row, row.ask))
                case Field():
                    self._fields_of.append((row, row.ask))
                case Gpm():
                    self._gpm_of.append((row, row.ask))
        later = (again for _, again in self._refusals.values() if again > self._clock())
        self._wanted_until = min(later, default=math.inf)

    def _may_ask(self, ask: Ask) -> bool:
        return ask not in self._refusals or self._refusals[ask][1] <= self._clock()

    def _refuse(self, ask: Ask, refusal: Refused) -> None:
        if refusal.code in DRIVER_GONE | DEVICE_GONE:
            raise refusal
        self._told[ask] = refusal
        if refusal.code in FOR_GOOD:
            self._refusals[ask], self._wanted_until = (refusal, math.inf), -math.inf
        elif refusal.code == NO_PERMISSION:
            self._refusals[ask], self._wanted_until = (refusal, self._clock() + ASK_AGAIN_S), -math.inf

    def _granted(self, ask: Ask) -> None:
        self._refusals.pop(ask, None)
        self._told.pop(ask, None)

    def _called(self, ask: Call) -> Any:
        """What the call gives, its member where it names one; None where it is refused. Each is made once a read."""
        plain = (ask.function, ask.arguments)
        if plain not in self._calls:
            try:
                self._calls[plain] = self._nvml.call(ask.function, self.place.handle, *ask.arguments)
            except Refused as refusal:
                self._calls[plain] = refusal
        answer = self._calls[plain]
        if isinstance(answer, Refused):
            self._refuse(ask, answer)
            return None
        self._granted(ask)
        return getattr(answer, ask.member) if ask.member else answer

    def _fields(self, rows: list[tuple[Row, Field]]) -> None:
        if not rows:
            return
        ids = [(ask.id, ask.scope) for _, ask in rows]
        try:
            values = self._nvml.call("nvmlDeviceGetFieldValues", self.place.handle, ids)
        except Refused as refusal:
            if refusal.code == INVALID_ARGUMENT and len(rows) > 1:
                for single in rows:  # a driver that knows not all of them: each by itself shows which
                    self._fields([single])
                return
            for _, ask in rows:
                self._refuse(ask, refusal)
            return
        for (row, ask), value in zip(rows, values, strict=True):
            if value.nvmlReturn:
                self._refuse(ask, Refused(value.nvmlReturn))
            elif value.valueType in _NARROW and observed.BY_NAME[row.metric].unit == "By":
                why = "the driver counts it in 32 bits, which wrap between two reads"
                self._refuse(ask, Refused(INVALID_ARGUMENT, why))
            elif value.valueType >= len(_MEMBERS):
                self._refuse(ask, Refused(INVALID_ARGUMENT, f"its type {value.valueType} is unknown"))
            else:
                self._granted(ask)
                self._take(row, getattr(value.value, _MEMBERS[value.valueType]))

    def _gpm(self, rows: list[tuple[Row, Gpm]]) -> None:
        if not rows:
            return
        try:
            seconds, values = self._samples.between([ask.id for _, ask in rows], self._clock)
        except Refused as refusal:
            for _, ask in rows:
                self._refuse(ask, refusal)
            return
        for (row, ask), value in zip(rows, values, strict=True):
            if isinstance(value, Refused):
                self._refuse(ask, value)
                continue
            self._granted(ask)
            self._take(row, value * (seconds if ask.per_second else 1.0))

    def _take(self, row: Row, raw: Any) -> None:
        if raw is None:
            return
        value = float(raw) * row.scale
        if not math.isfinite(value) or value < 0 or raw == NOT_AVAILABLE:
            self._told[row.ask] = Refused(0, "the driver says it is not available", "")
        elif observed.BY_NAME[row.metric].kind == "gauge":
            self._readings.append(Reading(row.metric, value, row.source, attributes=self._labels[row]))
        else:
            key = (row.metric, row.attributes)
            self._counted[key] = row
            if isinstance(row.ask, Gpm):
                self._totals.add(key, value)
            elif not self._totals.seen(key, row.ask, value):
                self._back.append(key)

    def _count(self) -> None:
        for key, row in self._counted.items():
            total = self._totals.of(key)
            if total is not None:
                self._readings.append(Reading(row.metric, total, row.source, attributes=self._labels[row]))

    def _throttling(self) -> None:
        if self.place.whole is not None or not (self._may_ask(THROTTLED) and self._may_ask(THROTTLE_KNOWN)):
            return
        known, now = self._called(THROTTLE_KNOWN), self._called(THROTTLED)
        if known is None or now is None:
            return
        for bit, reason in THROTTLE_BITS:
            if known & bit:
                held = float(bool(now & bit))
                labels = ((_REASON, reason), *self.place.attributes)
                self._readings.append(Reading("hitmap.gpu.throttled", held, "nvml", attributes=labels))

    def _processes(self) -> None:
        seen: dict[int, float] = {}
        for ask in PROCESSES.values():
            for process in (self._called(ask) or ()) if self._may_ask(ask) else ():
                if process.usedGpuMemory is None or process.usedGpuMemory == NOT_AVAILABLE:
                    self._told[ask] = Refused(
                        0, f"the driver does not tell the memory of process {process.pid}"
                    )
                else:
                    seen.setdefault(process.pid, float(process.usedGpuMemory))
        for pid, used in seen.items():
            self._readings.append(Reading(_USAGE, used, "nvml", pid, attributes=self.place.attributes))


def _listed(metrics: Iterable[tuple[str, Attributes]]) -> str:
    """`a, b (c, d)`: each metric once, with the values of its attributes."""
    values: dict[str, dict[str, None]] = {}
    for metric, attributes in metrics:
        values.setdefault(metric, {}).update((value, None) for _, value in attributes)
    return ", ".join(f"{metric} ({', '.join(of)})" if of else metric for metric, of in values.items())
