"""`hitmap doctor` says what was tried, to whoever asks, in a width that fits, and never with a traceback."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hitmap.commands import doctor
from hitmap.commands.doctor import command
from probes.kernel import requirements
from probes.kernel.requirements import Host
from probes.kernel.support import support as kernel
from probes.support import State, Support
from tests.hitmap.test_probe import as_nobody

EBPF = (
    "page faults by mode and access",
    "TLB flushes and shootdowns",
    "waits for locks (futex)",
    "off-CPU time",
)


def asked(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(command, arguments, env={"COLUMNS": str(columns)})


def states(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {row["name"]: row["state"] for row in rows}


@pytest.mark.skipif(
    bool(requirements.missing(Host()) or requirements.tracefs(Host())),
    reason="needs what `hitmap doctor --only kernel` says, and tracefs",
)
def test_here_as_root_all_of_the_kernel_works() -> None:
    shown = asked("--only", "kernel", "--json")
    rows = json.loads(shown.output)
    assert {states(rows)[name] for name in EBPF} <= {"yes", "less"}
    assert states(rows)[EBPF[0]] == "yes"
    assert shown.exit_code == int(any(row["needs"] for row in rows))


def test_json_is_a_list_of_rows_of_one_form() -> None:
    shown = asked("--json")
    rows = json.loads(shown.output)
    assert {tuple(row) for row in rows} == {("sensor", "name", "state", "how", "needs")}
    assert [*dict.fromkeys(row["sensor"] for row in rows)] == ["grpc", "kernel", "pmu", "gpu"]
    assert {row["state"] for row in rows} <= {state.value for state in State}
    for row in rows:
        assert row["how"]
        assert bool(row["needs"]) == (row["state"] in ("no", "less")) or row["state"] == "less"
    assert shown.exit_code == int(any(row["needs"] for row in rows))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user: run the tests as root")
def test_an_unprivileged_user_is_told_what_opens_the_rest() -> None:
    code, out, error = as_nobody("doctor", "--json")
    assert (code, error) == (1, "")
    rows = {row["name"]: row for row in json.loads(out)}
    for name in EBPF:
        assert rows[name]["state"] == "no"
        assert "CAP_BPF and CAP_PERFMON" in rows[name]["needs"]
    assert rows["process by its port"]["state"] == "less"
    assert rows["interceptors"]["state"] == "yes", "gRPC needs no privilege"
    code, out, _ = as_nobody("doctor")
    assert code == 1
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("this user may not load BPF programs") == 1, "four rows, one reason"
    assert "need" in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("missing", "needs"),
    [
        ("packages", "python3-bpfcc"),
        ("modules", "linux-headers-"),
        ("sys", "mount -t tracefs"),
    ],
)
def test_what_a_host_lacks_is_named(
    missing: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without BCC, without headers, without tracefs: the look-ups go elsewhere."""
    if missing == "sys" and requirements.missing(Host()):
        pytest.skip("needs what `hitmap doctor --only kernel` says: without eBPF tracefs is not asked for")
    (tmp_path / "devices/system/cpu").mkdir(parents=True)
    (tmp_path / "devices/system/cpu/possible").write_text(
        Path("/sys/devices/system/cpu/possible").read_text()
    )
    host = Host(**{missing: [tmp_path] if missing == "packages" else tmp_path})  # type: ignore[arg-type]
    monkeypatch.setattr("probes.kernel.support.support", lambda: kernel(host))
    shown = asked("--only", "kernel")
    assert shown.exit_code == 1
    assert needs in " ".join(shown.output.split())
    rows = {row["name"]: row for row in json.loads(asked("--only", "kernel", "--json").output)}
    assert rows[EBPF[2]]["state"] == "no"
    assert (rows[EBPF[0]]["state"] == "no") == (missing != "sys"), "faults need no tracefs"


def test_a_sensor_that_cannot_be_imported_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "probes.pmu.support", None)
    shown = asked("--only", "pmu")
    assert shown.exit_code == 1
    assert "pmu" in shown.output
    assert "needs pip install --upgrade hitmap" in shown.output


def test_exit_code_zero_where_nothing_more_could_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Support("pmu", "a", State.YES, "1"), Support("pmu", "b", State.NEVER, "2")]
    monkeypatch.setattr("probes.pmu.support.support", lambda: rows)
    shown = asked("--only", "pmu")
    assert shown.exit_code == 0
    assert shown.output.splitlines()[-1] == "1 yes, 1 not here."
    rows.append(Support("pmu", "c", State.NO, "3", "4"))
    shown = asked("--only", "pmu")
    assert shown.exit_code == 1
    assert shown.output.splitlines()[-1].endswith("1 of these would open with what they need.")


TEXTS = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Z"]), min_size=1, max_size=90)
ROWS = st.lists(
    st.builds(Support, st.sampled_from(["kernel", "gpu"]), TEXTS, st.sampled_from(list(State)), TEXTS, TEXTS),
    min_size=1,
    max_size=8,
)


@given(ROWS, st.sampled_from([60, 80, 200]))
def test_whatever_the_rows_say_it_fits_and_says_it_all(rows: list[Support], columns: int) -> None:
    paper = io.StringIO()
    doctor._show(rows, Console(file=paper, width=columns))
    lines = paper.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    shown = "".join("".join(lines).split())
    for row in rows:
        for text in (row.name, row.how, row.needs):
            assert "".join(text.split()) in shown
