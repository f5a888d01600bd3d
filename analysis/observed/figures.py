"""Which figures of processes and GPUs a person looks at, and which points of a probe each is made of. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cachemodel.observed import BY_NAME, SHOOTDOWNS, TLB_REASONS, Metric

_FAULT, _REASON = "system.paging.fault.type", "hitmap.tlb_flush.reason"
_DIRECTION, _ERROR, _KERNEL = "network.io.direction", "error.type", "hitmap.gpu.kernel"


@dataclass(frozen=True, slots=True)
class Figure:
    """unit: of its values, as UCUM has it, `1` for shares.

    part_of: the figure of a GPU of which it is what one process has, empty for none.
    metric: of whose points it is made, those with one of `where`'s values; what is left of their attributes is added
    up. over: the figure that it is a share of, empty for none. shown: the mean over time (of a counter: by second),
    the greatest value, all that was counted, or the share of seconds in which any of its points was not 0.
    """

    name: str
    label: str
    unit: str
    metric: str
    where: Mapping[str, Sequence[str]] | None = None
    over: str = ""
    part_of: str = ""
    shown: Literal["mean", "most", "count", "any"] = "mean"

    @property
    def row(self) -> Metric:
        """Of cachemodel.observed."""
        return BY_NAME[self.metric]


def _share(name: str, label: str, cache: str) -> tuple[Figure, Figure]:
    """Misses of a cache of the CPU, and the look-ups that they are a share of."""
    looked = Figure(f"{name}_loads", f"{label} look-ups", "{access}/s", f"hitmap.pmu.{cache}.loads")
    return looked, Figure(
        name, f"{label} miss ratio", "1", f"hitmap.pmu.{cache}.misses", over=f"{name}_loads"
    )


OF_PROCESSES = (
    Figure("cpu", "CPU, cores", "s/s", "process.cpu.time"),
    Figure("minor", "Minor page faults/s", "{fault}/s", "process.paging.faults", {_FAULT: ("minor",)}),
    Figure("major", "Major page faults/s", "{fault}/s", "process.paging.faults", {_FAULT: ("major",)}),
    Figure("shootdowns", "TLB shootdowns/s", "{flush}/s", "hitmap.tlb_flushes", {_REASON: SHOOTDOWNS}),
    Figure(
        "flushes",
        "Other TLB flushes/s",
        "{flush}/s",
        "hitmap.tlb_flushes",
        {_REASON: tuple(reason for reason in TLB_REASONS if reason not in SHOOTDOWNS)},
    ),
    Figure("switches", "Context switches/s", "{context_switch}/s", "process.context_switches"),
    Figure("off_cpu", "Off the CPU, threads", "s/s", "hitmap.off_cpu_time"),
    Figure("locks", "Waiting for locks, threads", "s/s", "hitmap.futex_wait_time"),
    Figure("rss", "Resident memory", "By", "process.memory.usage", shown="most"),
    Figure(
        "gpu_memory", "GPU memory of its own", "By", "hw.gpu.memory.usage", part_of="memory", shown="most"
    ),
    Figure("threads", "Threads", "{thread}", "process.thread.count", shown="most"),
    *_share("dtlb", "dTLB", "dtlb"),
    *_share("l1d", "L1d", "l1d"),
    *_share("llc", "LLC", "llc"),
)
OF_GPUS = (
    Figure("memory", "GPU memory in use", "By", "hw.gpu.memory.usage", shown="most"),
    Figure("limit", "GPU memory there is", "By", "hw.gpu.memory.limit", shown="most"),
    Figure("busy", "GPU busy", "1", "hw.gpu.utilization"),
    Figure("dram", "DRAM bandwidth, of its peak", "1", "hitmap.gpu.dram.utilization"),
    Figure("l2", "L2 hit ratio", "1", "hitmap.gpu.l2.hit_ratio", {_KERNEL: ("",)}),
    Figure("l1", "L1/TEX hit ratio", "1", "hitmap.gpu.l1.hit_ratio", {_KERNEL: ("",)}),
    Figure(
        "tensor",
        "Tensor pipe active",
        "1",
        "hitmap.gpu.tensor.active",
        {"hitmap.gpu.pipe": ("any",), _KERNEL: ("",)},
    ),
    Figure("pcie_in", "PCIe received", "By/s", "hw.gpu.io", {_DIRECTION: ("receive",)}),
    Figure("pcie_out", "PCIe sent", "By/s", "hw.gpu.io", {_DIRECTION: ("transmit",)}),
    Figure("nvlink_in", "NVLink received", "By/s", "hitmap.gpu.nvlink.io", {_DIRECTION: ("receive",)}),
    Figure("nvlink_out", "NVLink sent", "By/s", "hitmap.gpu.nvlink.io", {_DIRECTION: ("transmit",)}),
    Figure("throttled", "Throttled, of the time", "1", "hitmap.gpu.throttled", shown="any"),
    Figure("corrected", "ECC corrected", "{error}", "hw.errors", {_ERROR: ("corrected",)}, shown="count"),
    Figure(
        "uncorrected", "ECC uncorrected", "{error}", "hw.errors", {_ERROR: ("uncorrected",)}, shown="count"
    ),
)
OF_PROBES = (
    Figure("probe_cpu", "CPU that the probe took, cores", "s/s", "hitmap.probe.cpu.time"),
    Figure("probe_lost", "Points that the probe lost", "{point}", "hitmap.probe.lost", shown="count"),
)
FIGURES = {figure.name: figure for figure in (*OF_PROCESSES, *OF_GPUS, *OF_PROBES)}
DENOMINATORS = frozenset(figure.over for figure in FIGURES.values() if figure.over)
"""Looked up to make shares, shown nowhere."""
