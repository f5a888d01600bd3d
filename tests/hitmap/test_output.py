"""How a report leaves: what a file's name asks for, or an error that says so before anything is worked out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cachemodel.errors import UsageError
from hitmap.cli import cli
from hitmap.commands._output import format_of

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
