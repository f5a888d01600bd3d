"""What probes observe beside the spans: one row a metric, with its observation layer, unit and attributes.

The wire between probes and readers: probes send these names over OTLP, alerts, traces and pages read them. Names and
attribute keys are OpenTelemetry's semantic conventions where those have one (process.*, hw.*), and begin with `hitmap.`
elsewhere. Units as UCUM spells them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cachemodel.layers import ObservationLayer

KERNEL, RUNTIME = ObservationLayer.KERNEL, ObservationLayer.RUNTIME
HARDWARE, MICRO = ObservationLayer.HARDWARE, ObservationLayer.MICROARCHITECTURE

SCOPE = "hitmap.probes"
"""Instrumentation scope of everything that probes send."""
SERVICE = "hitmap-probe"
"""service.name of what a probe sends of another process."""

# Of the resource: whose numbers these are. process.pid is left out for those of the whole host and of its GPUs.
HOST, PID, EXECUTABLE, PORT, SERVER = (
    "host.name",
    "process.pid",
    "process.executable.name",
    "server.port",  # where that process, or the parent whose work it does, listens
    "hitmap.server",  # the name that whoever started the probe gave the server
)
# Of a process in a container, as it is known in there and to what runs it: spans of a server name it so.
CONTAINER_HOST, CONTAINER_PID, CONTAINER_ID, POD, CGROUP = (
    "hitmap.container.host.name",
    "hitmap.container.process.pid",
    "container.id",
    "k8s.pod.uid",
    "process.linux.cgroup",  # the line of cgroup v2 in /proc/PID/cgroup
)
SOURCE = "hitmap.source"
"""Of a point: which rung of a ladder counted: ebpf, perf, getrusage, procfs, nvml, gpm, cupti."""
SCALED = "hitmap.running_ratio"
"""Of a point of a multiplexed counter: share of the time in which it counted; the value is scaled up by it."""
THREAD_ID, THREAD_NAME = "thread.id", "thread.name"
GPU_ID, GPU_NAME = "hw.id", "hw.name"
"""Of a point of a GPU: its UUID (of a MIG instance that one's), and the product's name."""

TLB_REASONS = (
    "task_switch",
    "remote_shootdown",
    "local_shootdown",
    "local_mm_shootdown",
    "remote_ipi_send",
    "remote_wrong_cpu",
)
"""Values of hitmap.tlb_flush.reason, in the order of the kernel's enum tlb_flush_reason."""
SHOOTDOWNS = ("remote_ipi_send",)
"""Those that are counted as shootdowns: one of whoever makes other CPUs flush, by munmap, mprotect or migration. Each
CPU that flushes may count a remote_shootdown for it, of whatever thread it was running: they are not to be added."""


@dataclass(frozen=True, slots=True)
class Metric:
    """kind: `counter` is sent as a monotonic sum of differences (delta temporality), `gauge` as it is.

    attributes: keys that a point may carry beside SOURCE, thread and GPU.
    """

    name: str
    layer: ObservationLayer
    kind: Literal["counter", "gauge"]
    unit: str
    meaning: str
    attributes: tuple[str, ...] = ()


METRICS = (
    # kernel: of a process or of one of its threads
    Metric(
        "process.paging.faults",
        KERNEL,
        "counter",
        "{fault}",
        "page faults; a major one waits for a disk",
        ("system.paging.fault.type",),  # minor, major
    ),
    Metric(
        "hitmap.page_faults",
        KERNEL,
        "counter",
        "{fault}",
        "page faults by who touched the page, and how",
        ("hitmap.fault.mode", "hitmap.fault.access"),  # user, kernel; read, write, ifetch
    ),
    Metric(
        "hitmap.tlb_flushes",
        KERNEL,
        "counter",
        "{flush}",
        "TLB flushes by reason; flushes, not misses",
        ("hitmap.tlb_flush.reason",),  # TLB_REASONS
    ),
    Metric("hitmap.futex_waits", KERNEL, "counter", "{wait}", "waits for a lock that ended"),
    Metric("hitmap.futex_wait_time", KERNEL, "counter", "s", "time spent in them"),
    Metric(
        "hitmap.off_cpu_time",
        KERNEL,
        "counter",
        "s",
        "time in which a thread did not run, once it runs again",
    ),
    Metric(
        "process.context_switches",
        KERNEL,
        "counter",
        "{context_switch}",
        "context switches",
        ("process.context_switch.type",),  # voluntary, involuntary
    ),
    Metric("process.cpu.time", KERNEL, "counter", "s", "CPU time", ("cpu.mode",)),  # user, system
    Metric("process.memory.usage", KERNEL, "gauge", "By", "resident memory"),
    Metric("process.thread.count", KERNEL, "gauge", "{thread}", "threads"),
    Metric("hitmap.pmu.dtlb.loads", KERNEL, "counter", "{access}", "loads that looked into the data TLB"),
    Metric("hitmap.pmu.dtlb.misses", KERNEL, "counter", "{miss}", "of those, the ones it did not know"),
    # runtime: caches of the CPU, of a process or of one of its threads
    Metric(
        "hitmap.pmu.l1d.loads", RUNTIME, "counter", "{access}", "loads that looked into the L1 data cache"
    ),
    Metric("hitmap.pmu.l1d.misses", RUNTIME, "counter", "{miss}", "of those, the ones it did not have"),
    Metric("hitmap.pmu.llc.loads", RUNTIME, "counter", "{access}", "accesses of the last-level cache"),
    Metric("hitmap.pmu.llc.misses", RUNTIME, "counter", "{miss}", "of those, the ones that went to memory"),
    Metric("hitmap.pmu.cycles", RUNTIME, "counter", "{cycle}", "CPU cycles"),
    Metric("hitmap.pmu.instructions", RUNTIME, "counter", "{instruction}", "instructions retired"),
    # hardware: memory, caches and links of a GPU
    Metric(
        "hw.gpu.memory.usage",
        HARDWARE,
        "gauge",
        "By",
        "device memory in use; with process.pid, by that process",
        (PID,),
    ),
    Metric("hw.gpu.memory.limit", HARDWARE, "gauge", "By", "device memory there is"),
    Metric(
        "hitmap.gpu.bar1.usage",
        HARDWARE,
        "gauge",
        "By",
        "of the window through which the host sees device memory",
    ),
    Metric("hw.gpu.utilization", HARDWARE, "gauge", "1", "share of time in which a kernel ran"),
    Metric(
        "hw.gpu.memory.utilization",
        HARDWARE,
        "gauge",
        "1",
        "share of time in which memory was read or written",
    ),
    Metric("hitmap.gpu.dram.utilization", HARDWARE, "gauge", "1", "DRAM bandwidth used, of its peak"),
    Metric(
        "hitmap.gpu.dram.io", HARDWARE, "counter", "By", "DRAM traffic", ("disk.io.direction",)
    ),  # read, write
    Metric(
        "hitmap.gpu.memory_cache.hit_ratio",
        HARDWARE,
        "gauge",
        "1",
        "hits of the cache before a memory (GPM)",
        ("hitmap.gpu.memory",),  # hostmem, peermem, dram
    ),
    Metric("hitmap.gpu.l2.hit_ratio", HARDWARE, "gauge", "1", "sectors found in L2", ("hitmap.gpu.kernel",)),
    Metric(
        "hitmap.gpu.l2.misses",
        HARDWARE,
        "counter",
        "{sector}",
        "sectors L2 did not have",
        ("hitmap.gpu.kernel",),
    ),
    Metric(
        "hitmap.gpu.l1.hit_ratio", HARDWARE, "gauge", "1", "sectors found in L1/TEX", ("hitmap.gpu.kernel",)
    ),
    Metric(
        "hitmap.gpu.l1.misses",
        HARDWARE,
        "counter",
        "{sector}",
        "sectors L1/TEX did not have",
        ("hitmap.gpu.kernel",),
    ),
    Metric(
        "hw.gpu.io", HARDWARE, "counter", "By", "PCIe traffic", ("network.io.direction",)
    ),  # receive, transmit
    Metric("hitmap.gpu.nvlink.io", HARDWARE, "counter", "By", "NVLink traffic", ("network.io.direction",)),
    Metric("hitmap.gpu.c2c.io", HARDWARE, "counter", "By", "chip-to-chip traffic", ("network.io.direction",)),
    Metric("hitmap.gpu.pcie.replays", HARDWARE, "counter", "{packet}", "PCIe packets sent again"),
    Metric(
        "hw.errors", HARDWARE, "counter", "{error}", "ECC errors", ("error.type",)
    ),  # corrected, uncorrected
    Metric(
        "hitmap.gpu.remapped_rows",
        HARDWARE,
        "gauge",
        "{row}",
        "memory rows taken out of service",
        ("error.type",),
    ),
    Metric(
        "hitmap.gpu.clock", HARDWARE, "gauge", "Hz", "clock now", ("hitmap.gpu.clock.domain",)
    ),  # sm, memory
    Metric(
        "hitmap.gpu.throttled",
        HARDWARE,
        "gauge",
        "1",
        "1 while the clock is held down for that reason, else 0",
        ("hitmap.gpu.throttle.reason",),
    ),
    Metric(
        "hitmap.gpu.throttled_time",
        HARDWARE,
        "counter",
        "s",
        "time so, as the driver counts it",
        ("hitmap.gpu.throttle.reason",),
    ),
    # microarchitecture: pipes of the SMs
    Metric("hitmap.gpu.sm.active", MICRO, "gauge", "1", "share of SM time with a warp on it"),
    Metric("hitmap.gpu.sm.occupancy", MICRO, "gauge", "1", "warps on SMs, of the most there can be"),
    Metric(
        "hitmap.gpu.tensor.active",
        MICRO,
        "gauge",
        "1",
        "share of tensor pipe time in use",
        ("hitmap.gpu.pipe", "hitmap.gpu.kernel"),  # any, dfma, hmma, dmma, imma
    ),
    Metric(
        "hitmap.gpu.tensor.instructions",
        MICRO,
        "counter",
        "{instruction}",
        "tensor instructions",
        ("hitmap.gpu.kernel",),
    ),
    Metric(
        "hitmap.gpu.pipe.active", MICRO, "gauge", "1", "share of a pipe's time in use", ("hitmap.gpu.pipe",)
    ),  # fp64, fp32, fp16, integer
    Metric("hitmap.gpu.mma_stall", MICRO, "gauge", "1", "share of time in which tensor work waited"),
    Metric(
        "hitmap.gpu.tensor.miss_ratio",
        MICRO,
        "gauge",
        "1",
        "of a kernel with tensor instructions: sectors that L1/TEX did not have, of those it was asked for",
        ("hitmap.gpu.kernel",),
    ),
    Metric(
        "hitmap.gpu.kernel.time",
        MICRO,
        "counter",
        "s",
        "time in a kernel, where activity is recorded",
        ("hitmap.gpu.kernel",),
    ),
    # the probe itself
    Metric(
        "hitmap.probe.cpu.time", ObservationLayer.APPLICATION, "counter", "s", "CPU time that the probe took"
    ),
    Metric(
        "hitmap.probe.lost",
        ObservationLayer.APPLICATION,
        "counter",
        "{point}",
        "what it could not send or count, by why",
        ("reason",),
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class SpanCounter:
    """What the thread that did a request's work counted while it did it: an attribute of its spans, and of its root
    the sum. What several requests share (a pass over the device) is split by their tokens. metric, attributes: what
    the same is called where another process counts it."""

    name: str
    layer: ObservationLayer
    unit: str
    meaning: str
    metric: str
    attributes: tuple[tuple[str, str], ...] = ()


_FAULT, _SWITCH = "system.paging.fault.type", "process.context_switch.type"
SPAN_COUNTERS = (
    SpanCounter(
        "hitmap.thread.page_faults.minor",
        KERNEL,
        "{fault}",
        "page faults that found the page in memory",
        "process.paging.faults",
        ((_FAULT, "minor"),),
    ),
    SpanCounter(
        "hitmap.thread.page_faults.major",
        KERNEL,
        "{fault}",
        "page faults that waited for a disk",
        "process.paging.faults",
        ((_FAULT, "major"),),
    ),
    SpanCounter(
        "hitmap.thread.context_switches.voluntary",
        KERNEL,
        "{context_switch}",
        "waits: for a disk, a lock, a timer",
        "process.context_switches",
        ((_SWITCH, "voluntary"),),
    ),
    SpanCounter(
        "hitmap.thread.context_switches.involuntary",
        KERNEL,
        "{context_switch}",
        "times another thread got its CPU",
        "process.context_switches",
        ((_SWITCH, "involuntary"),),
    ),
    SpanCounter("hitmap.thread.cpu_us", KERNEL, "us", "CPU time", "process.cpu.time"),
    SpanCounter(
        "hitmap.thread.off_cpu_us", KERNEL, "us", "time in which it did not run", "hitmap.off_cpu_time"
    ),
    *(
        SpanCounter(metric.name, metric.layer, metric.unit, metric.meaning, metric.name)
        for metric in METRICS
        if metric.name.startswith("hitmap.pmu.")
    ),
)
