"""In which container does a process run, and how is it known in there?

A server in a container does not know how the host calls it: its spans tell the pid that it has in there under the
container's host name, or what its runtime was told (container.id, k8s.pod.uid). So a probe tells these, too.

Paths of cgroups are as Docker, containerd and CRI-O make them, with cgroupfs or systemd: a container's id is 64
hexadecimal digits, a pod's UID follows `pod`, under systemd with `_` for `-`. The host name in there is read from
HOSTNAME, which those runtimes set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from cachemodel.observed import CGROUP, CONTAINER_HOST, CONTAINER_ID, CONTAINER_PID, POD
from probes.kernel import parse
from probes.kernel.processes import GONE, PROC

_LONGEST_ENVIRONMENT = 1 << 20
_V2 = "0::"
_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?![0-9a-f])")


def known_as(pid: int, host: str, proc: Path = PROC) -> Mapping[str, str]:
    """Attributes of its resource that its container gives it; without what this user may not see. host: the host name
    here. Raises OSError where no descriptor is left."""
    return {**_by_cgroup(_text(proc / str(pid) / "cgroup")), **_inside(pid, host, proc)}


def _by_cgroup(text: str) -> dict[str, str]:
    """Of /proc/PID/cgroup. Where one container runs in another the inner one is meant."""
    ids, pods = _ID.findall(text), _POD.findall(text)
    v2 = next((line for line in text.splitlines() if line.startswith(_V2)), "")
    found = {
        CGROUP: v2 if v2.removeprefix(_V2).strip("/") else "",
        CONTAINER_ID: ids[-1] if ids else "",
        POD: pods[-1].replace("_", "-") if pods else "",
    }
    return {name: value for name, value in found.items() if value}


def _inside(pid: int, host: str, proc: Path) -> dict[str, str]:
    """Both or nothing: a pid without its host name is anybody's."""
    inner = parse.inner_pid(_text(proc / str(pid) / "status"))
    if _namespace(proc / str(pid)) != _namespace(proc / "self"):
        host = _host_name(proc / str(pid))
    elif inner == pid:
        return {}
    return {CONTAINER_HOST: host, CONTAINER_PID: str(inner)} if host and inner else {}


def _namespace(process: Path) -> str:
    """That of its host name."""
    try:
        return str((process / "ns" / "uts").readlink())
    except GONE:
        return ""


def _host_name(process: Path) -> str:
    try:
        with (process / "environ").open("rb") as file:
            told = file.read(_LONGEST_ENVIRONMENT).split(b"\0")
    except GONE:
        return ""
    return next((os.fsdecode(one[9:]) for one in told if one.startswith(b"HOSTNAME=")), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except GONE:
        return ""
