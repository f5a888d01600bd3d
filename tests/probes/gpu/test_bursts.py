"""Bursts on a collector of our own: what is planted in samples is read, and no more time is spent than promised."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UserError
from probes.gpu.bursts import MOST, CuptiSensor, DutyCycle
from probes.gpu.counters import SETS, Burst, Kernel, Sample
from probes.gpu.nvml import NO_PERMISSION, Refused
from probes.reading import Reading
from tests.probes.gpu.conftest import Clock

L1, L2, DRAM, TENSOR = (forms[0].counters for forms in SETS)
GPU = ("GPU-0", "NVIDIA Fake")


class Planted:
    """Gives what is planted for a set of counters; `takes`: what a burst costs on the clock."""

    def __init__(self, clock: Clock, takes: float = 0.1) -> None:
        self.clock, self.takes = clock, takes
        self.bursts: dict[tuple[str, ...], Burst] = {}
        self.refused: dict[tuple[str, ...], Exception] = {}
        self.asked: list[tuple[str, ...]] = []
        self.closed = 0

    def configure(self, counters: Sequence[str]) -> None:
        self.asked.append(tuple(counters))
        if tuple(counters) in self.refused:
            raise self.refused[tuple(counters)]

    def burst(self, seconds: float) -> Burst:
        self.clock.now += self.takes
        one = Sample(0, 10**8, tuple(0.0 for _ in self.asked[-1]))
        return self.bursts.get(self.asked[-1], Burst([one], (), (0, 10**8)))

    def close(self) -> None:
        self.closed += 1


def told(readings: Sequence[Reading], metric: str, **labels: str) -> list[float]:
    """Values of that metric with these labels and no others (dots in names written as __)."""
    wanted = {(key.replace("__", "."), value) for key, value in labels.items()}
    return [
        one.value
        for one in readings
        if one.metric == metric
        and wanted == {pair for pair in one.attributes if not pair[0].startswith("hw.")}
    ]


def rounds(sensor: CuptiSensor, clock: Clock, bursts: int = len(SETS)) -> list[Reading]:
    """That many bursts, each when it is due; then what is read."""
    for _ in range(bursts):
        clock.now += sensor.due_in()
        sensor.once()
    return list(sensor.read())


@given(
    st.floats(0.001, 1.0),
    st.floats(1.001, 50.0),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 30)), max_size=40),
)
def test_bursts_never_take_more_than_their_share(
    burst_s: float, pause: float, done: list[tuple[float, float]]
) -> None:
    """Whatever a burst takes and however late it begins: at each beginning, the time spent is within the share."""
    duty = DutyCycle(burst_s, burst_s / MOST * pause)
    share, now, spent = burst_s / duty.every_s, 0.0, 0.0
    for took, late in done:
        now += duty.wait(now) + late
        assert spent <= share * now * (1 + 1e-9)
        duty.took(now, now + took)
        spent, now = spent + took, now + took


@pytest.mark.parametrize(
    ("burst_s", "every_s"), [(0.1, 1.0), (0.0, 10.0), (-1.0, 10.0), (1.0, 0.0), (0.51, 10.0)]
)
def test_more_than_five_percent_cannot_be_asked_for(burst_s: float, every_s: float) -> None:
    with pytest.raises(UserError, match="more than 5% of the time; make them shorter"):
        DutyCycle(burst_s, every_s)


def test_no_burst_begins_before_it_is_due(clock: Clock) -> None:
    collector = Planted(clock, takes=0.3)  # three times what was planned
    sensor = CuptiSensor(collector, GPU, clock=clock)
    began = clock.now
    for _ in range(1000):
        sensor.once()
        clock.now += 0.1
    assert clock.now - began == pytest.approx(100 + 0.3 * len(collector.asked), abs=1)
    assert len(collector.asked) == 4, "at 0, 30, 60 and 90 s: 1% of the time, as was asked for"
    sensor.close()
    assert collector.closed == 1


def test_what_was_planted_is_read(clock: Clock) -> None:
    collector = Planted(clock)
    window = (0, 10**8)
    half = 5 * 10**7
    collector.bursts = {
        L1: Burst(
            [Sample(0, half, (900.0, 100.0, 7.0)), Sample(half, 10**8, (0.0, 1000.0, 3.0))], (), window
        ),
        L2: Burst([Sample(0, 10**8, (30.0, 10.0))], (), window),
        DRAM: Burst([Sample(0, 10**8, (4096.0, 8192.0))], (), window),
        TENSOR: Burst([Sample(0, half, (20.0,)), Sample(half, 10**8, (60.0,))], (), window),
    }
    sensor = CuptiSensor(collector, GPU, clock=clock)
    readings = rounds(sensor, clock)
    assert told(readings, "hitmap.gpu.l1.hit_ratio") == [pytest.approx(0.45)]
    assert told(readings, "hitmap.gpu.l2.hit_ratio") == [pytest.approx(0.75)]
    assert told(readings, "hitmap.gpu.tensor.active", hitmap__gpu__pipe="any") == [pytest.approx(0.4)]
    assert told(readings, "hitmap.gpu.l1.misses") == [pytest.approx(1100)]
    assert told(readings, "hitmap.gpu.tensor.instructions") == [pytest.approx(10)]
    # the second set's burst ended 10.1 s after the sensor began: its 100 ms stand for them
    assert told(readings, "hitmap.gpu.l2.misses") == [pytest.approx(10 * 10.1 / 0.1)]
    assert told(readings, "hitmap.gpu.dram.io", disk__io__direction="read") == [
        pytest.approx(4096 * 20.1 / 0.1)
    ]
    running = {one.metric: one.running for one in readings}
    assert running["hitmap.gpu.l2.misses"] == pytest.approx(0.1 / 10.1)
    assert all(one.source == "cupti" and ("hw.id", "GPU-0") in one.attributes for one in readings)
    assert sensor.gaps() == []
    again = list(sensor.read())
    assert told(again, "hitmap.gpu.l1.hit_ratio") == [], "a gauge is told once a burst"
    assert told(again, "hitmap.gpu.l1.misses") == [pytest.approx(1100)]
    assert told(rounds(sensor, clock), "hitmap.gpu.l1.misses") == [pytest.approx(1100 + 1100 * 40 / 0.1)]


def test_a_kernel_has_what_was_counted_inside_it(clock: Clock) -> None:
    collector = Planted(clock)
    samples = [Sample(ms * 10**6, (ms + 1) * 10**6, (60.0, 40.0, float(ms < 4))) for ms in range(8)]
    ran = (Kernel("gemm", 0, 3_500_000), Kernel("copy", 3_500_000, 8_000_000))
    collector.bursts[L1] = Burst(samples, ran, (0, 8 * 10**6))
    collector.bursts[DRAM] = Burst([Sample(0, 10**6, (1.0, 1.0))], ran, (0, 8 * 10**6))
    sensor = CuptiSensor(collector, GPU, clock=clock)
    readings = rounds(sensor, clock)
    passed = 0.1 / 0.008  # the burst's samples cover 8 of 100 ms
    assert told(readings, "hitmap.gpu.l1.misses", hitmap__gpu__kernel="gemm") == [pytest.approx(120 * passed)]
    assert told(readings, "hitmap.gpu.l1.misses", hitmap__gpu__kernel="copy") == [pytest.approx(160 * passed)]
    assert told(readings, "hitmap.gpu.l1.misses") == [pytest.approx(320 * passed)]
    assert told(readings, "hitmap.gpu.tensor.miss_ratio", hitmap__gpu__kernel="gemm") == [pytest.approx(0.4)]
    assert told(readings, "hitmap.gpu.tensor.miss_ratio", hitmap__gpu__kernel="copy") == [], (
        "no tensor kernel"
    )
    time_of = {
        name: told(readings, "hitmap.gpu.kernel.time", hitmap__gpu__kernel=name) for name in ("gemm", "copy")
    }
    assert time_of == {"gemm": [pytest.approx(0.0035 * passed)], "copy": [pytest.approx(0.0045 * passed)]}


def test_kernels_on_another_clock_are_not_joined(clock: Clock) -> None:
    collector = Planted(clock)
    burst = Burst([Sample(0, 10**8, (1.0, 1.0, 1.0))], (Kernel("gemm", 0, 10**8),), (10**12, 10**12 + 10**8))
    collector.bursts[L1] = burst
    sensor = CuptiSensor(collector, GPU, clock=clock)
    sensor.once()
    readings = sensor.read()
    assert told(readings, "hitmap.gpu.l1.hit_ratio") == [0.5]
    assert not [one for one in readings if any(key == "hitmap.gpu.kernel" for key, _ in one.attributes)]
    assert ["not on one clock" in gap.why for gap in sensor.gaps()] == [True]


def test_a_set_that_does_not_fit_into_one_pass_gives_way_to_a_smaller_one(clock: Clock) -> None:
    collector = Planted(clock)
    for form in SETS[0][:2]:
        collector.refused[form.counters] = Refused(3, "not in one pass")
    collector.bursts[SETS[0][2].counters] = Burst([Sample(0, 10**8, (87.0,))], (), (0, 10**8))
    for form in SETS[1]:
        collector.refused[form.counters] = Refused(3, "not in one pass")
    sensor = CuptiSensor(collector, GPU, clock=clock)
    rounds(sensor, clock, 4 * len(SETS))
    readings = rounds(sensor, clock)
    assert told(readings, "hitmap.gpu.l1.hit_ratio") == [pytest.approx(0.87)]
    assert told(readings, "hitmap.gpu.l1.misses") == []
    assert any("mean over time" in gap.what for gap in sensor.gaps())
    assert any("lts__" in gap.what and gap.why == "not in one pass" for gap in sensor.gaps())
    assert collector.asked.count(SETS[0][0].counters) == 1, "what was refused for good is not asked again"


def test_without_the_right_nothing_is_asked_twice(clock: Clock) -> None:
    collector = Planted(clock)
    collector.refused = {L1: Refused(NO_PERMISSION, "kept to administrators", "root")}
    sensor = CuptiSensor(collector, GPU, clock=clock)
    assert rounds(sensor, clock) == []
    assert collector.asked == [L1]
    assert [(gap.why, gap.needs) for gap in sensor.gaps()] == [("kept to administrators", "root")]


@pytest.mark.parametrize("error", [RuntimeError("inside"), OSError("gone"), Refused(15)])
def test_whatever_a_collector_raises_becomes_a_gap(error: Exception, clock: Clock) -> None:
    collector = Planted(clock)
    collector.refused = {L2: error}
    sensor = CuptiSensor(collector, GPU, clock=clock)
    readings = rounds(sensor, clock)
    assert told(readings, "hitmap.gpu.l2.hit_ratio") == []
    assert told(readings, "hitmap.gpu.dram.io", disk__io__direction="read") == [0.0]
    (gap,) = sensor.gaps()
    assert "lts__t_sectors_lookup_hit.sum" in gap.what
    assert str(error) in gap.why
    collector.refused = {}
    rounds(sensor, clock)
    assert sensor.gaps() == []


def test_a_burst_without_numbers_is_a_gap(clock: Clock) -> None:
    collector = Planted(clock)
    collector.bursts[L1] = Burst([Sample(0, 10**8, (float("nan"),) * 3)], (), (0, 10**8))
    sensor = CuptiSensor(collector, GPU, clock=clock)
    sensor.once()
    assert sensor.read() == []
    assert ["no sample with numbers" in gap.why for gap in sensor.gaps()] == [True]


def test_its_thread_samples_and_ends() -> None:
    moving = Clock()
    collector = Planted(moving, 0.0)
    sensor = CuptiSensor(collector, GPU, burst_s=0.0005, every_s=0.01)
    sensor.start()
    deadline = time.monotonic() + 5
    while len(collector.asked) < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    sensor.close()
    done = len(collector.asked)
    assert done >= 8
    assert set(collector.asked) == {L1, L2, DRAM, TENSOR}
    assert collector.closed == 1
    time.sleep(0.05)
    assert len(collector.asked) == done
    sensor.close()
