"""The check of a real card, run as a person runs it: here without one, and on the driver that a test makes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks import gpu_check
from probes.gpu.counters import Burst, Sample
from tests.probes.gpu.conftest import Driver
from tests.probes.gpu.test_binding import ROOT


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nvidia-ml-py and nothing else of PyPI."""
    folder = tmp_path_factory.mktemp("bare")
    for file in importlib.metadata.files("nvidia-ml-py") or ():
        if file.name == "pynvml.py" or ".dist-info" in str(file):
            target = folder / str(file)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)
    return folder


def checked(bare: Path, *options: str, library: Path, answers: Path | None = None) -> tuple[int, str]:
    """Exit code and what it printed, with the standard library and nvidia-ml-py only."""
    program = (
        "import runpy, sys\n"
        f"sys.path[:0] = [{str(bare)!r}]\n"
        f"sys.argv = ['gpu_check', *{list(options)!r}]\n"
        f"runpy.run_path({str(ROOT / 'benchmarks' / 'gpu_check.py')!r}, run_name='__main__')"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "HITMAP_FAKE_NVML": str(answers)}
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert ran.returncode in (0, 1, 3), ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, ran.stdout


def test_without_a_gpu_it_says_so(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("")  # found first, and no library
    code, printed = checked(bare, library=tmp_path)
    assert code == 3
    assert printed.startswith("no GPU to check:\n  driver: ")
    code, printed = checked(bare, "--json", library=tmp_path)
    assert code == 3
    assert json.loads(printed)["gpu"] is None


def test_what_cannot_be_true_fails_it(bare: Path, libraries: dict[str, Path], driver: Driver) -> None:
    driver.says({"log": None, "0.gpm.10": 40})
    library = libraries["new"].parent
    code, printed = checked(bare, "--seconds", "0.5", library=library, answers=driver.file)
    assert code == 0, printed
    assert "only idle: torch is not installed" in printed
    driver.says({"0.gpm.10": 140, "0.gpm.5": 30, "0.gpm.2.error": 4})
    code, printed = checked(bare, "--json", "--seconds", "0.5", library=library, answers=driver.file)
    assert code == 1
    said = json.loads(printed)
    verdicts = {(check["what"], check["phase"]): check for check in said["checks"]}
    wrong = {what for (what, _), check in verdicts.items() if check["verdict"] == "NO"}
    assert wrong == {"hitmap.gpu.dram.utilization", "hitmap.gpu.tensor.active any (must)"}
    assert verdicts["hitmap.gpu.dram.utilization", "idle"]["seen"] == pytest.approx(1.4)
    assert any("sm.active" in gap["what"] and "refuses it to this user" in gap["why"] for gap in said["gaps"])


class Monitors:
    """A collector of ours: within L2 nearly all accesses hit, beyond it few."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.counters = driver, ()

    def configure(self, counters: Sequence[str]) -> None:
        self.counters = tuple(counters)

    def burst(self, seconds: float) -> Burst:
        resident = "resident" in self.driver.file.read_text()
        hits, misses = (95.0, 5.0) if resident else (30.0, 70.0)
        values = (hits, misses, 1.0)[: len(self.counters)]
        if "pct" in self.counters[0]:
            values = (60.0 if "matmul" in self.driver.file.read_text() else 0.0,)
        return Burst([Sample(0, 10**8, values)], (), (0, 10**8))

    def close(self) -> None:
        self.counters = ()


def test_its_phases_on_loads_that_show_and_on_one_that_does_not(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loads write what a card would show into the driver: all as it must be, but the copies move nothing."""
    driver.says(
        {"log": None, "0.processes": 1, "0.processes.0.pid": os.getpid(), "0.processes.0.used": 3 << 30}
    )
    shown: dict[str, dict[str, object]] = {
        "matmul": {"0.utilization.gpu": 99, "0.gpm.2": 95, "0.gpm.5": 70, "0.gpm.7": 70, "0.gpm.10": 30},
        "streaming": {"0.gpm.10": 85, "0.gpm.5": 0, "0.gpm.7": 0},
        "resident": {"0.gpm.10": 1, "0.gpm.5": 0},
        "copies": {"0.gpm.10": 20, "0.gpm.5": 0},
    }

    def load(phase: str) -> Callable[[], None]:
        def step() -> None:
            driver.says({"phase": phase, **shown[phase]})
            time.sleep(0.02)

        return step

    monkeypatch.setattr(gpu_check, "loads", lambda: ({phase: load(phase) for phase in shown}, ""))
    monkeypatch.setattr(gpu_check, "CuptiCollector", lambda device: Monitors(driver))
    outcome = gpu_check.run(0.5)
    assert outcome is not None
    checks, about = outcome
    assert {(check.what, check.phase) for check in checks if check.verdict != "yes"} == {
        ("hw.gpu.io receive (must)", "copies")
    }
    seen = {check.what: check.seen for check in checks if check.phase == "both"}
    assert seen == {
        "cupti L2 hits: resident - streaming": pytest.approx(0.65),
        "DRAM used: streaming - resident": pytest.approx(0.84),
    }
    lines = list(gpu_check.table(checks, about))
    assert any(line.startswith("hw.gpu.io receive (must)") and line.endswith(" NO") for line in lines)
