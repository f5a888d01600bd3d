"""`hitmap heatmap`: where in the prompts caches are read, and where rewriting pays."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hitmap.commands._dash import WindowCommand
from hitmap.commands._output import FORMATS, emit, format_of
from hitmap.commands._store_option import open_reader, store_option

if TYPE_CHECKING:
    from analysis.heatmap.model import Heatmap

_LAYERS = ("reuse", "volatility", "stability", "cost")


def _checked(ctx: click.Context, _: click.Parameter, file: Path | None) -> Path | None:
    """Raises UsageError where a file's name asks for what there is not, before anything is read."""
    from cachemodel.errors import UsageError

    if not file:
        return None
    told = bool(ctx.params.get("as_json") or ctx.params.get("output"))
    endings = ("", ".md", ".json", ".html", ".htm", ".txt", ".png")
    if not told and file.suffix.lower() not in endings:
        raise UsageError(
            f"{file}: a file ends in {', '.join(endings[1:])}, or --format says what it is to be"
        )
    if not file.parent.is_dir():
        raise UsageError(f"{file} cannot be written: there is no folder {file.parent}")
    return file


@click.command(cls=WindowCommand)
@click.argument("requests", metavar="[SET]", required=False, default="")
@click.option(
    "--by",
    type=click.Choice(("template", "time")),
    default="template",
    show_default=True,
    help="What rows are: prompts of one template (system message and tools without what varies), or of one time.",
)
@click.option(
    "--layer",
    type=click.Choice(_LAYERS),
    default="reuse",
    show_default=True,
    help="What colours show; JSON and HTML have all layers.",
)
@click.option("--json", "as_json", is_flag=True, is_eager=True, help="The same as --format json.")
@click.option(
    "--format",
    "output",
    type=click.Choice([*FORMATS, "html", "png"]),
    is_eager=True,
    help="Default: text, or what the file's name says.",
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_checked,
    help="Write to a file: .md, .json, .html (self-contained), .png (cells alone) or .txt.",
)
@store_option
def command(
    requests: str,
    by: str,
    layer: str,
    output: str | None,
    as_json: bool,
    file: Path | None,
    store: str | None,
) -> None:
    """Where in the prompts are caches read, and where does rewriting pay?

    Columns are positions in the prompt, rows are templates or times. Reuse is the share of the requests reaching a
    position whose block there had been part of an earlier prompt of the same server, salt and adapter. A SET is what
    hitmap misses takes; without one it is the last hour, or the last in which there were requests.

    \b
      hitmap heatmap
      hitmap heatmap '-1d/now,server=vllm-a' --layer volatility
      hitmap heatmap phase=agents --by time -o heatmap.html

    It needs prompts (hitmap attach --log FILE --tokenizer PATH), as hashes only; docs/heatmap.md says more.
    """
    from analysis.heatmap import text
    from analysis.heatmap.build import build

    with open_reader(store) as client:
        found = build(client, requests, by=by)
    if _is_png(output, as_json, file):
        _picture(found, layer, file)
        return
    emit(
        found,
        output,
        as_json,
        file,
        to_terminal=partial(text.to_terminal, layer=layer),
        to_markdown=partial(text.to_markdown, layer=layer),
        to_html=_page if format_of(output, as_json, file) == "html" else None,
    )


def _is_png(output: str | None, as_json: bool, file: Path | None) -> bool:
    if as_json or output:
        return output == "png" and not as_json
    return bool(file) and str(file).lower().endswith(".png")


def _picture(found: Heatmap, layer: str, file: Path | None) -> None:
    from analysis.heatmap.png import to_png
    from cachemodel.errors import UsageError, UserError

    if not file:
        raise UsageError("a picture goes into a file: -o heatmap.png")
    try:
        file.write_bytes(to_png(found, layer))
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _page(found: Heatmap) -> str:
    from dashboard.charts.heatmap import to_html

    return to_html(found)
