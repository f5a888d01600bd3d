"""All NVIDIA GPUs and MIG instances of this host, through NVML and GPM."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from probes.gpu.device import Device, Place
from probes.gpu.nvml import DEVICE_GONE, DRIVER_GONE, UNKNOWN, Nvml, Refused
from probes.gpu.totals import Totals
from probes.reading import Gap, Reading

LIST_S = 10.0
"""How often GPUs and MIG instances are listed anew: instances come and go while the driver stays."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""What is gone is tried again after 1, 2, 4 ... 60 s."""
BUDGET_S = 0.1
"""A read that took so long leaves the devices that are not read yet to the next one."""


class Backoff:
    """When (`at`) to try again what failed."""

    def __init__(self) -> None:
        self.at, self._wait = 0.0, FIRST_WAIT_S

    def due(self, now: float) -> bool:
        """Whether it may be tried."""
        return now >= self.at

    def failed(self, now: float) -> None:
        """Doubles the wait after the next."""
        self.at, self._wait = now + self._wait, min(2 * self._wait, LONGEST_WAIT_S)


class GpuSensor:
    """A sensor of `probes.reading`. No privilege is needed for most of it, and no CUDA context.

    read_s: seconds that the last read took; NVML's calls cannot be broken off, but none is begun for a further device
    once a read took `budget_s`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, budget_s: float = BUDGET_S) -> None:
        self._clock, self._budget_s = clock, budget_s
        self._nvml: Nvml | None = None
        self._started = self._closed = False
        self._start = Backoff()
        self._list_at = 0.0
        self._devices: dict[str, Device] = {}
        self._gone: dict[str, Backoff] = {}
        self._absent: dict[str, Gap] = {}
        self._gaps: list[Gap] = []
        self._first = 0
        self._totals: defaultdict[str, Totals] = defaultdict(Totals)
        self.read_s = 0.0

    def read(self) -> Sequence[Reading]:
        """All that the devices know now; the first read of a device gives no GPM metrics yet."""
        began = self._clock()
        self._gaps = []
        readings: list[Reading] = []
        try:
            if self._ready():
                readings = self._read_devices(began)
        except Refused as refusal:
            self._stop(refusal)
        self._gaps += self._absent.values()
        self.read_s = self._clock() - began
        return readings

    def gaps(self) -> Sequence[Gap]:
        """What the last read could not tell."""
        return self._gaps

    def close(self) -> None:
        """Lets go of the samples and of NVML."""
        if not self._closed:
            self._release()
        self._closed = True

    def _ready(self) -> bool:
        now = self._clock()
        if self._closed or not (self._started or self._start.due(now)):
            return False
        if not self._started:
            self._nvml = self._nvml or Nvml()
            self._nvml.call("nvmlInit")
            self._started, self._list_at = True, now
            self._absent = {}
        if now >= self._list_at:
            self._list(now)
            self._start = Backoff()
            self._list_at = min(
                [now + LIST_S, *(gone.at for gone in self._gone.values() if not gone.due(now))]
            )
        return True

    def _read_devices(self, began: float) -> list[Reading]:
        """Begins where the last read stopped, so that every device gets its turn."""
        order = list(self._devices.values())
        order = order[self._first % len(order) :] + order[: self._first % len(order)] if order else []
        readings: list[Reading] = []
        for place, device in enumerate(order):
            if place and self._clock() - began > self._budget_s:
                self._first += place
                left = ", ".join(device.place.uuid for device in order[place:])
                why = f"reading took more than {self._budget_s * 1e3:.0f} ms; the next read begins there"
                self._gaps.append(Gap(left, why, "reads that are further apart"))
                return readings
            try:
                readings += device.read()
                self._gaps += device.gaps()
                self._gone.pop(device.place.uuid, None)
            except Refused as refusal:
                if refusal.code in DRIVER_GONE:
                    raise
                self._lose(device.place.uuid, refusal)
            except Exception as error:  # neither the other devices nor the host process may pay for it
                why = f"its reading failed: {error!r}"
                self._lose(device.place.uuid, Refused(UNKNOWN, why, "a report of this"))
        return readings

    def _lose(self, key: str, refusal: Refused) -> None:
        device = self._devices.pop(key, None)
        if device:
            device.close()
        gone = self._gone.setdefault(key, Backoff())
        gone.failed(self._clock())
        self._list_at = min(self._list_at, gone.at)
        self._absent[key] = Gap(key, refusal.why, refusal.needs)

    def _stop(self, refusal: Refused) -> None:
        """The driver is gone: everything is let go, and NVML is initialised again after a while."""
        self._release()
        self._start.failed(self._clock())
        self._absent = {"": Gap("all GPUs", refusal.why, refusal.needs)}

    def _release(self) -> None:
        for device in self._devices.values():
            device.close()
        self._devices, self._gone = {}, {}
        if self._started and self._nvml:
            with contextlib.suppress(Refused):  # it is down already
                self._nvml.call("nvmlShutdown")
        self._started = False

    def _list(self, now: float) -> None:
        found: dict[str, Place] = {}
        absent: dict[str, Gap] = {}
        for index in range(self._call("nvmlDeviceGetCount")):
            try:
                for place in self._places(index):
                    found[place.uuid] = place
            except Refused as refusal:
                if refusal.code in DRIVER_GONE:
                    raise
                absent[f"GPU {index}"] = Gap(f"GPU {index}", refusal.why, refusal.needs)
        if not found and not absent:
            absent[""] = Gap(
                "all GPUs", "the driver shows no GPU", "an NVIDIA GPU that this container may see"
            )
        for uuid in set(self._devices) - set(found):
            self._devices.pop(uuid).close()
        for uuid, place in found.items():
            if uuid in self._gone and not self._gone[uuid].due(now):
                absent[uuid] = self._absent[uuid]
            elif uuid not in self._devices or self._devices[uuid].place.split != place.split:
                self._devices[uuid] = Device(self._nvml_or_refuse(), place, self._totals[uuid], self._clock)
        self._absent = absent

    def _places(self, index: int) -> Iterator[Place]:
        """A GPU, and its MIG instances where it is split into them."""
        handle = self._call("nvmlDeviceGetHandleByIndex", index)
        uuid, name = self._call("nvmlDeviceGetUUID", handle), self._call("nvmlDeviceGetName", handle)
        split = self._mig(handle)
        yield Place(uuid, name, handle, split=split)
        for place in range(self._call("nvmlDeviceGetMaxMigDeviceCount", handle) if split else 0):
            try:
                part = self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
            except Refused as refusal:
                if refusal.code in DRIVER_GONE | DEVICE_GONE:
                    raise
                continue  # no instance in this place
            yield Place(
                self._call("nvmlDeviceGetUUID", part),
                self._call("nvmlDeviceGetName", part),
                part,
                handle,
                self._call("nvmlDeviceGetGpuInstanceId", part),
            )

    def _mig(self, handle: Any) -> bool:
        """A GPU that cannot be split, and a driver that does not tell, have no instances."""
        try:
            return bool(self._call("nvmlDeviceGetMigMode", handle)[0])
        except Refused as refusal:
            if refusal.code in DRIVER_GONE | DEVICE_GONE:
                raise
            return False

    def _nvml_or_refuse(self) -> Nvml:
        if self._nvml is None:
            raise Refused(1)
        return self._nvml

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._nvml_or_refuse().call(function, *arguments)
