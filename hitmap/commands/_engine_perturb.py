"""`hitmap engine perturb`: does a quantile move as the linear rule and the twin say, when one layer gets slower?"""

from __future__ import annotations

import click
from rich.console import Console

from cachemodel.address import server_url
from cachemodel.errors import UsageError
from engine.faults.spec import LAYERS
from hitmap.commands._store_option import open_client, store_option

PASSED_BY_ALL = ("frontend", "queue", "prefill", "decode")


@click.command()
@click.argument("url")
@click.option(
    "--delay",
    "delay_ms",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.1, 1000),
    help="Milliseconds.",
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    type=click.Choice(LAYERS),
    help="Which to delay; repeatable. Default: frontend, queue, prefill and decode.",
)
@click.option("--metric", default="e2e", show_default=True, type=click.Choice(["ttft", "e2e"]))
@click.option("--quantile", "q", default="0.5", show_default=True, help="Above 0 and below 1, or mean.")
@click.option(
    "--seconds",
    default=20.0,
    show_default=True,
    type=click.FloatRange(2, 300),
    help="Of each turn of a layer.",
)
@click.option(
    "--rounds", default=2, show_default=True, type=click.IntRange(1, 20), help="Turns of each layer."
)
@click.option("--server", default="", help="What it was attached as. Default: what the store has of its URL.")
@click.option(
    "--token", envvar="HITMAP_ENGINE_TOKEN", help="The --token of that engine (or $HITMAP_ENGINE_TOKEN)."
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
@store_option
def perturb(
    url: str,
    delay_ms: float,
    layers: tuple[str, ...],
    metric: str,
    q: str,
    seconds: float,
    rounds: int,
    server: str,
    token: str | None,
    as_json: bool,
    store: str | None,
) -> None:
    """Delay one layer after the other in the engine at URL, and say how much a quantile of its requests moved for it.

    Beside it stands what the linear rule of hitmap report and the scheduler twin make of the same requests. The engine
    has to be watched (hitmap attach) and under load (hitmap load) all the while: how long that is, and how much load,
    is said first. Every delay is taken back, also after Ctrl-C, and ends by itself.

    \b
      hitmap load http://127.0.0.1:8000 --rate 4 --duration 300 &
      hitmap engine perturb http://127.0.0.1:8000
      hitmap engine perturb http://127.0.0.1:8000 --layer decode --delay 2 --metric e2e --quantile 0.95
    """
    import numpy as np

    from analysis.report.json import to_json
    from analysis.report.metrics import METRICS
    from hitmap.engine_perturb import view
    from hitmap.engine_perturb.measure import measure, server_at
    from hitmap.engine_perturb.run import play

    quantile, url = _quantile(q), server_url(url)
    asked = layers or PASSED_BY_ALL
    err = Console(stderr=True, highlight=False)
    with open_client(store) as client:
        name = server or server_at(client, url)
        turns = play(
            url, token, asked, delay_ms, seconds, rounds, lambda words: err.print(words, markup=False)
        )
        found = measure(client, name, turns, METRICS[metric], quantile, delay_ms, np.random.default_rng(0))
    if as_json:
        click.echo(to_json(found))
    else:
        view.to_terminal(found, Console(highlight=False))


def _quantile(text: str) -> float | None:
    """None for the mean; raises UsageError."""
    if text == "mean":
        return None
    try:
        q = float(text)
    except ValueError:
        q = 0.0
    if not 0 < q < 1:
        raise UsageError(f"--quantile {text}: a number above 0 and below 1, or mean")
    return q
