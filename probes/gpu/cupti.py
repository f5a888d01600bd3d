"""The collector on CUPTI itself. Not verified on hardware.

Written against cupti-python 13.4 (cupti.pm_sampling.Collector, cupti.cupti) and its headers. What they say: sampling is
enabled on a device by its index, by one session at a time, and needs the right to read performance counters; each
process tells only of its own kernels. What they leave open, and what therefore stands as a gap until a card shows it:
whether kernels of other processes are in the counters, and whether samples and kernels share a clock (the join checks).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import time
from collections.abc import Sequence
from typing import Any

from probes.gpu.counters import Burst, Kernel, Sample
from probes.gpu.nvml import INSTALL_CUPTI, NO_PERMISSION, Refused

BUFFER_BYTES = 64 << 20
"""Of the GPU's memory, for raw samples of one burst."""
INTERVAL_NS = 100_000
"""Of GPU time between samples: a burst of 100 ms gives a thousand."""
MAX_SAMPLES = 20_000
NOT_SUPPORTED = 3
PERMISSION = "root, CAP_SYS_ADMIN, or the driver's option NVreg_RestrictProfilingToAdminUsers=0"


class CuptiCollector:
    """A `Collector` of bursts. device: CUDA's index of the GPU, which CUDA_VISIBLE_DEVICES renumbers.

    Keeps the GPU's primary context while open: a server has it anyway, another process pays device memory for it.
    Records of kernels go to one taker a process: not beside torch.profiler. Raises Refused where CUPTI or the driver's
    CUDA library is missing.
    """

    def __init__(self, device: int = 0) -> None:
        try:
            self._cupti: Any = importlib.import_module("cupti.cupti")
            self._sampling: Any = importlib.import_module("cupti.pm_sampling")
        except ImportError as error:
            raise Refused(
                0, f"the Python package cupti-python is not usable: {error}", INSTALL_CUPTI
            ) from error
        self._device, self._context = device, _Context(device)
        self._collector: Any = None
        self._kernels: list[Kernel] = []
        self._registered = False

    def configure(self, counters: Sequence[str]) -> None:
        """See Collector."""
        self._context.enter()
        collector = self._sampling.Collector(self._device)
        try:
            collector.enable()
            self._collector = collector
            collector.configure(
                metrics=list(counters), hardware_buffer_size=BUFFER_BYTES, sampling_interval=INTERVAL_NS
            )
        except PermissionError as error:
            self._let_go()
            raise Refused(
                NO_PERMISSION, "the driver keeps its counters to administrators", PERMISSION
            ) from error
        except ValueError as error:
            self._let_go()
            raise Refused(NOT_SUPPORTED, f"CUPTI does not collect these together: {error}") from error
        except Exception as error:
            self._let_go()
            raise Refused(
                0, f"CUPTI failed: {error}", "no other profiler (DCGM, Nsight) on this GPU"
            ) from error

    def burst(self, seconds: float) -> Burst:
        """See Collector."""
        kind = self._cupti.ActivityKind.CONCURRENT_KERNEL
        self._kernels = []
        try:
            if not self._registered:
                self._cupti.activity_register_callbacks(_room, self._completed)
                self._registered = True
            self._cupti.activity_enable(kind)
            began = int(self._cupti.get_timestamp())
            self._collector.start()
            time.sleep(seconds)
            self._collector.stop()
            ended = int(self._cupti.get_timestamp())
            self._cupti.activity_flush_all(1)  # also buffers that are not full
            decoded = self._collector.decode(MAX_SAMPLES)
            samples = [
                Sample(int(one.start_timestamp), int(one.end_timestamp), tuple(map(float, one.metric_values)))
                for one in decoded
            ]
        except Exception as error:
            raise Refused(0, f"CUPTI failed in a burst: {error}") from error
        finally:
            with contextlib.suppress(Exception):  # it may be the very thing that failed
                self._cupti.activity_disable(kind)
            self._let_go()
        samples.sort()
        return Burst(samples, tuple(self._kernels), (began, ended))

    def close(self) -> None:
        """See Collector."""
        self._let_go()
        self._context.leave()

    def _let_go(self) -> None:
        if self._collector is not None:
            with contextlib.suppress(Exception):  # the driver may be gone; there is nothing left to free then
                self._collector.disable()
        self._collector = None

    def _completed(self, activities: list[Any]) -> None:
        """Called by CUPTI with records that are complete."""
        for record in activities:
            ours = (
                record.kind == self._cupti.ActivityKind.CONCURRENT_KERNEL and record.device_id == self._device
            )
            if ours and record.end > record.start > 0:  # else it runs still, or was not timed
                self._kernels.append(Kernel(str(record.name), int(record.start), int(record.end)))


def _room() -> tuple[int, int]:
    """Bytes of a buffer of records, and how many may go into it (0: as many as fit)."""
    return 1 << 20, 0


class _Context:
    """The primary CUDA context of a device, kept by this process while entered."""

    def __init__(self, device: int) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            needs = "the NVIDIA driver's libraries in this host or container"
            raise Refused(0, "libcuda.so.1 is not found", needs) from error
        self._index, self._device = device, ctypes.c_int()
        self._held = False

    def enter(self) -> None:
        """Makes it current on this thread. Raises Refused."""
        if self._held:
            return
        context = ctypes.c_void_p()
        self._check("cuInit", 0)
        self._check("cuDeviceGet", ctypes.byref(self._device), self._index)
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._held = True
        self._check("cuCtxSetCurrent", context)

    def leave(self) -> None:
        """Gives it back. Can be called again."""
        if self._held:
            self._cuda.cuDevicePrimaryCtxRelease_v2(self._device)
        self._held = False

    def _check(self, function: str, *arguments: Any) -> None:
        error = int(getattr(self._cuda, function)(*arguments))
        if error:
            raise Refused(0, f"{function} of the CUDA driver failed with error {error}")
