"""Which sensors a host has, and why not the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probes.daemon.loop import Watch
from probes.daemon.sensors import GPU_EVERY_S, Wanted, opened
from probes.gpu.sensor import GpuSensor
from probes.gpu.support import NVIDIA, present
from probes.kernel.sensor import KernelSensor
from probes.pmu.sensor import PmuSensor
from probes.reading import Gap


def test_what_is_asked_for_is_opened_and_read_as_often_as_asked() -> None:
    found = list(opened(Wanted(gpu=False, every_s=0.01), [os.getpid()]))
    watches = [one for one in found if isinstance(one, Watch)]
    assert [type(one.sensor) for one in watches] == [KernelSensor, PmuSensor]
    assert {one.every_s for one in watches} == {0.01}
    assert any(reading.metric == "process.cpu.time" for reading in watches[0].sensor.read())
    for one in watches:
        one.sensor.close()


def test_of_a_whole_host_cpu_caches_are_a_gap() -> None:
    (gap,) = opened(Wanted(kernel=False, gpu=False), None)
    assert isinstance(gap, Gap)
    assert (gap.what, gap.needs) == ("hitmap.pmu.*", "--pid or --port")


def test_without_a_gpu_there_is_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.gpu.support.present", lambda: False)
    wanted = Wanted(kernel=False, pmu=False, gpu=True, cupti=True)
    assert list(opened(wanted, None)) == [Gap("GPUs", "no NVIDIA GPU in this host")]


def test_gpus_are_read_no_more_often_than_they_tell_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.gpu.support.present", lambda: True)
    (watch,) = opened(Wanted(kernel=False, pmu=False, every_s=0.01), None)
    assert isinstance(watch, Watch)
    assert isinstance(watch.sensor, GpuSensor)
    assert watch.every_s == GPU_EVERY_S
    watch.sensor.close()


def test_a_card_that_pci_shows_is_there_though_nvml_does_not_answer(tmp_path: Path) -> None:
    if present():
        pytest.skip("this host has a GPU: NVML answers whatever PCI shows")
    assert not present(tmp_path, tmp_path)
    device = tmp_path / "bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(NVIDIA + "\n")
    assert present(tmp_path, tmp_path)
