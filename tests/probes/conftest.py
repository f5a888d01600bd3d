"""Processes with known work, this kernel's BPF where it may be used, and a user without privileges."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from probes.kernel import requirements
from probes.kernel.requirements import Host

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).parent / "kernel" / "worker.py"
NOBODY = 65534


class Worker:
    """tests/probes/kernel/worker.py as a process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self._answer()

    def do(self, what: str, count: float | str = "") -> str:
        """Returns when it is done."""
        assert self.process.stdin
        self.process.stdin.write(f"{what} {count}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@pytest.fixture
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.end()


@pytest.fixture
def other() -> Iterator[Worker]:
    one = Worker()
    yield one
    one.end()


@pytest.fixture(scope="session")
def ebpf() -> None:
    """Skips where this host cannot run eBPF, with what it needs."""
    if missing := requirements.missing(Host()):
        pytest.skip("; ".join(f"{one.why}: needs {one.needs}" for one in missing))


@pytest.fixture(scope="session")
def tracefs(ebpf: None) -> None:
    if missing := requirements.tracefs(Host()):
        pytest.skip(f"{missing.why}: {missing.needs}")


@pytest.fixture
def root() -> None:
    if os.geteuid():
        pytest.skip("needs root, to start a process of another user: run the tests as root")


def child(
    code: str, *, unprivileged: bool = False, open_files: int | None = None, prefix: Sequence[str] = ()
) -> str:
    """What a Python process of its own prints, as nobody or with few descriptors; prefix: the command that starts it.
    It must end well."""
    lines = ["import os, resource, sys", f"sys.path.insert(0, {str(ROOT)!r})"]
    if open_files is not None:
        lines.append(f"resource.setrlimit(resource.RLIMIT_NOFILE, ({open_files}, {open_files}))")
    if unprivileged:
        lines.append(
            "import probes.kernel.support, probes.pmu.sensor, probes.pmu.support"
        )  # while it may read them
        lines.append(f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})")
    done = subprocess.run(
        [*prefix, sys.executable, "-c", "\n".join([*lines, code])],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
