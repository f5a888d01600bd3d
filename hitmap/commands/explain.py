"""`hitmap explain`: one prompt, token by token."""

from __future__ import annotations

from pathlib import Path

import click

from hitmap.commands._dash import IdCommand
from hitmap.commands._output import emit, output_options
from hitmap.commands._store_option import open_reader, store_option


@click.command(cls=IdCommand)
@click.argument("request_id")
@click.option("--server", default="", metavar="NAME", help="Where several servers have a request of that id.")
@output_options
@store_option
def command(
    request_id: str, server: str, output: str | None, as_json: bool, file: Path | None, store: str | None
) -> None:
    """Where did each token of one prompt come from, or why was it computed?

    REQUEST_ID is the id in the response, or the beginning of it where that is enough to tell it, else any part of it.
    Before one that begins with a dash write --. Texts are shown where hitmap attach --capture kept them.

    \b
      hitmap explain chatcmpl-4f1c
      hitmap explain tsfront-0039                      the end of one
      hitmap explain chatcmpl-4f1c --server vllm-a --json
      hitmap explain -- -4f1c
    """
    from analysis.misses import explain_text
    from analysis.misses.explain import explain

    with open_reader(store) as client:
        explanation = explain(client, request_id, server)
    emit(
        explanation,
        output,
        as_json,
        file,
        to_terminal=explain_text.to_terminal,
        to_markdown=explain_text.to_markdown,
    )
