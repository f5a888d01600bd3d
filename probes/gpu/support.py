"""What this host supports of GPUs, tried just now."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probes.gpu.cupti import PERMISSION
from probes.gpu.nvml import INSTALL_CUPTI, Nvml, Refused, installed
from probes.support import State, Support

NVIDIA = "0x10de"
"""NVIDIA's vendor id on PCI."""
_CAP_SYS_ADMIN = 21
_DRIVER = "the NVIDIA driver: https://www.nvidia.com/drivers, or the distribution's package"
_NAMES = ("driver", "NVML", "GPM", "MIG", "CUPTI", "performance counters")


def support(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> list[Support]:
    """Rows for `hitmap doctor`. NEVER for all where neither PCI, the driver nor NVML shows an NVIDIA GPU."""
    nvml, refused = _initialised()
    try:
        if nvml is None and not _seen(proc, sys):
            return [_row(name, State.NEVER, "no NVIDIA GPU in this host") for name in _NAMES]
        rows = [_driver(proc, nvml)]
        if nvml is None:
            rows.append(_row("NVML", State.NO, refused.why, refused.needs or _DRIVER))
            without = "NVML does not answer, and would have to be asked"
            rows += [_row(name, State.NO, without, "what NVML needs") for name in ("GPM", "MIG")]
        else:
            rows += _nvml(nvml)
        return [*rows, _cupti(), _permission(proc)]
    finally:
        if nvml is not None:
            with contextlib.suppress(Refused):  # gone meanwhile
                nvml.call("nvmlShutdown")


def present(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> bool:
    """Whether there is an NVIDIA GPU: NVML begins, or PCI or the driver shows one that NVML does not."""
    nvml, _ = _initialised()
    if nvml is None:
        return _seen(proc, sys)
    with contextlib.suppress(Refused):
        nvml.call("nvmlShutdown")
    return True


def _row(name: str, state: State, how: str, needs: str = "") -> Support:
    return Support("gpu", name, state, how, needs if state in (State.NO, State.LESS) else "")


def _initialised() -> tuple[Nvml | None, Refused]:
    try:
        nvml = Nvml()
        nvml.call("nvmlInit")
    except Refused as refusal:
        return None, refusal
    return nvml, Refused(0)


def _seen(proc: Path, sys: Path) -> bool:
    """Whether PCI, or the driver, shows a card."""
    with contextlib.suppress(OSError):
        if any((proc / "driver/nvidia/gpus").iterdir()):
            return True
    vendors = (sys / "bus/pci/devices").glob("*/vendor")
    return any(_text(vendor).strip() == NVIDIA for vendor in vendors)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _driver(proc: Path, nvml: Nvml | None) -> Support:
    lines = _text(proc / "driver/nvidia/version").splitlines()
    if lines:
        return _row("driver", State.YES, " ".join(lines[0].removeprefix("NVRM version:").split()))
    if nvml is not None:  # as in WSL, whose kernel has no module of that name
        return _row("driver", State.YES, "NVML answers; the kernel module nvidia is not in this kernel")
    return _row("driver", State.NO, "a card is there, but the kernel module nvidia is not loaded", _DRIVER)


def _nvml(nvml: Nvml) -> Iterator[Support]:
    version = installed("nvidia-ml-py") or "of unknown version"
    try:
        handles = [
            nvml.call("nvmlDeviceGetHandleByIndex", index) for index in range(nvml.call("nvmlDeviceGetCount"))
        ]
        names = [
            f"{nvml.call('nvmlDeviceGetName', handle)} {nvml.call('nvmlDeviceGetUUID', handle)}"
            for handle in handles
        ]
        driver = nvml.call("nvmlSystemGetDriverVersion")
    except Refused as refusal:
        yield _row("NVML", State.NO, refusal.why, refusal.needs or _DRIVER)
        return
    if not handles:
        needs = "GPUs given to this container (docker run --gpus all), or read access to /dev/nvidia*"
        yield _row("NVML", State.NO, f"driver {driver} shows no GPU", needs)
        return
    yield _row("NVML", State.YES, f"{', '.join(names)}; driver {driver}, nvidia-ml-py {version}")
    for handle, name in zip(handles, names, strict=True):
        yield _gpm(nvml, handle, name)
        yield _mig(nvml, handle, name)


def _gpm(nvml: Nvml, handle: Any, name: str) -> Support:
    what = f"GPM of {name}"
    try:
        supported = nvml.call("nvmlGpmQueryDeviceSupport", handle).isSupportedDevice
        if not supported:
            return _row(what, State.NEVER, "this GPU has none: it came with the Hopper generation")
        sample = nvml.call("nvmlGpmSampleAlloc")
        try:
            nvml.call("nvmlGpmSampleGet", handle, sample)
        finally:
            nvml.call("nvmlGpmSampleFree", sample)
    except Refused as refusal:
        return _row(what, State.NO if refusal.needs else State.NEVER, refusal.why, refusal.needs)
    return _row(
        what, State.YES, "a sample was taken: tensor, SM and pipe activity, DRAM, memory caches, links"
    )


def _mig(nvml: Nvml, handle: Any, name: str) -> Support:
    what = f"MIG of {name}"
    try:
        on = nvml.call("nvmlDeviceGetMigMode", handle)[0]
    except Refused as refusal:
        return _row(what, State.NO if refusal.needs else State.NEVER, refusal.why, refusal.needs)
    return _row(
        what, State.YES, "on: every instance is read by itself" if on else "off: the GPU is read as a whole"
    )


def _cupti() -> Support:
    version = installed("cupti-python")
    if not version:
        return _row("CUPTI", State.NO, "the Python package cupti-python is not installed", INSTALL_CUPTI)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        needs = "the NVIDIA driver's CUDA library in this host or container"
        return _row("CUPTI", State.NO, f"cupti-python {version}, but libcuda.so.1 is not found", needs)
    how = (
        f"cupti-python {version}; in bursts, one profiler at a time on a GPU, and with a CUDA context in the probe; "
        "kernels by name only of the process that it runs in; not verified on hardware"
    )
    return _row("CUPTI", State.YES, how)


def _permission(proc: Path) -> Support:
    name = "performance counters"
    parameters = dict(
        line.split(": ", 1) for line in _text(proc / "driver/nvidia/params").splitlines() if ": " in line
    )
    admins_only = parameters.get("RmProfilingAdminOnly")
    if admins_only == "0":
        return _row(name, State.YES, "open to all users (RmProfilingAdminOnly: 0)")
    status = dict(line.split(":\t", 1) for line in _text(proc / "self/status").splitlines() if ":\t" in line)
    if int(status.get("CapEff", "0"), 16) >> _CAP_SYS_ADMIN & 1:
        return _row(name, State.YES, "kept to administrators, and this process has CAP_SYS_ADMIN")
    why = "the driver keeps them to administrators (RmProfilingAdminOnly: 1)"
    if admins_only is None:
        why = "the driver does not say (no RmProfilingAdminOnly in /proc/driver/nvidia/params)"
    return _row(name, State.NO, f"{why}; this process has no CAP_SYS_ADMIN", PERMISSION)
