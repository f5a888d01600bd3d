"""`hitmap load`: send requests to an LLM server as callers would, whatever it does, and say what they saw."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from cachemodel.address import server_url
from cachemodel.errors import UsageError, UserError
from hitmap.load import mix, prompts, run
from hitmap.load.agents import SESSION_GAP_S
from hitmap.load.arrivals import PROCESSES, arrivals
from hitmap.load.blocks import Prompts, TokenPrompts
from hitmap.load.forms import Replay
from hitmap.load.plan import Plan, outline
from hitmap.load.sender import Progress as Told
from hitmap.load.summary import Tally
from hitmap.load.view import outline_lines, progress, summary_lines
from hitmap.signals import stopped_by_signals

DEFAULT_S = 60.0
_OF_A_FILE = ("speed", "scale_tokens", "session_gap")
_OF_THE_MIX = ("mix_spec", "clock")
_OF_AN_ARRIVAL = ("rate", "arrival")


class _Number(click.FloatRange):
    """Within bounds, which NaN is not although it compares as if."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


_POSITIVE = _Number(0, min_open=True, max=1e6)


@click.command()
@click.argument("url")
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Requests or a request log (JSONL), a Mooncake trace, agent sessions, or Azure arrivals (CSV); .gz, .xz too.",
)
@click.option(
    "--mix",
    "mix_spec",
    default=",".join(f"{kind}={share:g}" for kind, share in mix.DEFAULT.items()),
    show_default=True,
    metavar="KIND=SHARE,...",
    help="Without a workload: what to send.",
)
@click.option(
    "--clock",
    type=click.Choice(mix.CLOCKS),
    default="none",
    show_default=True,
    help="Where the time of day stands in the prompts of the mix.",
)
@click.option(
    "--arrival",
    type=click.Choice(PROCESSES),
    default="poisson",
    show_default=True,
    help="How the mix, or a workload without times, arrives.",
)
@click.option("--rate", default=2.0, show_default=True, type=_POSITIVE, help="Its requests a second.")
@click.option(
    "--duration",
    type=_POSITIVE,
    metavar="S",
    help=f"Send what is due in this time. Default: {DEFAULT_S:g}, or no limit with --count.",
)
@click.option("--count", type=click.IntRange(1), help="Send this many requests at most.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same plan.")
@click.option(
    "--speed", default=1.0, show_default=True, type=_POSITIVE, help="Of a workload's time; 2: in half of it."
)
@click.option(
    "--scale-tokens",
    default=1.0,
    show_default=True,
    type=_POSITIVE,
    help="Multiplies all lengths of a trace.",
)
@click.option(
    "--session-gap",
    default=SESSION_GAP_S,
    show_default=True,
    type=_Number(0, max=1e9),
    metavar="S",
    help="Trace time between the starts of agent sessions.",
)
@click.option("--model", default="", help="Ask for this model. Default: the server's first.")
@click.option(
    "--max-in-flight",
    default=256,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="What is due beyond that is not sent, and counted.",
)
@click.option(
    "--timeout", default=120.0, show_default=True, type=_POSITIVE, metavar="S", help="Of one request."
)
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Add a line for each request, prompt included: `attach --log` reads it.",
)
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="A field for the log, as in phase=before."
)
@click.option("--traceparent", is_flag=True, help="Begin a sampled trace with each request.")
@click.option("--api-key", envvar="HITMAP_API_KEY", default="", help="Bearer token (or $HITMAP_API_KEY).")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    url: str,
    workload: Path | None,
    mix_spec: str,
    clock: str,
    arrival: str,
    rate: float,
    duration: float | None,
    count: int | None,
    seed: int,
    speed: float,
    scale_tokens: float,
    session_gap: float,
    model: str,
    max_in_flight: int,
    timeout: float,
    log: Path | None,
    labels: tuple[str, ...],
    traceparent: bool,
    api_key: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send requests to the OpenAI-compatible server at URL when they are due, whatever it does with those before.

    \b
      hitmap load http://127.0.0.1:8000 --rate 4 --duration 120 --log requests.jsonl --label phase=before
      hitmap load http://127.0.0.1:8000 --workload mooncake.jsonl.gz --speed 2 --scale-tokens 0.125

    Arrivals are open-loop: nobody waits for the server before asking, so that its slowness shows as latency and not
    as a lower rate. Only the turns of one session follow each other's answers. Latency is told from sending and from
    when a request was due. Exit code 1 if no request was completed.
    """
    if workload:
        _check(ctx, _OF_THE_MIX, "goes without --workload")
    else:
        _check(ctx, _OF_A_FILE, "goes with --workload")
    url = server_url(url)

    def writes() -> Prompts:
        if dry_run:  # the server's own tokens do not matter then
            return TokenPrompts(range(1 << 15), seed)
        return prompts(url, model=model, api_key=api_key, seed=seed)

    if workload:
        replay = Replay(writes, arrivals(arrival, rate, seed), speed, scale_tokens, session_gap)
        whole = replay.plan(workload)
        if whole.own_times:
            _check(ctx, _OF_AN_ARRIVAL, "goes without times of the workload's own; --speed changes those")
    else:
        whole = mix.plan(mix.parse(mix_spec), rate=rate, arrival=arrival, seed=seed, clock=clock)
    if duration is None and count is None:
        duration = DEFAULT_S
        if workload and whole.limited(duration).schedule().cut:
            click.echo(f"what is due in the first {DEFAULT_S:g} s; --duration says otherwise", err=True)
    plan = whole.limited(duration, count)
    if dry_run:
        _print_outline(plan, as_json)
        return
    with stopped_by_signals() as stopping, _bar(duration, as_json) as told:
        summary = run(
            plan,
            url,
            log,
            _labels(labels),
            told,
            model=model,
            api_key=api_key,
            max_in_flight=max_in_flight,
            timeout_s=timeout,
            traceparent=traceparent,
            stopping=stopping,
        )
    click.echo(json.dumps(asdict(summary)) if as_json else "\n".join(summary_lines(summary)))
    if summary.interrupted:
        raise click.Abort
    if not summary.planned:
        raise UserError("nothing was due: give a longer --duration, or a workload with requests in it")
    if not summary.completed:
        raise UserError("no request was completed")


def _check(ctx: click.Context, names: Iterable[str], why: str) -> None:
    """Raises UsageError for an option that was given and would do nothing."""
    for name in names:
        if ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.removesuffix('_spec').replace('_', '-')} {why}")


def _labels(words: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--label {word}: write it as phase=before")
        labels[name] = value
    return labels


def _print_outline(plan: Plan, as_json: bool) -> None:
    counted = outline(plan)
    click.echo(json.dumps(asdict(counted)) if as_json else "\n".join(outline_lines(counted)))


@contextmanager
def _bar(duration_s: float | None, as_json: bool) -> Iterator[Told]:
    """A bar on stderr that fills over the duration; without one it only says how it goes. On a terminal only."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    console = Console(stderr=True, highlight=False)
    with Progress(
        *columns, console=console, transient=True, disable=as_json or not console.is_terminal
    ) as bar:
        task = bar.add_task("sending", total=duration_s, told="")

        def told(elapsed_s: float, tally: Tally) -> None:
            bar.update(task, completed=elapsed_s, told=progress(elapsed_s, tally))

        yield told
