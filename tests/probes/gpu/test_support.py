"""What `hitmap doctor` says of GPUs, on trees of /proc and /sys and on the driver that a test makes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pynvml
import pytest

from probes.gpu.nvml import _REASONS, FUNCTION_NOT_FOUND
from probes.gpu.support import support
from probes.support import State, Support
from tests.probes.gpu.conftest import Driver
from tests.probes.gpu.test_faults import FUNCTIONS

ADMIN, NOBODY = f"{1 << 21:016x}", f"{0:016x}"


class Host:
    """Trees of /proc and /sys."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self.write("proc/self/status", f"Name:\tpython\nCapEff:\t{NOBODY}\n")
        self.write("sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n")

    def write(self, path: str, text: str) -> None:
        whole = self.proc.parent / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)

    def card(self) -> None:
        self.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")

    def module(self, admins_only: str | None = "1") -> None:
        version = "NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:21:26 UTC 2025"
        self.write("proc/driver/nvidia/version", f"NVRM version: {version}\nGCC version: 13\n")
        rows = "" if admins_only is None else f"RmProfilingAdminOnly: {admins_only}\n"
        self.write("proc/driver/nvidia/params", f"ResmanDebugLevel: 4294967295\n{rows}")

    def says(self) -> dict[str, Support]:
        return {row.name: row for row in support(self.proc, self.sys)}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without libnvidia-ml.so.1, whatever this one has."""

    def missing(name: str, *rest: object) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr(ctypes, "CDLL", missing)


def test_never_where_there_is_no_card(host: Host, no_library: None) -> None:
    rows = host.says()
    assert {row.state for row in rows.values()} == {State.NEVER}
    assert {row.how for row in rows.values()} == {"no NVIDIA GPU in this host"}
    assert {"driver", "NVML", "GPM", "MIG", "CUPTI", "performance counters"} == set(rows)


def test_a_card_without_a_driver(host: Host, no_library: None) -> None:
    host.card()
    rows = host.says()
    assert rows["driver"].state is State.NO
    assert "nvidia.com/drivers" in rows["driver"].needs
    assert rows["NVML"].state is State.NO
    assert rows["NVML"].how.startswith("the driver's library does not load: libnvidia-ml.so.1: cannot open")
    assert rows["CUPTI"].state is State.NO
    assert "libcuda.so.1 is not found" in rows["CUPTI"].how
    assert all(row.needs for row in rows.values())


def test_a_card_that_only_the_driver_shows(host: Host, no_library: None) -> None:
    host.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA H200\n")
    host.module()
    rows = host.says()
    assert rows["driver"] == Support(
        "gpu",
        "driver",
        State.YES,
        "NVIDIA UNIX x86_64 Kernel Module 580.65.06 Sun Jul 27 07:21:26 UTC 2025",
    )
    assert rows["NVML"].state is State.NO


def test_two_gpus(host: Host, driver: Driver) -> None:
    driver.says({"gpus": 2, "1.gpm.supported": 0, "1.mig": 1, "1.error.nvmlGpmSampleGet": 3})
    host.card()
    host.module("0")
    rows = host.says()
    assert rows["NVML"].state is State.YES
    assert "NVIDIA Fake GPU-0, NVIDIA Fake GPU-1; driver 580.65.06" in rows["NVML"].how
    assert rows["GPM of NVIDIA Fake GPU-0"].state is State.YES
    assert rows["GPM of NVIDIA Fake GPU-1"].state is State.NEVER
    assert rows["MIG of NVIDIA Fake GPU-0"].how.startswith("off")
    assert rows["MIG of NVIDIA Fake GPU-1"].how.startswith("on")
    assert rows["performance counters"].state is State.YES
    calls = driver.calls()
    assert calls.count("nvmlGpmSampleAlloc") == calls.count("nvmlGpmSampleFree") == 1
    assert calls.count("nvmlInitWithFlags") == calls.count("nvmlShutdown") == 1


def test_a_gpu_that_only_nvml_shows(host: Host, driver: Driver) -> None:
    """As in WSL: neither PCI nor /proc knows it."""
    rows = host.says()
    assert (rows["driver"].state, rows["NVML"].state) == (State.YES, State.YES)


@pytest.mark.parametrize(
    ("admins_only", "capabilities", "state", "how"),
    [
        ("1", NOBODY, State.NO, "RmProfilingAdminOnly: 1"),
        ("1", ADMIN, State.YES, "has CAP_SYS_ADMIN"),
        ("0", NOBODY, State.YES, "open to all users"),
        (None, NOBODY, State.NO, "the driver does not say"),
    ],
)
def test_the_right_to_read_counters(
    admins_only: str | None, capabilities: str, state: State, how: str, host: Host, driver: Driver
) -> None:
    host.module(admins_only)
    host.write("proc/self/status", f"Name:\tpython\nCapEff:\t{capabilities}\n")
    row = host.says()["performance counters"]
    assert row.state is state
    assert how in row.how
    assert ("NVreg_RestrictProfilingToAdminUsers=0" in row.needs) == (state is State.NO)


def test_this_process_is_read_as_the_kernel_shows_it(host: Host, driver: Driver) -> None:
    """The real /proc/self/status: root in a container may or may not have the capability."""
    status = Path("/proc/self/status").read_text()
    has = int(status.split("CapEff:")[1].split()[0], 16) >> 21 & 1
    row = {row.name: row for row in support(sys=host.sys)}["performance counters"]
    assert row.state is (State.YES if has else State.NO) or "open to all users" in row.how


@pytest.mark.parametrize("code", sorted(_REASONS))
def test_any_error_is_a_row(code: int, host: Host, driver: Driver) -> None:
    host.card()
    driver.says({"log": None})
    for function in FUNCTIONS:
        driver.says({f"error.{function}": code})
        for row in host.says().values():
            assert row.how
            assert bool(row.needs) == (row.state in (State.NO, State.LESS)), row
        driver.says({f"error.{function}": None})


def test_an_old_driver_says_what_it_is_too_old_for(host: Host, driver: Driver) -> None:
    driver.load("old")
    row = host.says()["GPM of NVIDIA Fake GPU-0"]
    assert (row.state, row.how, row.needs) == (State.NO, *_REASONS[FUNCTION_NOT_FOUND])
