"""The command line: help that teaches, errors without tracebacks, documented commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hitmap.cli import COMMANDS, cli

README = Path(__file__).parents[2] / "README.md"


def hitmap(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hitmap", *arguments], capture_output=True, text=True, timeout=60
    )


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


ALL = commands(cli)  # type: ignore[arg-type]


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(p) for p, _ in ALL])
def test_every_command_teaches(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    assert command.help
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden and option.name != "help":
            assert option.help or isinstance(option.type, click.Choice), option.name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_readme(name: str) -> None:
    assert f"hitmap {name}" in README.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["report"], 2, "say what to compare"),
        (["report", "--a", "x=1"], 2, "say what to compare"),
        (["report", "--a", "-1h/now", "--b", "-2h/-1h", "--quantile", "99"], 2, "between 0 and 1"),
        (["report", "--a", "-1h/now", "--b", "-2h/-1h", "--store", "nonsense"], 2, "a DSN looks like"),
        (["store", "status", "--store", "http://127.0.0.1:1/x"], 1, "no store answers"),
        (["replay", "/nowhere"], 1, "is no folder"),
        (["attach", "http://127.0.0.1:1", "--check"], 1, "is the server up"),
        (["deploy", "mark", "v1", "--at", "soon"], 2, "is no time"),
        (["deploy", "mark", "v1", "--at", "1960-01-01"], 2, "is not a time that requests come from"),
        (["deploy", "mark", " "], 2, "a deployment needs a name"),
        (["report", "--deploy", "v1", "--a", "-1h/now"], 2, "--deploy makes both sets"),
        (["report", "--a", "phase=x", "--b", "phase=y"], 1, "the store has no requests yet"),
        (["report", "--deploy", "v9"], 1, "none is marked"),
        (["store", "sql", "SELEC 1"], 1, "Syntax error"),
        (["store", "sql", "DROP TABLE requests"], 1, "Not enough privileges"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_errors_are_one_clear_line(arguments: list[str], code: int, words: str) -> None:
    result = hitmap(*arguments)
    assert result.returncode == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("clause", ["FORMAT TSV", "format tsv ;\n"])
def test_sql_with_a_format_of_its_own(clause: str) -> None:
    assert hitmap("store", "sql", f"SELECT 'a', 1 {clause}").stdout == "a\t1\n"


def test_sql_shows_rows_that_fit_as_a_table_and_others_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    narrow = hitmap("store", "sql", "SELECT 1 AS a, NULL AS b")
    assert "│ 1 │ NULL │" in narrow.stdout
    wide = hitmap("store", "sql", "SELECT repeat('x', 100) AS a, 2 AS long_name")
    assert f"a          {'x' * 100}" in wide.stdout
    assert "long_name  2" in wide.stdout
