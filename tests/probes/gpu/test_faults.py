"""Whatever a driver answers, `read` gives what is left and says why the rest is not there."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pynvml
import pytest

from probes.gpu import nvml
from probes.gpu.sensor import GpuSensor
from probes.reading import Reading
from tests.probes.gpu.conftest import SOURCE, Clock, Driver
from tests.probes.gpu.test_readings import twice, value

FUNCTIONS = sorted(set(re.findall(r"^nvmlReturn_t (nvml\w+)\(", SOURCE.read_text(), re.MULTILINE)))
UNUSED = {"nvmlDeviceGetAccountingMode", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"}
"""Which only `support` asks."""
HARMLESS = {"nvmlShutdown", "nvmlGpmSampleFree"}
"""Without which no reading is missing."""
LISTING = {"nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex"}
"""Which say in this way that there is nothing to list."""


def sane(readings: list[Reading]) -> None:
    assert all(math.isfinite(one.value) and one.value >= 0 for one in readings)


@pytest.mark.parametrize("code", sorted(nvml._REASONS))
def test_any_error_of_any_function_becomes_a_gap(code: int, driver: Driver, clock: Clock) -> None:
    driver.says({"gpus": 2, "0.mig": 1, "1.processes": 1, "log": None})
    for function in sorted(set(FUNCTIONS) - UNUSED):
        driver.says({f"error.{function}": code})
        sensor = GpuSensor(clock)
        sane(twice(sensor, clock))
        reasons = {gap.why for gap in sensor.gaps()}
        fatal = code in nvml.DRIVER_GONE | nvml.DEVICE_GONE
        harmless = function in HARMLESS or (function in LISTING and not fatal)
        assert nvml._REASONS[code][0] in reasons or harmless, (function, reasons)
        sensor.close()
        driver.says({f"error.{function}": None})
        clock.now += 100


@pytest.mark.parametrize("code", sorted(nvml._REASONS))
def test_any_error_of_a_single_number_leaves_the_others(code: int, driver: Driver, clock: Clock) -> None:
    driver.says({"0.field.297.error": code, "0.gpm.5.error": code, "0.gpm.10": 40, "0.field.94": 3})
    sensor = GpuSensor(clock)
    readings = twice(sensor, clock)
    sane(readings)
    reasons = {gap.why: gap.what for gap in sensor.gaps()}
    if code in nvml.DRIVER_GONE | nvml.DEVICE_GONE:
        assert nvml._REASONS[code][0] in reasons
        return
    assert value(readings, "hitmap.gpu.dram.utilization") == pytest.approx(0.4)
    assert value(readings, "hitmap.gpu.mma_stall") is None
    assert value(readings, "hitmap.gpu.tensor.active", (("hitmap.gpu.pipe", "any"),)) is None
    what = reasons[nvml._REASONS[code][0]]
    assert "hitmap.gpu.mma_stall" in what
    assert "hitmap.gpu.tensor.active (any)" in what
    assert "dram" not in what


def test_what_is_refused_for_good_is_not_asked_again(driver: Driver, clock: Clock) -> None:
    driver.says({"error.nvmlDeviceGetBAR1MemoryInfo": 3, "0.gpm.supported": 0})
    sensor = GpuSensor(clock)
    sensor.read()
    assert "nvmlDeviceGetBAR1MemoryInfo" in driver.calls()
    for _ in range(3):
        clock.now += 1
        sensor.read()
    calls = driver.calls()
    assert "nvmlDeviceGetBAR1MemoryInfo" not in calls
    assert not [call for call in calls if call.startswith("nvmlGpm")]
    assert any("bar1" in gap.what and gap.why == "this device does not support it" for gap in sensor.gaps())
    assert any("Hopper" in gap.needs and "hitmap.gpu.sm.active" in gap.what for gap in sensor.gaps())


def test_what_needs_permission_is_asked_again_after_a_minute(driver: Driver, clock: Clock) -> None:
    driver.says({"error.nvmlDeviceGetBAR1MemoryInfo": 4})
    sensor = GpuSensor(clock)
    sensor.read()
    assert any("bar1" in gap.what and "root" in gap.needs for gap in sensor.gaps())
    driver.says({"error.nvmlDeviceGetBAR1MemoryInfo": None})
    driver.calls()
    clock.now += 30
    sensor.read()
    assert "nvmlDeviceGetBAR1MemoryInfo" not in driver.calls()
    clock.now += 31
    assert value(list(sensor.read()), "hitmap.gpu.bar1.usage") == 4096
    assert not any("bar1" in gap.what for gap in sensor.gaps())


def test_one_gpu_is_lost_and_comes_back(driver: Driver, clock: Clock) -> None:
    driver.says({"gpus": 2, "0.field.94": 5, "1.field.94": 5})
    sensor = GpuSensor(clock)
    sensor.read()
    driver.says({"1.lost_after": 0, "0.field.94": 8, "1.field.94": 9})
    clock.now += 0.5
    readings = list(sensor.read())
    assert {dict(one.attributes)["hw.id"] for one in readings} == {"GPU-0"}
    assert value(readings, "hitmap.gpu.pcie.replays") == 3
    (gap,) = [gap for gap in sensor.gaps() if "GPU-1" in gap.what]
    assert "fell off the bus" in gap.why
    for _ in range(20):
        clock.now += 3
        readings = list(sensor.read())
        assert {dict(one.attributes)["hw.id"] for one in readings} == {"GPU-0"}
        assert any("fell off the bus" in gap.why for gap in sensor.gaps())
    driver.says({"1.lost_after": None})
    clock.now += 61
    sensor.read()
    clock.now += 1
    readings = list(sensor.read())
    assert value(readings, "hitmap.gpu.pcie.replays", gpu="GPU-1") == 0, (
        "what it counted while away is unknown"
    )
    assert not any("fell off the bus" in gap.why for gap in sensor.gaps())


def test_lost_in_the_middle_of_a_read(driver: Driver, clock: Clock) -> None:
    driver.says({"log": None})
    for calls in range(40):
        driver.says({"0.lost_after": calls})
        sensor = GpuSensor(clock)
        readings = twice(sensor, clock)
        assert not readings or calls > 10
        assert readings or any("fell off the bus" in gap.why for gap in sensor.gaps())
        sensor.close()


def test_the_driver_is_loaded_again(driver: Driver, clock: Clock) -> None:
    driver.says({"0.field.94": 1000})
    sensor = GpuSensor(clock)
    sensor.read()
    driver.says({"0.field.94": 1004})
    clock.now += 1
    assert value(list(sensor.read()), "hitmap.gpu.pcie.replays") == 4
    everything = {f"error.{name}": 9 for name in FUNCTIONS}
    driver.says(everything)
    clock.now += 1
    assert sensor.read() == []
    assert [(gap.what, gap.needs) for gap in sensor.gaps()] == [("all GPUs", "modprobe nvidia")]
    driver.calls()
    inits = 0
    for _ in range(600):  # a minute, at 10 Hz
        clock.now += 0.1
        assert sensor.read() == []
        assert sensor.gaps()
        inits += driver.calls().count("nvmlInitWithFlags")
    assert 4 <= inits <= 6, "after 1, 2, 4, 8, 16, 32 s"
    driver.says({**dict.fromkeys(everything), "0.field.94": 2})
    clock.now += 61
    assert value(list(sensor.read()), "hitmap.gpu.pcie.replays") == 4, "it goes on from there, and never back"
    driver.says({"0.field.94": 3})
    clock.now += 1
    assert value(list(sensor.read()), "hitmap.gpu.pcie.replays") == 5


def test_a_driver_older_than_its_functions_and_fields(driver: Driver, clock: Clock) -> None:
    driver.load("old")
    driver.says({"field_max": 138, "0.field.94": 7, "utilization.gpu": 5})
    sensor = GpuSensor(clock)
    readings = twice(sensor, clock)
    assert value(readings, "hitmap.gpu.pcie.replays") == 0
    assert value(readings, "hitmap.gpu.bar1.usage") == 4096
    assert {one.source for one in readings} == {"nvml"}
    gaps = {gap.why: gap for gap in sensor.gaps()}
    assert "hw.gpu.memory.usage" in gaps["this driver is older than the function"].what
    assert "hitmap.gpu.mma_stall" in gaps["the driver does not know what was asked for"].what
    driver.calls()
    clock.now += 1
    sensor.read()
    assert driver.calls().count("nvmlDeviceGetFieldValues") == 1, "which fields it knows was learned"


def test_not_available_is_a_gap_and_never_a_number(driver: Driver, clock: Clock) -> None:
    driver.says({"0.memory.used": 2**64 - 1, "0.gpm.5": "nan", "0.gpm.10": "-1", "0.gpm.2": "inf"})
    sensor = GpuSensor(clock)
    readings = twice(sensor, clock)
    assert value(readings, "hw.gpu.memory.usage") is None
    assert value(readings, "hitmap.gpu.dram.utilization") is None
    assert value(readings, "hitmap.gpu.sm.active") is None
    assert value(readings, "hw.gpu.memory.limit") == 80 << 30
    (gap,) = sensor.gaps()
    for metric in ("hw.gpu.memory.usage", "dram.utilization", "sm.active", "tensor.active (any)"):
        assert metric in gap.what
    assert "not available" in gap.why


def test_byte_counters_of_32_bits_are_not_believed(driver: Driver, clock: Clock) -> None:
    driver.says(
        {"0.field.197.type": 1, "0.field.197": 5, "0.gpm.20": 1, "0.field.94.type": 1, "0.field.94": 1}
    )
    sensor = GpuSensor(clock)
    for _ in range(3):
        readings = twice(sensor, clock, 0.5)
        clock.now += 0.5
    sent = [one for one in readings if ("network.io.direction", "transmit") in one.attributes]
    assert [one.source for one in sent if one.metric == "hw.gpu.io"] == ["gpm"]
    assert value(readings, "hitmap.gpu.pcie.replays") == 0, (
        "a counter of events in 32 bits does not wrap so soon"
    )


def test_a_counter_that_goes_back_is_said_and_adds_nothing(driver: Driver, clock: Clock) -> None:
    sensor = GpuSensor(clock)
    totals = []
    for raw in (100, 130, 5, 9, 9, 4, 10):
        driver.says({"0.field.94": raw})
        clock.now += 1
        totals.append(value(list(sensor.read()), "hitmap.gpu.pcie.replays"))
        went_back = any("went back" in gap.why and "replays" in gap.what for gap in sensor.gaps())
        assert went_back == (raw in (5, 4))
    assert totals == [0, 30, 30, 34, 34, 34, 40]


def test_a_slow_driver_costs_one_device_a_read(driver: Driver) -> None:
    driver.says({"gpus": 3, "sleep_ms.nvmlDeviceGetUtilizationRates": 30})
    sensor = GpuSensor(budget_s=0.02)
    seen = []
    for _ in range(4):
        devices = {dict(one.attributes)["hw.id"] for one in sensor.read()}
        seen.append(devices)
        assert len(devices) == 1
        assert 0.03 <= sensor.read_s < 1
        (late,) = [gap for gap in sensor.gaps() if "begins there" in gap.why]
        assert not devices & set(late.what.split(", "))
    assert set().union(*seen[:3]) == {"GPU-0", "GPU-1", "GPU-2"}, "each has its turn"


def test_no_gpu_is_said(driver: Driver, clock: Clock) -> None:
    driver.says({"gpus": 0})
    sensor = GpuSensor(clock)
    assert sensor.read() == []
    assert [gap.why for gap in sensor.gaps()] == ["the driver shows no GPU"]


def test_closing_twice_frees_all_and_reads_nothing(driver: Driver, clock: Clock, tmp_path: Path) -> None:
    driver.says({"gpus": 2})
    sensor = GpuSensor(clock)
    twice(sensor, clock)
    clock.now += 1
    sensor.read()
    driver.says()
    sensor.close()
    sensor.close()
    calls = driver.calls()
    assert calls.count("nvmlGpmSampleFree") == calls.count("nvmlGpmSampleAlloc") == 4
    assert calls[-1] == "nvmlShutdown"
    assert sensor.read() == []


def test_a_gpu_that_is_lost_again_and_again_is_tried_less_and_less(driver: Driver, clock: Clock) -> None:
    """It is listed, and lost when it is read: nvmlDeviceGetUtilizationRates is called once a trial."""

    def trials(seconds: int) -> int:
        driver.calls()
        for _ in range(2 * seconds):
            clock.now += 0.5
            sensor.read()
            assert any("fell off the bus" in gap.why for gap in sensor.gaps())
        return driver.calls().count("nvmlDeviceGetUtilizationRates")

    sensor = GpuSensor(clock)
    assert sensor.read()
    driver.says({"0.error.nvmlDeviceGetUtilizationRates": 15})
    assert trials(32) == 6, "at once and after 1, 2, 4, 8, 16 s"
    driver.says({"0.error.nvmlDeviceGetUtilizationRates": None})
    clock.now += 61
    assert sensor.read()
    driver.says({"0.error.nvmlDeviceGetUtilizationRates": 15})
    assert trials(32) == 6, "it had worked in between"


def test_a_counter_that_is_not_answered_is_left_out(driver: Driver, clock: Clock) -> None:
    driver.says({"0.field.94": 3})
    sensor = GpuSensor(clock)
    sensor.read()
    driver.says({"0.field.94": 8, "0.field.94.error": 10})
    clock.now += 1
    assert value(list(sensor.read()), "hitmap.gpu.pcie.replays") is None, "0 would say that nothing happened"
    assert any("replays" in gap.what and "in time" in gap.why for gap in sensor.gaps())
    driver.says({"0.field.94.error": None})
    clock.now += 1
    assert value(list(sensor.read()), "hitmap.gpu.pcie.replays") == 5, "nothing is lost"


def test_a_binding_that_lacks_a_struct_stops_no_process(
    driver: Driver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pynvml, "c_nvmlGpmMetricsGet_t")
    sensor = GpuSensor(clock)
    assert twice(sensor, clock) == []
    assert any("c_nvmlGpmMetricsGet_t" in gap.why for gap in sensor.gaps())
