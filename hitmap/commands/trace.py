"""`hitmap trace`: one request with everything that was seen of it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

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
    """What happened in one request, in all five layers?

    Its spans, the page faults, TLB flushes, CPU cache misses and GPU counters of its server meanwhile, and which part
    of them was its own. What stands below the spans is counted by `hitmap probe`, and by servers that count for each of
    their requests.

    \b
      hitmap trace chatcmpl-4f1c
      hitmap trace chatcmpl-4f1c --server vllm-a --json
      hitmap trace -- -4f1c
    """
    from analysis.misses.explain import explain
    from analysis.misses.report_model import Explanation
    from analysis.observed import text
    from analysis.observed.model import Trace
    from analysis.observed.request import trace
    from analysis.report.paper import coloured

    with open_reader(store) as client:
        found = trace(client, request_id, server)

    def to_terminal(told: Trace, console: Console) -> None:
        explanation: Explanation | None = None
        if coloured(console):  # its prompt is drawn in colours only
            with open_reader(store) as client:
                explanation = explain(client, told.request_id, told.server)
        text.to_terminal(told, explanation, console)

    emit(found, output, as_json, file, to_terminal=to_terminal, to_markdown=text.to_markdown)
