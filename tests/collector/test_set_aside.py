"""What was set aside can be listed while a collector runs, by the command too."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from collector.set_aside import rejections, set_aside
from hitmap.commands.store import command


def test_it_is_listed_oldest_first_and_told_once(tmp_path: Path) -> None:
    for name, payload in (("u-1", b"one"), ("u-2", b"two"), ("u-1", b"one")):
        set_aside(tmp_path, name, "samples", 3, f"cannot read {name}\nat all", payload)
    assert [kept.file.name for kept in rejections(tmp_path)] == ["u-2.bin", "u-1.bin"]
    said = CliRunner().invoke(command, ["rejected", "--spool", str(tmp_path)]).output.splitlines()
    assert "samples, 3 rows: cannot read u-2 at all" in said[0]
    assert said[1] == f"  {tmp_path}/rejected/u-2.bin"
    told = json.loads(CliRunner().invoke(command, ["rejected", "--spool", str(tmp_path), "--json"]).output)
    assert [(row["kind"], row["rows"], Path(row["file"]).read_bytes()) for row in told] == [
        ("samples", 3, b"two"),
        ("samples", 3, b"one"),
    ]


def test_what_is_no_rejection_is_passed_over(tmp_path: Path) -> None:
    set_aside(tmp_path, "u-1", "traces", 1, "why", b"x")
    (tmp_path / "rejected" / "u-2.json").write_text("{")
    (tmp_path / "rejected" / "u-3.json").write_text('{"time": 1}')
    assert [kept.reason for kept in rejections(tmp_path)] == ["why"]


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert (
        CliRunner().invoke(command, ["rejected", "--spool", str(tmp_path)]).output
        == "nothing was set aside\n"
    )
