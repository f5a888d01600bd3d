"""Paths of cgroups as runtimes make them, and a process in namespaces of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.daemon.targets import Asked, Targets
from probes.kernel.container import known_as
from tests.probes.conftest import child

ID, OUTER = "0123456789abcdef" * 4, "f" * 64
POD = "90d81341-92de-11e7-8cf2-507b9d4141fa"
SLICE = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"
CGROUP, CONTAINER, UID = "process.linux.cgroup", "container.id", "k8s.pod.uid"
V1 = "12:memory:{0}\n11:cpuset:{0}\n1:name=systemd:{0}\n0::{0}\n"


@pytest.mark.parametrize(
    ("path", "container", "pod"),
    [
        (f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope", ID, POD),
        (f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/crio-{ID}.scope", ID, POD),
        (f"/kubepods/burstable/pod{POD}/{ID}", ID, POD),
        (f"/../../{SLICE}/cri-containerd-{ID}.scope", ID, POD),
        (f"/system.slice/docker-{ID}.scope", ID, None),
        (f"/docker/{ID}", ID, None),
        (f"/docker/{OUTER}/kubelet/kubepods/pod{POD}/{ID}", ID, POD),
        (f"/machine.slice/libpod-{ID}.scope/container", ID, None),
        ("/user.slice/user-1000.slice/session-3.scope", None, None),
        (f"/made/up/{ID}0", None, None),
        (f"/made/up/pod{POD}0", None, None),
    ],
)
def test_what_a_cgroup_says(path: str, container: str | None, pod: str | None, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    wanted = {CGROUP: f"0::{path}", CONTAINER: container, UID: pod}
    for text in (f"0::{path}\n", V1.format(path)):
        (tmp_path / "7" / "cgroup").write_text(text)
        assert known_as(7, "here", tmp_path) == {name: value for name, value in wanted.items() if value}


def test_where_cgroups_are_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"4:memory:/docker/{ID}\n0::/\n")
    assert known_as(7, "here", tmp_path) == {CONTAINER: ID}


def process(proc: Path, pid: int | str, *, uts: int, inner: str, environment: bytes | None = b"") -> None:
    (proc / str(pid) / "ns").mkdir(parents=True)
    (proc / str(pid) / "ns" / "uts").symlink_to(f"uts:[{uts}]")
    (proc / str(pid) / "status").write_text(f"Name:\tpython3\nNSpid:\t{inner}\nNSpgid:\t{inner}\n")
    if environment is not None:
        (proc / str(pid) / "environ").write_bytes(environment)


def test_how_it_is_known_in_there(tmp_path: Path) -> None:
    named = b"PATH=/bin\0HOSTNAME=vllm-0\0HOME=/root"
    process(tmp_path, "self", uts=1, inner="5")
    for pid, uts, inner, environment, wanted in (
        (10, 1, "10", named, None),  # none at all
        (11, 2, "11\t33\t1", named, ("vllm-0", "1")),
        (12, 2, "12\t1", b"NOHOSTNAME=x\0", None),  # under which host name is not known
        (13, 2, "13\t1", None, None),  # another user's
        (14, 1, "14\t7", b"", ("here", "7")),  # the network of the host, and with it its name
        (15, 2, "15", named, ("vllm-0", "15")),  # the pids of the host
    ):
        process(tmp_path, pid, uts=uts, inner=inner, environment=environment)
        told = known_as(pid, "here", tmp_path)
        pair = (told.get("hitmap.container.host.name"), told.get("hitmap.container.process.pid"))
        assert pair == (wanted or (None, None)), pid
    assert known_as(99, "here", tmp_path) == {}, "it exited"


@pytest.fixture
def contained() -> Iterator[tuple[int, int]]:
    """A process in PID and UTS namespaces of its own: its pid out here, and that of who made them."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("namespaces are made as root, by unshare of util-linux")
    inside = "import os, socket; print(os.getpid(), socket.gethostname(), flush=True); input()"
    command = [
        "unshare",
        "--pid",
        "--uts",
        "--fork",
        "sh",
        "-c",
        f"hostname vllm-0; '{sys.executable}' -c '{inside}'",
    ]
    made = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOSTNAME": "vllm-0"},
    )
    assert made.stdout
    told = made.stdout.readline().split()
    if not told:
        pytest.skip(f"no namespaces here: {made.communicate()[1].strip()}")
    assert told[1] == "vllm-0"
    yield made.pid, int(told[0])
    made.communicate("\n")


def test_a_real_one(contained: tuple[int, int]) -> None:
    """What its own spans would say of it is what a probe out here says."""
    outside, inner = contained
    targets = Targets(Asked(pids=[outside]), "1")
    told = [one for pid, one in targets.resources().items() if pid is not None]
    names = {(one["hitmap.container.host.name"], one["hitmap.container.process.pid"]) for one in told[1:]}
    assert ("vllm-0", str(inner)) in names
    assert all(int(one["process.pid"]) > inner for one in told)


def test_a_real_one_of_another_user(contained: tuple[int, int]) -> None:
    """What he may not see is left out."""
    code = f"from probes.kernel.container import known_as; print(sorted(known_as({contained[0]}, 'here')))"
    assert "container" not in child(code, unprivileged=True)
