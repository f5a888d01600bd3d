"""How a report leaves: on the terminal, as Markdown, JSON or, some of them, HTML; or into a file."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from cachemodel.errors import UsageError, UserError

_FORMAT_OF = {".md": "markdown", ".json": "json", ".html": "html", ".htm": "html", ".txt": "text"}
FORMATS = ("text", "markdown", "json")
Decorated = Callable[..., Any]


def output_options(function: Decorated, formats: Sequence[str] = FORMATS) -> Decorated:
    """Adds `--format`, `--json` and `--output` as the arguments `output`, `as_json` and `file`."""

    def checked(ctx: click.Context, _: click.Parameter, file: Path | None) -> Path | None:
        """Raises UsageError where the file's name asks for what there is not, or it has no folder: before anything is
        worked out."""
        told = ctx.params.get("output"), bool(ctx.params.get("as_json"))
        if not file:
            return None
        if not any(told) and file.suffix.lower() not in ("", *_FORMAT_OF):
            known = ", ".join(ending for ending, made in _FORMAT_OF.items() if made in formats)
            raise UsageError(f"{file}: a file ends in {known}, or --format says what it is to be")
        if format_of(*told, file) not in formats:
            better = file.with_suffix(".md")
            raise UsageError(f"there is no HTML of this: write -o {better}, or say --format")
        if not file.parent.is_dir():
            raise UsageError(f"{file} cannot be written: there is no folder {file.parent}")
        return file

    for option in (
        click.option(
            "-o",
            "--output",
            "file",
            type=click.Path(path_type=Path, dir_okay=False),
            callback=checked,
            help="Write to a file.",
        ),
        click.option("--json", "as_json", is_flag=True, is_eager=True, help="The same as --format json."),
        click.option(
            "--format",
            "output",
            type=click.Choice(formats),
            is_eager=True,  # before the name of the file, which says less
            help="Default: text, or what the file's name says.",
        ),
    ):
        function = option(function)
    return function


def page_options(function: Decorated) -> Decorated:
    """The same for a report that is also a page: `to_html` of `emit`."""
    return output_options(function, [*FORMATS, "html"])


def format_of(output: str | None, as_json: bool, file: Path | None) -> str:
    """The format asked for by option or by the file's name."""
    if as_json or output:
        return "json" if as_json else output or "text"
    return _FORMAT_OF.get(file.suffix.lower() if file else "", "text")


def emit(
    report: object,
    output: str | None,
    as_json: bool,
    file: Path | None,
    *,
    to_terminal: Callable[[Any, Console], None],
    to_markdown: Callable[[Any], str],
    to_html: Callable[[Any], str] | None = None,
) -> None:
    """Write a report as asked for; raises UserError where the file cannot be written."""
    from analysis.report.json import to_json
    from analysis.report.paper import PAGE_WIDTH

    output = format_of(output, as_json, file)
    if output == "text" and not file:
        console = Console(highlight=False)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console = Console(highlight=False, width=PAGE_WIDTH)  # a pipe has no width
        to_terminal(report, console)
        return
    if output == "text":
        paper = io.StringIO()
        to_terminal(report, Console(file=paper, width=PAGE_WIDTH, highlight=False))
        rendered = paper.getvalue()
    elif output == "html" and to_html:
        rendered = to_html(report)
    else:
        rendered = to_json(report) + "\n" if output == "json" else to_markdown(report)
    if not file:
        click.echo(rendered, nl=False)
        return
    try:
        _replace(file, rendered)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all, so that the last good one stays; a pipe or device is written to."""
    if file.exists() and not file.is_file():
        file.write_text(text, encoding="utf-8")
        return
    target = file.resolve()  # what a link points to is what is meant
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        new.chmod(mode)
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Of this process; there is no way to ask without setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
