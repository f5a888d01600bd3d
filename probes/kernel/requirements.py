"""What eBPF needs here, looked at before anything is compiled: BCC says one sentence for all that can be missing."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from probes.kernel import distribution, processes

CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF = 21, 38, 39
OLDEST = (5, 8)
"""Linux with CAP_BPF, CAP_PERFMON and map reads in one call."""


class Missing(NamedTuple):
    """why: one sentence; needs: what opens it."""

    why: str
    needs: str


class Host(NamedTuple):
    """Where to look; tests look elsewhere."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    modules: Path = Path("/lib/modules")
    packages: Sequence[Path] = distribution.FOLDERS
    release: str = platform.release()
    machine: str = platform.machine()


def missing(host: Host) -> list[Missing]:
    """Of the counting of faults and flushes; empty where all is there."""
    return list(_missing(host))


def _missing(host: Host) -> Iterator[Missing]:
    if host.machine != "x86_64":
        yield Missing(
            f"the kernel has no tracepoints of page faults and TLB flushes on {host.machine}", "x86_64"
        )
    if _version(host.release) < OLDEST:
        yield Missing(f"Linux {host.release} is too old", f"Linux {OLDEST[0]}.{OLDEST[1]} or newer")
    if not processes.in_host_pid_namespace(host.proc):
        yield Missing(
            "process numbers here are not the kernel's: this runs in a container",
            "the host's processes (docker run --pid=host, Kubernetes hostPID: true)",
        )
    if distribution.folder(host.packages) is None:
        yield Missing("BCC is not installed", distribution.PACKAGE)
    if not headers(host):
        yield Missing(
            f"no kernel headers at {host.modules / host.release / 'build'}",
            f"linux-headers-{host.release}, or a link there to headers of any version, or CONFIG_IKHEADERS",
        )
    if not privileged(host.proc):
        yield Missing(
            "this user may not load BPF programs",
            "root, or CAP_BPF and CAP_PERFMON (systemd: AmbientCapabilities=CAP_BPF CAP_PERFMON CAP_SYS_PTRACE); "
            "kernel.unprivileged_bpf_disabled does not help, it opens no tracepoints",
        )


def headers(host: Host) -> bool:
    """Headers of any version do: nothing of the running kernel's own structs is read."""
    build = host.modules / host.release / "build"
    return build.is_dir() or (host.sys / "kernel" / "kheaders.tar.xz").exists()


def tracefs(host: Host) -> Missing | None:
    """Needed by futex waits only: those read the fields of a tracepoint's format file."""
    why = Missing("tracefs is not mounted", "mount -t tracefs tracefs /sys/kernel/tracing (as root)")
    for one in ("kernel/tracing/events", "kernel/debug/tracing/events"):
        try:
            if (host.sys / one / "syscalls" / "sys_enter_futex" / "format").read_bytes():
                return None
        except PermissionError:
            remount = "mount -o remount,mode=755 /sys/kernel/tracing (as root)"
            why = Missing("this user may not read tracefs", f"CAP_DAC_READ_SEARCH, or {remount}")
        except OSError:
            continue
    return why


def privileged(proc: Path) -> bool:
    """CAP_SYS_ADMIN, or both CAP_BPF and CAP_PERFMON, in force in this process."""
    held = capabilities(proc)
    return bool(held >> CAP_SYS_ADMIN & 1 or (held >> CAP_BPF & 1 and held >> CAP_PERFMON & 1))


def capabilities(proc: Path) -> int:
    """Effective ones, as bits; 0 where they cannot be read."""
    try:
        lines = (proc / "self" / "status").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


def _version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else OLDEST
