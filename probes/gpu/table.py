"""Which number of NVML is which metric: one row each.

Ids and units are those of nvml.h (nvidia-nvml-dev 13.5): `NVML_FI_*` for fields, `NVML_GPM_METRIC_*` for GPM, whose
percentages run from 0 to 100. GPM is there from Hopper on. Rows of one metric with the same attributes are rungs of a
ladder: the lowest rung that the device does not refuse for good is the one that is read, and rows of one rung (links)
add up. Rows and what they ask are compared by identity: they stand once, here, and are looked up at every read.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY_V2 = 0x2000028
"""nvmlMemory_v2: version 2 in the top byte, the struct's 40 bytes below. Version 1 counts the reserved part as used."""
ALL_LINKS = 0xFFFFFFFF
"""scopeId of the NVLink fields that are summed over links."""
NVLINK5_LINKS = 18
"""Links of a GPU with NVLink 5 (Blackwell), whose byte counters are per link only."""
MEBIBYTE = 1024.0**2
PERCENT = 0.01
NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A function of the binding, its arguments after the handle, and the member of what it returns ("" for itself)."""

    function: str
    arguments: tuple[int, ...] = ()
    member: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """An id for nvmlDeviceGetFieldValues, with its scope (a link, or all of them)."""

    id: int
    scope: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Gpm:
    """An id for nvmlGpmMetricsGet. per_second: a rate, which times the seconds between two samples is the count."""

    id: int
    per_second: bool = False


Ask = Call | Field | Gpm
Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """value = what `ask` gives * scale. instance: asked of a MIG instance too; what is not is only the whole GPU's."""

    ask: Ask
    metric: str
    attributes: Attributes = ()
    scale: float = 1.0
    rung: int = 0
    instance: bool = False

    @property
    def source(self) -> str:
        """Rung of observed.SOURCE."""
        return "gpm" if isinstance(self.ask, Gpm) else "nvml"


def _flow(metric: str, receive: Ask, transmit: Ask, scale: float = 1.0, rung: int = 0) -> tuple[Row, Row]:
    direction = "network.io.direction"
    return (
        Row(receive, metric, ((direction, "receive"),), scale, rung, isinstance(receive, Gpm)),
        Row(transmit, metric, ((direction, "transmit"),), scale, rung, isinstance(transmit, Gpm)),
    )


def _gpm(id: int, metric: str, *attributes: tuple[str, str], rung: int = 0) -> Row:
    return Row(Gpm(id), metric, attributes, PERCENT, rung, instance=True)


def _throttled_for(id: int, reason: str) -> Row:
    return Row(Field(id), "hitmap.gpu.throttled_time", (("hitmap.gpu.throttle.reason", reason),), NANOSECOND)


def _errors(id: int, kind: str, rung: int) -> Row:
    return Row(Field(id), "hw.errors", (("error.type", kind),), rung=rung)


_MEMORY = ("nvmlDeviceGetMemoryInfo", (MEMORY_V2,))
_PIPE, _CACHED = "hitmap.gpu.pipe", "hitmap.gpu.memory"
_DOMAIN = "hitmap.gpu.clock.domain"

ROWS: tuple[Row, ...] = (
    # memory
    Row(Call(*_MEMORY, "used"), "hw.gpu.memory.usage", instance=True),
    Row(Call(*_MEMORY, "total"), "hw.gpu.memory.limit", instance=True),
    Row(Call("nvmlDeviceGetBAR1MemoryInfo", (), "bar1Used"), "hitmap.gpu.bar1.usage", instance=True),
    # utilisation: of a MIG instance only GPM tells
    Row(Call("nvmlDeviceGetUtilizationRates", (), "gpu"), "hw.gpu.utilization", (), PERCENT, 0, True),
    _gpm(1, "hw.gpu.utilization", rung=1),
    Row(
        Call("nvmlDeviceGetUtilizationRates", (), "memory"), "hw.gpu.memory.utilization", (), PERCENT, 0, True
    ),
    # DRAM and the caches before memories: the only caches that NVML knows
    _gpm(10, "hitmap.gpu.dram.utilization"),
    _gpm(160, "hitmap.gpu.memory_cache.hit_ratio", (_CACHED, "hostmem")),
    _gpm(162, "hitmap.gpu.memory_cache.hit_ratio", (_CACHED, "peermem")),
    _gpm(164, "hitmap.gpu.memory_cache.hit_ratio", (_CACHED, "dram")),
    # SMs and their pipes
    _gpm(2, "hitmap.gpu.sm.active"),
    _gpm(3, "hitmap.gpu.sm.occupancy"),
    _gpm(5, "hitmap.gpu.tensor.active", (_PIPE, "any")),
    _gpm(6, "hitmap.gpu.tensor.active", (_PIPE, "dfma")),
    _gpm(7, "hitmap.gpu.tensor.active", (_PIPE, "hmma")),
    _gpm(8, "hitmap.gpu.tensor.active", (_PIPE, "dmma")),
    _gpm(9, "hitmap.gpu.tensor.active", (_PIPE, "imma")),
    _gpm(11, "hitmap.gpu.pipe.active", (_PIPE, "fp64")),
    _gpm(12, "hitmap.gpu.pipe.active", (_PIPE, "fp32")),
    _gpm(13, "hitmap.gpu.pipe.active", (_PIPE, "fp16")),
    _gpm(4, "hitmap.gpu.pipe.active", (_PIPE, "integer")),
    Row(Field(297), "hitmap.gpu.mma_stall", (), PERCENT),
    # interconnect: bytes as the driver counts them, else a rate times its time. nvmlDeviceGetPcieThroughput would
    # block 20 ms a call
    *_flow("hw.gpu.io", Field(198), Field(197)),
    *_flow("hw.gpu.io", Gpm(21, True), Gpm(20, True), MEBIBYTE, 1),
    *_flow("hitmap.gpu.nvlink.io", Field(139, ALL_LINKS), Field(138, ALL_LINKS), 1024.0),
    *(
        row
        for link in range(NVLINK5_LINKS)
        for row in _flow("hitmap.gpu.nvlink.io", Field(204, link), Field(202, link), 1.0, 1)
    ),
    *_flow("hitmap.gpu.nvlink.io", Gpm(60, True), Gpm(61, True), MEBIBYTE, 2),
    *_flow("hitmap.gpu.c2c.io", Gpm(101, True), Gpm(100, True), MEBIBYTE),
    Row(Field(94), "hitmap.gpu.pcie.replays"),
    # faults of memory: those kept over driver loads first, both grow alike
    _errors(5, "corrected", 0),
    _errors(6, "uncorrected", 0),
    _errors(3, "corrected", 1),
    _errors(4, "uncorrected", 1),
    Row(Field(142), "hitmap.gpu.remapped_rows", (("error.type", "corrected"),)),
    Row(Field(143), "hitmap.gpu.remapped_rows", (("error.type", "uncorrected"),)),
    # clocks, in MHz, and what holds them down
    Row(Call("nvmlDeviceGetClockInfo", (1,)), "hitmap.gpu.clock", ((_DOMAIN, "sm"),), 1e6),
    Row(Call("nvmlDeviceGetClockInfo", (2,)), "hitmap.gpu.clock", ((_DOMAIN, "memory"),), 1e6),
    _throttled_for(74, "sw_power_cap"),
    _throttled_for(75, "thermal"),
    _throttled_for(76, "sync_boost"),
    _throttled_for(77, "board_limit"),
    _throttled_for(78, "low_utilization"),
    _throttled_for(79, "reliability"),
    _throttled_for(80, "below_application_clocks"),
    _throttled_for(81, "below_base_clocks"),
    _throttled_for(269, "sw_thermal_slowdown"),
    _throttled_for(270, "hw_thermal_slowdown"),
    _throttled_for(271, "hw_power_brake_slowdown"),
)

THROTTLED = Call("nvmlDeviceGetCurrentClocksEventReasons")
"""A mask of THROTTLE_BITS, of those that THROTTLE_KNOWN says the device can tell."""
THROTTLE_KNOWN = Call("nvmlDeviceGetSupportedClocksEventReasons")
THROTTLE_BITS = (
    # bit 0, an idle GPU, holds nothing down that anybody waits for
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
    (0x200, "board_limit"),
    (0x400, "reliability"),
)
PROCESSES = {
    "memory by process": Call("nvmlDeviceGetComputeRunningProcesses_v3"),
    "memory by process under MPS": Call("nvmlDeviceGetMPSComputeRunningProcesses_v3"),
}
"""Lists of processes with the memory that each has; one that is in both is one process."""
