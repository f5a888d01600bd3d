"""What is planted in the driver is what is read, number for number."""

from __future__ import annotations

import pytest

from probes.gpu.sensor import GpuSensor
from probes.reading import Reading
from tests.probes.gpu.conftest import Clock, Driver

Labels = tuple[tuple[str, str], ...]

GAUGES: list[tuple[str, float, str, Labels, float]] = [
    # answer of the driver, its number, metric, attributes, what must be read
    ("memory.used", 12345678901, "hw.gpu.memory.usage", (), 12345678901),
    ("memory.total", 85899345920, "hw.gpu.memory.limit", (), 85899345920),
    ("bar1.used", 4321, "hitmap.gpu.bar1.usage", (), 4321),
    ("utilization.gpu", 37, "hw.gpu.utilization", (), 0.37),
    ("utilization.memory", 21, "hw.gpu.memory.utilization", (), 0.21),
    ("clock.sm", 1980, "hitmap.gpu.clock", (("hitmap.gpu.clock.domain", "sm"),), 1.98e9),
    ("clock.memory", 2619, "hitmap.gpu.clock", (("hitmap.gpu.clock.domain", "memory"),), 2.619e9),
    ("field.142", 3, "hitmap.gpu.remapped_rows", (("error.type", "corrected"),), 3),
    ("field.143", 2, "hitmap.gpu.remapped_rows", (("error.type", "uncorrected"),), 2),
    ("field.297", 11, "hitmap.gpu.mma_stall", (), 0.11),
    ("gpm.2", 91.5, "hitmap.gpu.sm.active", (), 0.915),
    ("gpm.3", 44.25, "hitmap.gpu.sm.occupancy", (), 0.4425),
    ("gpm.4", 5.5, "hitmap.gpu.pipe.active", (("hitmap.gpu.pipe", "integer"),), 0.055),
    ("gpm.5", 60, "hitmap.gpu.tensor.active", (("hitmap.gpu.pipe", "any"),), 0.6),
    ("gpm.6", 1, "hitmap.gpu.tensor.active", (("hitmap.gpu.pipe", "dfma"),), 0.01),
    ("gpm.7", 58, "hitmap.gpu.tensor.active", (("hitmap.gpu.pipe", "hmma"),), 0.58),
    ("gpm.8", 2, "hitmap.gpu.tensor.active", (("hitmap.gpu.pipe", "dmma"),), 0.02),
    ("gpm.9", 4, "hitmap.gpu.tensor.active", (("hitmap.gpu.pipe", "imma"),), 0.04),
    ("gpm.10", 77, "hitmap.gpu.dram.utilization", (), 0.77),
    ("gpm.11", 0.5, "hitmap.gpu.pipe.active", (("hitmap.gpu.pipe", "fp64"),), 0.005),
    ("gpm.12", 12, "hitmap.gpu.pipe.active", (("hitmap.gpu.pipe", "fp32"),), 0.12),
    ("gpm.13", 13, "hitmap.gpu.pipe.active", (("hitmap.gpu.pipe", "fp16"),), 0.13),
    ("gpm.160", 90, "hitmap.gpu.memory_cache.hit_ratio", (("hitmap.gpu.memory", "hostmem"),), 0.9),
    ("gpm.162", 80, "hitmap.gpu.memory_cache.hit_ratio", (("hitmap.gpu.memory", "peermem"),), 0.8),
    ("gpm.164", 70, "hitmap.gpu.memory_cache.hit_ratio", (("hitmap.gpu.memory", "dram"),), 0.7),
]
_IO = "network.io.direction"
_WHY = "hitmap.gpu.throttle.reason"
COUNTERS: list[tuple[str, str, Labels, float]] = [
    # answer of the driver, metric, attributes, what one more is
    ("field.198", "hw.gpu.io", ((_IO, "receive"),), 1),
    ("field.197", "hw.gpu.io", ((_IO, "transmit"),), 1),
    ("field.139", "hitmap.gpu.nvlink.io", ((_IO, "receive"),), 1024),
    ("field.138", "hitmap.gpu.nvlink.io", ((_IO, "transmit"),), 1024),
    ("field.94", "hitmap.gpu.pcie.replays", (), 1),
    ("field.5", "hw.errors", (("error.type", "corrected"),), 1),
    ("field.6", "hw.errors", (("error.type", "uncorrected"),), 1),
    ("field.74", "hitmap.gpu.throttled_time", ((_WHY, "sw_power_cap"),), 1e-9),
    ("field.75", "hitmap.gpu.throttled_time", ((_WHY, "thermal"),), 1e-9),
    ("field.76", "hitmap.gpu.throttled_time", ((_WHY, "sync_boost"),), 1e-9),
    ("field.77", "hitmap.gpu.throttled_time", ((_WHY, "board_limit"),), 1e-9),
    ("field.78", "hitmap.gpu.throttled_time", ((_WHY, "low_utilization"),), 1e-9),
    ("field.79", "hitmap.gpu.throttled_time", ((_WHY, "reliability"),), 1e-9),
    ("field.80", "hitmap.gpu.throttled_time", ((_WHY, "below_application_clocks"),), 1e-9),
    ("field.81", "hitmap.gpu.throttled_time", ((_WHY, "below_base_clocks"),), 1e-9),
    ("field.269", "hitmap.gpu.throttled_time", ((_WHY, "sw_thermal_slowdown"),), 1e-9),
    ("field.270", "hitmap.gpu.throttled_time", ((_WHY, "hw_thermal_slowdown"),), 1e-9),
    ("field.271", "hitmap.gpu.throttled_time", ((_WHY, "hw_power_brake_slowdown"),), 1e-9),
]


def value(
    readings: list[Reading], metric: str, labels: Labels = (), gpu: str = "GPU-0", pid: int | None = None
) -> float | None:
    """The one reading of that metric, None where there is none."""
    found = [
        one
        for one in readings
        if one.metric == metric
        and one.pid == pid
        and ("hw.id", gpu) in one.attributes
        and set(labels) == {pair for pair in one.attributes if not pair[0].startswith("hw.")}
    ]
    assert len(found) < 2, f"{metric} {labels} of {gpu} is told {len(found)} times"
    return found[0].value if found else None


def twice(sensor: GpuSensor, clock: Clock, seconds: float = 0.25) -> list[Reading]:
    """What the second read gives, the first that can compare GPM samples."""
    sensor.read()
    clock.now += seconds
    return list(sensor.read())


def test_gauges_are_what_was_planted(driver: Driver, clock: Clock) -> None:
    driver.says({f"0.{answer}": number for answer, number, *_ in GAUGES})
    sensor = GpuSensor(clock)
    readings = twice(sensor, clock)
    for _, _, metric, labels, expected in GAUGES:
        assert value(readings, metric, labels) == pytest.approx(expected, rel=1e-12), (metric, labels)
    assert sensor.gaps() == []
    assert {one.source for one in readings} == {"nvml", "gpm"}
    assert all(("hw.name", "NVIDIA Fake") in one.attributes for one in readings)
    sensor.close()


def test_counters_count_from_the_first_read_on(driver: Driver, clock: Clock) -> None:
    driver.says({f"0.{answer}": 1_000_000 + place for place, (answer, *_) in enumerate(COUNTERS)})
    sensor = GpuSensor(clock)
    first = list(sensor.read())
    driver.says({f"0.{answer}": 1_000_007 + 3 * place for place, (answer, *_) in enumerate(COUNTERS)})
    clock.now += 1
    second = list(sensor.read())
    for place, (_, metric, labels, one) in enumerate(COUNTERS):
        assert value(first, metric, labels) == 0.0
        assert value(second, metric, labels) == pytest.approx((7 + 2 * place) * one, rel=1e-6)


def test_rates_become_counts_where_nothing_counts_bytes(driver: Driver, clock: Clock) -> None:
    driver.says({f"0.field.{id}.error": 3 for id in (197, 198, 138, 139)})
    driver.says({f"0.field.{id}.error": 3 for id in (202, 204)})
    driver.says({f"0.field.{id}.{link}.error": 3 for id in (202, 204) for link in range(1, 18)})
    driver.says(
        {"0.gpm.20": 8, "0.gpm.21": 16, "0.gpm.60": 32, "0.gpm.61": 64, "0.gpm.101": 2, "0.gpm.100": 4}
    )
    sensor = GpuSensor(clock)
    for _ in range(4):  # each rung is refused once before the next is asked
        sensor.read()
        clock.now += 0.5
    before, after = list(sensor.read()), twice(sensor, clock, 0.5)[:]
    for metric, direction, per_second in (
        ("hw.gpu.io", "receive", 16),
        ("hw.gpu.io", "transmit", 8),
        ("hitmap.gpu.nvlink.io", "receive", 32),
        ("hitmap.gpu.nvlink.io", "transmit", 64),
        ("hitmap.gpu.c2c.io", "receive", 2),
        ("hitmap.gpu.c2c.io", "transmit", 4),
    ):
        grown = value(after, metric, ((_IO, direction),)) - value(before, metric, ((_IO, direction),))  # type: ignore[operator]
        assert grown == pytest.approx(0.5 * per_second * 2**20)


def test_links_that_count_by_themselves_add_up(driver: Driver, clock: Clock) -> None:
    driver.says({"0.field.138.error": 3, "0.field.139.error": 3})
    driver.says({f"0.field.204.{link}.error": 3 for link in range(4, 18)})
    sensor = GpuSensor(clock)
    sensor.read()
    clock.now += 1
    sensor.read()
    driver.says({"0.field.204": 10, "0.field.204.1": 20, "0.field.204.2": 30, "0.field.204.3": 40})
    clock.now += 1
    readings = list(sensor.read())
    assert value(readings, "hitmap.gpu.nvlink.io", ((_IO, "receive"),)) == 100
    assert sensor.gaps() == []


def test_throttling_tells_only_reasons_that_the_device_knows(driver: Driver, clock: Clock) -> None:
    driver.says({"0.throttle": 0x64 | 1, "0.throttle.known": 0x6D})
    readings = list(GpuSensor(clock).read())
    told = {dict(one.attributes)[_WHY]: one.value for one in readings if one.metric == "hitmap.gpu.throttled"}
    assert told == {
        "sw_power_cap": 1.0,
        "hw_slowdown": 0.0,
        "sw_thermal_slowdown": 1.0,
        "hw_thermal_slowdown": 1.0,
    }


def test_memory_by_process(driver: Driver, clock: Clock) -> None:
    driver.says({"0.processes": 3, "0.processes.0.pid": 41, "0.processes.0.used": 7 << 30})
    driver.says({"0.processes.1.pid": 42, "0.processes.1.used": 1 << 30})
    driver.says({"0.processes.2.pid": 43, "0.processes.2.used": 2**64 - 1})
    driver.says(
        {"0.mps": 2, "0.mps.0.pid": 42, "0.mps.0.used": 1 << 30, "0.mps.1.pid": 44, "0.mps.1.used": 5}
    )
    sensor = GpuSensor(clock)
    readings = list(sensor.read())
    usage = {one.pid: one.value for one in readings if one.metric == "hw.gpu.memory.usage"}
    assert usage == {None: 1 << 30, 41: 7 << 30, 42: 1 << 30, 44: 5}
    assert any("does not tell the memory of process 43" in gap.why for gap in sensor.gaps())


def test_two_gpus_one_split_into_instances(driver: Driver, clock: Clock) -> None:
    driver.says({"gpus": 2, "1.mig": 2, "0.memory.used": 10, "1.memory.used": 20, "0.processes": 1})
    driver.says(
        {"1.mig.0.memory.used": 30, "1.mig.1.memory.used": 40, "1.mig.1.processes": 1, "1.processes": 1}
    )
    driver.says({"0.gpm.5": 10, "1.mig.0.gpm.5": 30, "1.mig.1.gpm.5": 40, "1.mig.1.processes.0.pid": 77})
    driver.says({"1.error.nvmlGpmSampleGet": 3})
    for part in (0, 1):
        driver.says(
            {f"1.mig.{part}.error.nvmlDeviceGetUtilizationRates": 3, f"1.mig.{part}.gpm.1": 50 + part}
        )
    sensor = GpuSensor(clock)
    sensor.read()
    readings = twice(sensor, clock)
    any_tensor: Labels = (("hitmap.gpu.pipe", "any"),)
    assert value(readings, "hw.gpu.memory.usage") == 10
    assert value(readings, "hw.gpu.memory.usage", gpu="GPU-1") == 20
    assert value(readings, "hw.gpu.memory.usage", gpu="MIG-1-0") == 30
    assert value(readings, "hw.gpu.memory.usage", gpu="MIG-1-1") == 40
    assert value(readings, "hitmap.gpu.tensor.active", any_tensor) == pytest.approx(0.1)
    assert value(readings, "hitmap.gpu.tensor.active", any_tensor, "GPU-1") is None
    assert value(readings, "hitmap.gpu.tensor.active", any_tensor, "MIG-1-0") == pytest.approx(0.3)
    assert value(readings, "hitmap.gpu.tensor.active", any_tensor, "MIG-1-1") == pytest.approx(0.4)
    assert value(readings, "hw.gpu.utilization", gpu="MIG-1-1") == pytest.approx(0.51)
    of_pids = {dict(one.attributes)["hw.id"]: one.pid for one in readings if one.pid is not None}
    assert of_pids == {"GPU-0": 100, "MIG-1-1": 77}, "a split GPU's processes are told by its instances"


def test_instances_come_and_go(driver: Driver, clock: Clock) -> None:
    driver.says({"0.mig": 1})
    sensor = GpuSensor(clock)

    def seen() -> set[str]:
        return {dict(one.attributes)["hw.id"] for one in sensor.read()}

    assert seen() == {"GPU-0", "MIG-0-0"}
    driver.says({"0.mig": 2})
    clock.now += 11
    assert seen() == {"GPU-0", "MIG-0-0", "MIG-0-1"}
    driver.says({"0.mig": 0, "0.processes": 1})
    clock.now += 11
    assert seen() == {"GPU-0"}
    assert any(one.pid == 100 for one in sensor.read())


def test_gpm_samples_closer_than_100_ms_give_a_reason_and_no_number(driver: Driver, clock: Clock) -> None:
    driver.says({"0.gpm.10": 50})
    sensor = GpuSensor(clock)
    assert value(twice(sensor, clock, 0.1), "hitmap.gpu.dram.utilization") == pytest.approx(0.5)
    clock.now += 0.099
    assert value(list(sensor.read()), "hitmap.gpu.dram.utilization") is None
    assert any("100 ms apart" in gap.why and "dram.utilization" in gap.what for gap in sensor.gaps())
    clock.now += 0.001
    assert value(list(sensor.read()), "hitmap.gpu.dram.utilization") == pytest.approx(0.5)
    assert sensor.gaps() == []
