"""`hitmap report`: two sets of requests compared."""

from __future__ import annotations

from pathlib import Path

import click

from analysis.report.metrics import METRICS
from cachemodel.errors import UsageError
from hitmap.commands._output import emit, output_options
from hitmap.commands._store_option import open_client, store_option


@click.command()
@click.option("--a", "set_a", metavar="SET", help="The requests to compare with: the control, before.")
@click.option("--b", "set_b", metavar="SET", help="The requests in question: the treatment, after.")
@click.option(
    "--deploy", metavar="NAME", help="Instead of --a and --b: before and after a marked deployment."
)
@click.option("--window", default="1h", show_default=True, help="How long before and after, with --deploy.")
@click.option("--metric", type=click.Choice(list(METRICS)), default="ttft", show_default=True)
@click.option("--quantile", default=0.5, show_default=True, help="The quantile to take apart, 0.5 for P50.")
@output_options
@store_option
def command(
    set_a: str | None,
    set_b: str | None,
    deploy: str | None,
    window: str,
    metric: str,
    quantile: float,
    output: str | None,
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
      hitmap report --a server=vllm-a --b server=vllm-b --metric e2e --quantile 0.99
      hitmap report --deploy v42 --window 2h --format markdown -o v42.md

    Metrics: ttft (time to first token), e2e (end to end), tpot (time per output token), client_ttft, client_e2e (from
    request logs). The report says where a change shows, not what caused it.
    """
    from analysis.report import text
    from analysis.report.compare import compare, compare_deploy
    from analysis.selection import parse_duration

    if not 0 < quantile < 1:
        raise UsageError(f"a quantile lies between 0 and 1: write 0.99 for P99, not {quantile:g}")
    if deploy and (set_a or set_b):
        raise UsageError("--deploy makes both sets: use it, or --a and --b")
    if not deploy and not (set_a and set_b):
        raise UsageError("say what to compare: --a SET --b SET, or --deploy NAME")
    with open_client(store) as client:
        if deploy:
            report = compare_deploy(client, deploy, parse_duration(window), metric=metric, quantile=quantile)
        else:
            report = compare(client, set_a or "", set_b or "", metric=metric, quantile=quantile)
    emit(report, output, as_json, file, to_terminal=text.to_terminal, to_markdown=text.to_markdown)
