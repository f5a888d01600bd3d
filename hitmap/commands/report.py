"""`hitmap report`: two sets of requests compared."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from cachemodel.errors import UsageError
from hitmap.commands._store_option import open_client, store_option

METRICS = ("ttft", "e2e", "tpot", "client_ttft", "client_e2e")


@click.command()
@click.option("--a", "set_a", metavar="SET", help="The requests to compare with: the control, before.")
@click.option("--b", "set_b", metavar="SET", help="The requests in question: the treatment, after.")
@click.option(
    "--deploy", metavar="NAME", help="Instead of --a and --b: before and after a marked deployment."
)
@click.option("--window", default="1h", show_default=True, help="How long before and after, with --deploy.")
@click.option("--metric", type=click.Choice(METRICS), default="ttft", show_default=True)
@click.option("--quantile", default=0.5, show_default=True, help="The quantile to take apart, 0.5 for P50.")
@click.option(
    "--format", "output", type=click.Choice(["text", "markdown", "json"]), default="text", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file."
)
@store_option
def command(
    set_a: str | None,
    set_b: str | None,
    deploy: str | None,
    window: str,
    metric: str,
    quantile: float,
    output: str,
    as_json: bool,
    file: Path | None,
    store: str | None,
) -> None:
    """Compare two sets of requests: which layer shows the change in latency?

    A SET is a list of terms joined by commas, all of which must hold. A term is a time window or a condition on a
    column or label, with * for any characters:

    \b
      hitmap report --a '-2h/-1h' --b '-1h/now'
      hitmap report --a 'phase=tsend' --b 'phase=tsfront'
      hitmap report --a 'server=vllm-a,-1d/now' --b 'server=vllm-b,-1d/now' --metric e2e --quantile 0.99
      hitmap report --deploy v42 --window 2h --format markdown -o v42.md

    Metrics: ttft (time to first token), e2e (end to end), tpot (time per output token), client_ttft, client_e2e (from
    request logs). The report says where a change shows, not what caused it.
    """
    from analysis.report import json as as_data
    from analysis.report import text
    from analysis.report.compare import compare, compare_deploy
    from analysis.selection import parse_duration

    if not 0 < quantile < 1:
        raise UsageError(f"a quantile lies between 0 and 1: write 0.99 for P99, not {quantile:g}")
    if bool(deploy) == bool(set_a or set_b) or bool(set_a) != bool(set_b):
        raise UsageError("say what to compare: --a SET --b SET, or --deploy NAME")
    with open_client(store) as client:
        if deploy:
            report = compare_deploy(client, deploy, parse_duration(window), metric=metric, quantile=quantile)
        else:
            report = compare(client, set_a or "", set_b or "", metric=metric, quantile=quantile)
    output = "json" if as_json else output
    if output == "text":
        if file:
            with file.open("w") as out:
                text.to_terminal(report, Console(file=out, width=120, highlight=False))
        else:
            text.to_terminal(report, Console(highlight=False))
        return
    rendered = as_data.to_json(report) + "\n" if output == "json" else text.to_markdown(report)
    if file:
        file.write_text(rendered)
    else:
        click.echo(rendered, nl=False)
