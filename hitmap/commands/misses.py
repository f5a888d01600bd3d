"""`hitmap misses`: why prompt tokens were computed and not served from a cache."""

from __future__ import annotations

from pathlib import Path

import click

from hitmap.commands._dash import WindowCommand
from hitmap.commands._output import emit, output_options
from hitmap.commands._store_option import open_reader, store_option


@click.command(cls=WindowCommand)
@click.argument("requests", metavar="[SET]", required=False, default="")
@click.option(
    "--by",
    default="server",
    show_default=True,
    help="What to group by: server, model, template, isolation (salt and adapter), or a label such as phase.",
)
@output_options
@store_option
def command(
    requests: str, by: str, output: str | None, as_json: bool, file: Path | None, store: str | None
) -> None:
    """Why were prompt tokens computed? Each one has a cause, and the causes add up to the prompt.

    A SET is a list of terms joined by commas, as for hitmap report: a time window, or a condition on a column or label.
    Without one it is the last hour, or the last in which there were requests.

    \b
      hitmap misses
      hitmap misses '-1d/now,server=vllm-a' --by template
      hitmap misses template=000b2cb8                  a row of --by template
      hitmap misses phase=agents --by tenant --format markdown -o misses.md

    Causes by request need their prompts (hitmap attach --log FILE --tokenizer PATH) and the server's KV-cache events;
    docs/misses.md says which cause needs what. With KV events alone it tells causes by server and time.
    """
    from analysis.misses import text
    from analysis.misses.report import build

    with open_reader(store) as client:
        report = build(client, requests, by=by)
    emit(report, output, as_json, file, to_terminal=text.to_terminal, to_markdown=text.to_markdown)
