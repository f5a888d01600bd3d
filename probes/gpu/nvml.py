"""NVML behind one door: the binding when it is needed, and every refusal as a reason.

The binding is nvidia-ml-py (its module is called pynvml). It opens libnvidia-ml.so.1, which the driver brings, and
looks up each function when it is first called.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import warnings
from typing import Any

INSTALL, INSTALL_CUPTI = "pip install 'hitmap[gpu]'", "pip install 'hitmap[cupti]'"

UNINITIALIZED, INVALID_ARGUMENT, NO_PERMISSION, NOT_LOADED, FUNCTION_NOT_FOUND, UNKNOWN = 1, 2, 4, 12, 13, 999
DRIVER_GONE = frozenset({UNINITIALIZED, 9, NOT_LOADED, 18})
"""Nothing works any more until the library is initialised again."""
DEVICE_GONE = frozenset({15, 16, 28})
"""Nothing of this device works any more; others may go on."""
FOR_GOOD = frozenset({INVALID_ARGUMENT, 3, FUNCTION_NOT_FOUND, 22, 24, 25, 26, 30})
"""Asking again gives the same answer as long as this driver is loaded."""

_NEWER = "a newer NVIDIA driver"
# Codes of nvmlReturn_t in nvml.h: why, and what would open it.
_REASONS: dict[int, tuple[str, str]] = {
    1: ("NVML was shut down or its driver was unloaded", "a loaded NVIDIA driver"),
    2: ("the driver does not know what was asked for", _NEWER),
    3: ("this device does not support it", ""),
    4: ("the driver refuses it to this user", "root, or CAP_SYS_ADMIN"),
    5: ("NVML says it is initialised already", ""),
    6: ("the driver does not find it", ""),
    7: ("the list grew while it was read", ""),
    8: ("the GPU's power cables are not attached", "the power cables of the GPU"),
    9: ("the NVIDIA driver is not loaded", "modprobe nvidia"),
    10: ("the driver did not answer in time", ""),
    11: ("the kernel sees a fault in the GPU's interrupts", "the kernel log (dmesg) tells more"),
    12: ("libnvidia-ml.so.1 is not found", "the NVIDIA driver's libraries in this host or container"),
    13: ("this driver is older than the function", _NEWER),
    14: ("the GPU's infoROM is corrupted", "nvidia-smi tells more; the card may have to be replaced"),
    15: ("the GPU is lost: it fell off the bus", "a reset or a reboot; dmesg tells more (Xid)"),
    16: ("the GPU must be reset before it can be used", "nvidia-smi --gpu-reset, or a reboot"),
    17: ("the operating system refused a call of the driver", "access to /dev/nvidia*"),
    18: ("the driver was replaced under this process", "start the probe again, or reload the driver"),
    19: ("the GPU is in use for something that forbids it", ""),
    20: ("the driver has no memory left for it", ""),
    21: ("the driver has no data yet", ""),
    22: ("ECC is on, which forbids it for a virtual GPU", ""),
    23: ("the driver is out of resources", ""),
    24: ("the frequency is not supported", ""),
    25: ("driver and binding differ in the version of a struct", _NEWER),
    26: ("the driver has dropped the function", "a newer hitmap or nvidia-ml-py"),
    27: ("the driver is not ready", ""),
    28: ("no NVIDIA GPU is found", "an NVIDIA GPU that this host or container may see"),
    29: ("the device is in a state that forbids it", ""),
    30: ("the device does not support that reset", ""),
    UNKNOWN: ("the driver failed inside", "dmesg may tell more"),
}


class Refused(Exception):
    """The driver, or its binding, did not give what was asked for. code: of nvmlReturn_t."""

    def __init__(self, code: int, why: str = "", needs: str = "") -> None:
        known, opens = _REASONS.get(code, (f"the driver answered with error {code}", ""))
        self.code, self.why, self.needs = code, why or known, needs or opens
        super().__init__(self.why)


class Nvml:
    """The binding, each of whose errors is a Refused.

    Raises Refused from the start where the binding is missing or is not NVIDIA's.
    """

    def __init__(self) -> None:
        self.lib: Any = _binding()

    def call(self, function: str, *arguments: Any) -> Any:
        """What the binding's function of that name gives, or Refused."""
        try:
            return getattr(self.lib, function)(*arguments)
        except self.lib.NVMLError as error:
            unloaded = error.value == NOT_LOADED and self.lib.nvmlLib is None
            raise Refused(error.value, _why_not_loaded() if unloaded else "") from error
        except Exception as error:  # the edge to a third party's C library: nothing of it may reach a server
            raise Refused(UNKNOWN, f"{function}: {error!r}") from error


def _why_not_loaded() -> str:
    """What the loader says: the binding tells a missing library from no other cause (no descriptor left, say)."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return f"the driver's library does not load: {error}"
    return ""


def _binding() -> Any:
    try:
        with warnings.catch_warnings():  # of pynvml 12 and later, which bring no module and only warn
            warnings.simplefilter("ignore", FutureWarning)
            lib = importlib.import_module("pynvml")
    except ImportError as error:
        raise Refused(UNKNOWN, "the Python package nvidia-ml-py is not installed", INSTALL) from error
    if hasattr(lib, "__path__"):  # NVIDIA's is one file, the deprecated copy of it is a folder
        version = installed("pynvml") or "of unknown version"
        raise Refused(
            UNKNOWN,
            f"the module pynvml is not NVIDIA's: it comes from the deprecated package pynvml {version}",
            f"pip uninstall pynvml, then {INSTALL}",
        )
    if not hasattr(lib, "nvmlDeviceGetCurrentClocksEventReasons"):  # of what is asked, the latest to come
        version = installed("nvidia-ml-py") or "of unknown version"
        raise Refused(UNKNOWN, f"nvidia-ml-py {version} is too old", f"{INSTALL} --upgrade")
    return lib


def installed(distribution: str) -> str:
    """Its version; empty where it is not installed, or where nothing can be read (no descriptor left)."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
