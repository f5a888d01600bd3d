"""The binding is found, or it is said why not: each in a process of its own, as a daemon finds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.probes.gpu.conftest import Driver

ROOT = Path(__file__).parents[3]
READ = """
import sys
sys.path[:0] = {paths!r}
from probes.gpu.sensor import GpuSensor
sensor = GpuSensor()
print(len(sensor.read()), *((gap.why, gap.needs) for gap in sensor.gaps()))
"""


def child(program: str, *, isolated: bool = False, **environment: str) -> str:
    """What a fresh Python prints."""
    flags = ["-I", "-S"] if isolated else []
    ran = subprocess.run(
        [sys.executable, *flags, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_drivers_library_is_found_by_its_name(libraries: dict[str, Path], driver: Driver) -> None:
    driver.says({"0.memory.used": 5, "log": None})
    program = (
        READ.format(paths=[])
        + "\nprint([r.value for r in sensor.read() if r.metric == 'hw.gpu.memory.usage'])"
    )
    printed = child(program, LD_LIBRARY_PATH=str(libraries["new"].parent), HITMAP_FAKE_NVML=str(driver.file))
    assert printed.splitlines()[-1] == "[5.0]"


def test_without_the_drivers_library(tmp_path: Path) -> None:
    empty = tmp_path / "libnvidia-ml.so.1"  # found first, and no library
    empty.write_text("")
    printed = child(READ.format(paths=[]), LD_LIBRARY_PATH=str(tmp_path))
    assert "the driver's library does not load: " in printed
    assert "libnvidia-ml.so.1: file too short" in printed
    assert "host or container" in printed


def test_without_a_descriptor_left_and_then_with_one(libraries: dict[str, Path], driver: Driver) -> None:
    driver.says({"log": None, "0.memory.used": 5})
    program = (
        "import ctypes, os, pynvml, resource, probes.gpu.sensor as module\n"
        "now = [0.0]\nsensor = module.GpuSensor(lambda: now[0])\n"
        "lowest = os.dup(0)\nos.close(lowest)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, 64))\n"
        "print(len(sensor.read()), sensor.gaps()[0].why)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nnow[0] += 2\n"
        "print([r.value for r in sensor.read() if r.metric == 'hw.gpu.memory.usage'])"
    )
    printed = child(program, LD_LIBRARY_PATH=str(libraries["new"].parent), HITMAP_FAKE_NVML=str(driver.file))
    without, again = printed.splitlines()
    assert without.startswith("0 the driver's library does not load")
    assert "Too many open files" in without or "Error 24" in without
    assert again == "[5.0]"


@pytest.mark.skipif(
    os.getuid() != 0, reason="gives up root's rights, so it must have them: run the tests as root"
)
def test_without_roots_rights_the_counters_are_refused_in_advance(tmp_path: Path) -> None:
    """The kernel's own /proc/self/status, before and after this process gives up its rights."""
    proc = tmp_path / "proc"
    (proc / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (proc / "driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    (proc / "self").mkdir()
    (proc / "self/status").symlink_to("/proc/self/status")
    tmp_path.chmod(0o755)
    program = (
        "import os, stat\nfrom pathlib import Path\nfrom probes.gpu.support import support\n"
        f"proc = Path({str(proc)!r})\n"
        "said = lambda: next(r for r in support(proc) if r.name == 'performance counters')\n"
        "os.chdir(proc)\nproc = Path('.')\nsaid()\nos.setgid(65534)\nos.setuid(65534)\nrow = said()\n"
        "print(row.state, '|', row.how, '|', row.needs)"
    )
    state, how, needs = child(program).split(" | ")
    assert state == "no"
    assert "RmProfilingAdminOnly: 1" in how
    assert "CAP_SYS_ADMIN" in needs


def test_without_the_package() -> None:
    printed = child(READ.format(paths=[str(ROOT)]), isolated=True)
    expected = ("the Python package nvidia-ml-py is not installed", "pip install 'hitmap[gpu]'")
    assert printed == f"0 {expected!r}"


@pytest.mark.parametrize("version", ["11.5.3", None])
def test_the_deprecated_package_in_its_place(version: str | None, tmp_path: Path) -> None:
    (tmp_path / "pynvml").mkdir()  # as its wheel has it: a package
    (tmp_path / "pynvml" / "__init__.py").write_text("class NVMLError(Exception): ...\n")
    if version:
        about = tmp_path / f"pynvml-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pynvml\nVersion: {version}\n")
    printed = child(READ.format(paths=[str(tmp_path), str(ROOT)]), isolated=True)
    assert "the module pynvml is not NVIDIA's" in printed
    assert f"the deprecated package pynvml {version or 'of unknown version'}" in printed
    assert "pip uninstall pynvml, then pip install 'hitmap[gpu]'" in printed


def test_the_warning_of_the_deprecated_package_beside_the_binding_is_not_shown(tmp_path: Path) -> None:
    """pynvml 12 and later bring no module, only a finder that warns and leaves the import to nvidia-ml-py's."""
    program = """
import sys, warnings
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == 'pynvml':
            warnings.warn('The pynvml package is deprecated.', FutureWarning)
sys.meta_path.insert(0, Finder())
warnings.simplefilter('error')
from probes.gpu.nvml import Nvml
print(Nvml().lib.__name__)
"""
    assert child(program) == "pynvml"


def test_a_binding_that_is_too_old(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("class NVMLError(Exception): ...\n")
    about = tmp_path / "nvidia_ml_py-11.450.51.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-ml-py\nVersion: 11.450.51\n")
    printed = child(READ.format(paths=[str(tmp_path), str(ROOT)]), isolated=True)
    assert "nvidia-ml-py 11.450.51 is too old" in printed
    assert "--upgrade" in printed


def test_importing_the_sensor_loads_neither_binding_nor_cupti() -> None:
    program = (
        "import sys, probes.gpu.sensor, probes.gpu.bursts, probes.gpu.cupti, probes.gpu.support\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'pynvml', 'cupti', 'cuda', 'numpy', 'torch'}))"
    )
    assert child(program) == "[]"


def test_cupti_without_a_driver_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("")
    program = (
        "from probes.gpu.cupti import CuptiCollector\nfrom probes.gpu.nvml import Refused\n"
        "try:\n    CuptiCollector()\nexcept Refused as refusal:\n    print(refusal.why, '|', refusal.needs)"
    )
    printed = child(program, LD_LIBRARY_PATH=str(tmp_path))
    assert printed == "libcuda.so.1 is not found | the NVIDIA driver's libraries in this host or container"


def test_the_collector_calls_only_what_cupti_python_has() -> None:
    """Its names and parameters, read from the installed package; no card is needed for that."""
    program = """
import inspect
from cupti import cupti, pm_sampling
collector = pm_sampling.Collector
wanted = {'metrics', 'hardware_buffer_size', 'sampling_interval'}
assert wanted <= set(inspect.signature(collector.configure).parameters)
assert {'start_timestamp', 'end_timestamp', 'metric_values'} <= set(pm_sampling.Sample.__annotations__)
for name in ('enable', 'start', 'stop', 'decode', 'disable'):
    assert callable(getattr(collector, name)), name
for name in ('register_callbacks', 'enable', 'disable', 'flush_all'):
    assert callable(getattr(cupti, 'activity_' + name)), name
for name in ('get_timestamp',):
    assert callable(getattr(cupti, name)), name
kernel = cupti.ActivityKernel12
assert all(hasattr(kernel, name) for name in ('kind', 'device_id', 'name', 'start', 'end'))
print(int(cupti.ActivityKind.CONCURRENT_KERNEL))
"""
    pytest.importorskip(
        "cupti", reason="pip install 'hitmap[cupti]' (cupti-python has no wheel for this Python)"
    )
    assert child(program) == "10"
