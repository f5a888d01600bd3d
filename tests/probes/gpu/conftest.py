"""The real binding on a small C library of ours, whose answers a test writes into a file."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")


def headers(distribution: str, name: str) -> Path:
    """Folder of a C header that a distribution of PyPI brings."""
    for file in importlib.metadata.files(distribution) or ():
        if file.name == name:
            return Path(str(file.locate())).parent
    raise FileNotFoundError(f"{distribution} has no {name}")


def compiled(source: Path, target: Path, *options: str) -> Path:
    """The source built with gcc; the test is skipped where there is none."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc: install it (Debian: apt-get install gcc)")
    target.parent.mkdir(parents=True, exist_ok=True)
    include = f"-I{headers('nvidia-nvml-dev', 'nvml.h')}"
    build = ["gcc", include, str(source), *options, "-o", str(target)]  # libraries after what needs them
    subprocess.run(build, check=True, capture_output=True, text=True)
    return target


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Paths of libnvidia-ml.so.1, as a driver of today has it (new) and as one before 535 (old)."""
    there = tmp_path_factory.mktemp("nvml")
    strict = ("-shared", "-fPIC", "-Wall", "-Werror")
    return {
        "new": compiled(SOURCE, there / "new" / "libnvidia-ml.so.1", *strict),
        "old": compiled(SOURCE, there / "old" / "libnvidia-ml.so.1", *strict, "-DOLD"),
    }


class Driver:
    """What the library answers, from the next call on."""

    def __init__(self, folder: Path, load: Callable[[str], None]) -> None:
        self._file, self._log = folder / "answers", folder / "calls"
        self._answers: dict[str, object] = {"log": self._log}
        self.load = load
        self.says()

    @property
    def file(self) -> Path:
        """Where the answers stand."""
        return self._file

    def says(self, answers: dict[str, object] | None = None) -> None:
        """Changes some answers; None takes one back."""
        self._answers.update(answers or {})
        lines = [f"{key} {value}\n" for key, value in self._answers.items() if value is not None]
        whole = self._file.with_suffix(".new")
        whole.write_text("".join(lines))
        whole.replace(self._file)

    def calls(self) -> list[str]:
        """Names of the functions that were called since the last time this was asked."""
        names = self._log.read_text().split() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return names


@pytest.fixture
def driver(libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """One GPU that answers with zeros and defaults; `driver.load("old")` swaps the library."""

    def load(age: str) -> None:
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(libraries[age])))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    monkeypatch.setitem(os.environ, "HITMAP_FAKE_NVML", str(tmp_path / "answers"))
    load("new")
    yield Driver(tmp_path, load)
    for library in libraries.values():  # each test finds it not initialised
        loaded = ctypes.CDLL(str(library))
        Driver(tmp_path, load).says({"log": None})
        while loaded.nvmlShutdown() == 0:
            pass


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Stands still until a test moves it."""
    return Clock()
