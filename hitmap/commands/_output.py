"""How a report leaves: on the terminal, as Markdown or as JSON, or into a file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from cachemodel.errors import UserError

_FORMAT_OF = {".md": "markdown", ".json": "json"}
Decorated = Callable[..., Any]


def output_options(function: Decorated) -> Decorated:
    """Adds `--format`, `--json` and `--output` as the arguments `output`, `as_json` and `file`."""
    for option in (
        click.option(
            "-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file."
        ),
        click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
        click.option(
            "--format",
            "output",
            type=click.Choice(["text", "markdown", "json"]),
            help="Default: text, or what the file's name says.",
        ),
    ):
        function = option(function)
    return function


def emit(
    report: object,
    output: str | None,
    as_json: bool,
    file: Path | None,
    *,
    to_terminal: Callable[[Any, Console], None],
    to_markdown: Callable[[Any], str],
) -> None:
    """Write a report as asked for; raises UserError where the file cannot be written."""
    from analysis.report.json import to_json
    from analysis.report.paper import PAGE_WIDTH

    output = "json" if as_json else output or _FORMAT_OF.get(file.suffix if file else "", "text")
    if output == "text" and not file:
        to_terminal(report, Console(highlight=False))
        return
    if output == "text":
        paper = io.StringIO()
        to_terminal(report, Console(file=paper, width=PAGE_WIDTH, highlight=False))
        rendered = paper.getvalue()
    else:
        rendered = to_json(report) + "\n" if output == "json" else to_markdown(report)
    if not file:
        click.echo(rendered, nl=False)
        return
    try:
        file.write_text(rendered, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
