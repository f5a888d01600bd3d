"""The sensors that are asked for, as far as this host has them. Imported only when used: each has needs of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from probes.daemon.loop import Watch
from probes.reading import Gap

GPU_EVERY_S = 0.5
"""GPM needs 100 ms between two samples, and drivers renew most figures a few times a second."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """kernel, pmu, gpu, cupti: which sensors. threads: numbers by thread, too. waits: locks and off-CPU time, which
    cost more than faults do. every_s: seconds between two readings."""

    kernel: bool = True
    pmu: bool = True
    gpu: bool = True
    cupti: bool = False
    threads: bool = False
    waits: bool = False
    every_s: float = 0.1


def opened(wanted: Wanted, pids: Sequence[int] | None) -> Iterator[Watch | Gap]:
    """Each sensor as it is open, or why it is not. pids: whom to watch, None for all of the host."""
    if wanted.kernel:
        from probes.kernel.sensor import KernelSensor

        waits = wanted.waits
        yield Watch(KernelSensor(pids, threads=wanted.threads, futex=waits, off_cpu=waits), wanted.every_s)
    if wanted.pmu and pids is None:
        yield Gap(
            "hitmap.pmu.*",
            "CPU caches are counted of processes that are named, not of all",
            "--pid or --port",
        )
    elif wanted.pmu and pids is not None:
        from probes.pmu.sensor import PmuSensor

        yield Watch(PmuSensor(pids, threads=wanted.threads), wanted.every_s)
    if not (wanted.gpu or wanted.cupti):
        return
    from probes.gpu.support import present

    if not present():
        yield Gap("GPUs", "no NVIDIA GPU in this host")
        return
    if wanted.gpu:
        from probes.gpu.sensor import GpuSensor

        yield Watch(GpuSensor(), max(wanted.every_s, GPU_EVERY_S))
    if wanted.cupti:
        yield from _cupti()


def _cupti() -> Iterator[Watch | Gap]:
    """One for each GPU, in the order of the PCI bus, which NVML has and CUDA is told to have."""
    from probes.gpu.bursts import CuptiSensor
    from probes.gpu.cupti import CuptiCollector
    from probes.gpu.nvml import Nvml, Refused

    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        nvml = Nvml()
        nvml.call("nvmlInit")
        for index in range(nvml.call("nvmlDeviceGetCount")):
            handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
            gpu = (nvml.call("nvmlDeviceGetUUID", handle), nvml.call("nvmlDeviceGetName", handle))
            yield Watch(CuptiSensor(CuptiCollector(index), gpu), 1.0)
    except Refused as refusal:
        yield Gap("hitmap.gpu.l1.*, hitmap.gpu.l2.*", refusal.why, refusal.needs)
