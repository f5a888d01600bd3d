"""`hitmap report`: two sets of requests compared, and what caused the difference."""

from __future__ import annotations

from pathlib import Path

import click

from hitmap.commands._compare import Question, progress, question_options
from hitmap.commands._output import emit, format_of, page_options
from hitmap.commands._store_option import open_client, store_option


@click.command()
@question_options("--a", metavar="SET", what="The requests to compare with: the control, before.")
@click.option(
    "--save", "keep", is_flag=True, help="Keep the answer in the store, too: in the table findings."
)
@page_options
@store_option
def command(
    question: Question,
    keep: bool,
    output: str | None,
    as_json: bool,
    file: Path | None,
    store: str | None,
) -> None:
    """Compare two sets of requests: what caused the change in latency, and which layer shows it?

    A SET is a list of terms joined by commas, all of which must hold. A term is a time window or a condition on a
    column or label, with * for any characters:

    \b
      hitmap report --a '-2h/-1h' --b '-1h/now' --quantile 0.99
      hitmap report --a 'phase=tsend' --b 'phase=tsfront'
      hitmap report --a server=vllm-a --b server=vllm-b --metric e2e --quantile mean
      hitmap report --deploy v42 --window 2h -o v42.html
      hitmap report --layers deploy/examples/cdn/layers.yaml --a release=41 --b release=42

    Metrics: ttft (time to first token), e2e (end to end), tpot (time per output token), client_ttft, client_e2e (from
    request logs). How to read it: docs/attribution.md.
    """
    from analysis.report import text

    question.check()
    if is_page := format_of(output, as_json, file) == "html":
        import dashboard.report_page  # what it needs is looked for before anything is worked out
    with open_client(store) as client:
        with progress() as tell:
            asked = question.asked(tell)
            report = question.compared(client, asked)
        emit(
            report,
            output,
            as_json,
            file,
            to_terminal=text.to_terminal,
            to_markdown=text.to_markdown,
            to_html=dashboard.report_page.to_html if is_page else None,
        )
        if keep:
            from analysis.report.save import save

            run = save(client, report, asked, question.layers)
            click.echo(f"kept in findings as run {run}", err=True)
