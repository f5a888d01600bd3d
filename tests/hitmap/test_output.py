"""How a report leaves: what a file's name asks for, or an error that says so before anything is worked out."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cachemodel.errors import UsageError
from hitmap.cli import cli
from hitmap.commands._output import _replace, format_of

GATE = ["gate", "--budget", "total=1s", "--a", "x=1", "--b", "x=2"]


@pytest.mark.parametrize(
    ("output", "as_json", "name", "found"),
    [
        (None, False, None, "text"),
        (None, True, "x.md", "json"),
        ("markdown", False, "x.json", "markdown"),
        (None, False, "x.MD", "markdown"),
        (None, False, "x.json", "json"),
        (None, False, "x.html", "html"),
        (None, False, "x", "text"),
    ],
)
def test_the_format_is_what_is_said_or_the_name(
    output: str | None, as_json: bool, name: str | None, found: str
) -> None:
    assert format_of(output, as_json, Path(name) if name else None) == found


@pytest.mark.parametrize("command", [["misses"], ["explain", "r1"], GATE], ids=["misses", "explain", "gate"])
def test_html_of_what_has_none_is_an_error_before_the_store_is_looked_for(command: list[str]) -> None:
    shown = CliRunner().invoke(cli, [*command, "-o", "x.html", "--store", "http://127.0.0.1:1/x"])
    assert isinstance(shown.exception, UsageError)
    assert "there is no HTML of this: write -o x.md" in str(shown.exception)


def test_a_file_that_cannot_be_written_whole_leaves_the_last_one_as_it_was(tmp_path: Path) -> None:
    """The disk is full, or a limit is reached, behind the first kilobytes."""
    file = tmp_path / "base.json"
    file.write_text("the last good one")
    program = (
        "from pathlib import Path; from hitmap.commands._output import _replace;"
        f" _replace(Path({str(file)!r}), 'x' * 9000)"
    )
    limited = ["sh", "-c", 'ulimit -f 8; exec "$0" -c "$1"', sys.executable, program]
    run = subprocess.run(limited, capture_output=True, text=True)
    assert "File too large" in run.stderr
    assert file.read_text() == "the last good one"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_keeps_its_mode_its_links_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "pipe"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    _replace(link, "new")
    assert (file.read_text(), link.is_symlink(), stat.S_IMODE(file.stat().st_mode)) == ("new", True, 0o640)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _replace(pipe, "new")
    assert os.read(reader, 9) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
