"""`hitmap canary`: measure what a server's telemetry does not say, by requests of its own within a budget."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from cachemodel.errors import UsageError, UserError
from cachemodel.printable import printable
from collector.canary import (
    DEFAULT,
    MEASURES,
    Budget,
    HttpTransport,
    Options,
    Report,
    rehearse,
    run,
)
from collector.canary.budget import Ledger
from collector.canary.run import Progress as Told
from hitmap.commands._canary_remedy import Remedy
from hitmap.commands._canary_store import check_writable, device_tokens_of, keep, known_as, newest
from hitmap.commands._canary_view import print_kept, print_rehearsal, print_report
from hitmap.commands._store_option import open_client, open_reader, store_option
from hitmap.commands.attach import server_names

_UNLIMITED = 10**12
_BUDGET = Budget()
_OPTIONS = Options()


class _Finite(click.FloatRange):
    """A range that NaN and infinities are outside of: they compare as no other number does."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number to count with.", param, ctx)
        return number


@click.command()
@click.argument("server", metavar="[NAME=]URL", default="")
@click.option(
    "--measure",
    default=",".join(DEFAULT),
    show_default=True,
    metavar="NAME,...",
    help=f"What to measure: {', '.join(MEASURES)}; all.",
)
@click.option(
    "--max-requests",
    default=_BUDGET.requests,
    show_default=True,
    type=click.IntRange(1, _UNLIMITED),
    help="Of any kind, the repeats for a busy server included.",
)
@click.option(
    "--max-tokens",
    default=_BUDGET.tokens,
    show_default=True,
    type=click.IntRange(1, _UNLIMITED),
    help="Of prompts and answers together.",
)
@click.option(
    "--max-seconds",
    default=_BUDGET.seconds,
    show_default=True,
    type=_Finite(1, 86400 * 7),
    help="Of the whole run, waits included.",
)
@click.option(
    "--rate",
    default=_BUDGET.rate,
    show_default=True,
    type=_Finite(0.001, 1000),
    help="Requests a second at most.",
)
@click.option(
    "--price",
    type=_Finite(0),
    metavar="AMOUNT",
    help="Of a million tokens; what the run costs is shown then.",
)
@click.option(
    "--longest",
    default=_OPTIONS.longest,
    show_default=True,
    type=click.IntRange(64, 1 << 20),
    help="Tokens of the longest prompt. Hosted APIs reuse nothing below 1,024 or so.",
)
@click.option(
    "--device-tokens",
    type=click.IntRange(1),
    help="For tiers: how many tokens of KV the device holds. Default: as the attached server says, else found out.",
)
@click.option(
    "--lifetime",
    metavar="S,...",
    help="For lifetime: look for an entry after these seconds. Default: 60.",
)
@click.option(
    "--repeats",
    default=_OPTIONS.repeats,
    show_default=True,
    type=click.IntRange(2, 1000),
    help="For replicas: how often each prompt is sent.",
)
@click.option("--model", default="", help="Ask for this model. Default: the server's first.")
@click.option("--api-key", envvar="HITMAP_API_KEY", default="", help="Bearer token (or $HITMAP_API_KEY).")
@click.option("--dry-run", is_flag=True, help="Say what would be sent and what it costs, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
@click.option("--no-store", is_flag=True, help="Only print what is found.")
@click.option(
    "--stored",
    is_flag=True,
    help="Show what was found before, of this server (its name does, too) or of all, and send nothing.",
)
@store_option
def command(
    server: str,
    measure: str,
    max_requests: int,
    max_tokens: int,
    max_seconds: float,
    rate: float,
    price: float | None,
    longest: int,
    device_tokens: int | None,
    lifetime: str | None,
    repeats: int,
    model: str,
    api_key: str,
    dry_run: bool,
    as_json: bool,
    no_store: bool,
    stored: bool,
    store: str | None,
) -> None:
    """Measure the server at URL by requests of hitmap's own: what its telemetry does not say.

    \b
      prefill     milliseconds a prompt token takes to compute
      alignment   the units in which the cache serves what it holds
      salt        whether cache_salt keeps callers apart
      replicas    how many caches are behind the address, and how often a prompt meets its own
      lifetime    how long an entry is kept
      tiers       what pushes an entry off the device, and how long it takes to load it back

    \b
      hitmap canary http://127.0.0.1:8000 --dry-run
      hitmap canary http://127.0.0.1:8000 --measure tiers --max-tokens 2000000
      hitmap canary https://api.example.com --model m --measure lifetime --lifetime 60,240 --price 0.5
      hitmap canary --stored                              what was found before

    Works on any OpenAI-compatible server or hosted API, without a flag. Prompts are random, so that nobody's entries
    are used; requests carry `hitmap-canary` in their X-Request-Id and `user` and are not counted among requests, but
    the server's own counters and KV events have them. No request is sent that could exceed the budget. Results are
    stored as findings. Exit code 1 if nothing could be told, or not be stored; it is printed all the same.
    """
    if stored:
        if dry_run or no_store:
            raise UsageError(
                "--stored shows what was found before: it goes with neither --dry-run nor --no-store"
            )
        _show_stored(server, store, as_json)
        return
    if not server:
        raise UsageError("say which server: hitmap canary URL; what was found before: hitmap canary --stored")
    ((name, url),) = server_names([server]).items()
    measures = _measures(measure)
    if lifetime is not None and "lifetime" not in measures:
        raise UsageError("--lifetime goes with --measure lifetime")
    options = Options(longest, device_tokens, _seconds(lifetime), repeats)
    budget = Budget(max_requests, max_tokens, max_seconds, rate, price)
    if dry_run:
        report = rehearse(measures, options, budget, model)
        print_rehearsal(url, report, Remedy(measures, options, budget), as_json)
        return
    transport = HttpTransport(url, api_key)
    lost = ""
    with ExitStack() as stack:
        stack.callback(transport.close)
        client = None if no_store else stack.enter_context(open_client(store))
        if client is not None:
            check_writable(client)
            known, facts = known_as(client, url)
            if known and name == url.partition("://")[2]:
                name = known
            if device_tokens is None:
                options = Options(longest, device_tokens_of(facts), options.waits_s, repeats)
        console = Console(stderr=True, highlight=False)
        seen = console.is_terminal and not as_json
        bar = _bar(rehearse(measures, options, budget, model), console) if seen else nullcontext(_untold)
        with bar as told, _ended_softly():
            report = run(transport, url, measures, options, budget, model=model, progress=told)
        if client is not None:
            lost = keep(client, store, name, report)
        # before the store is let go, which may be what fails next
        remedy = Remedy(measures, options, budget)
        print_report(name, report, remedy, as_json, stored=client is not None and not lost)
        if lost:
            click.echo(f"hitmap: what was found is not stored: {printable(lost, lines=False)}", err=True)
    if report.interrupted:
        raise click.Abort
    if lost:
        raise click.exceptions.Exit(1)
    if all(found.value is None and found.low is None for found in report.findings):
        raise UserError("nothing could be told; why not is said above")


def _show_stored(server: str, store: str | None, as_json: bool) -> None:
    """What canaries found before: of a server by its name or its address, of all where none is given."""
    with open_reader(store) as client:
        names = []
        if server:
            ((name, url),) = server_names([server]).items()
            names = list(filter(None, (server, name, known_as(client, url)[0])))
        kept = newest(client, names)
    if not kept:
        raise UserError(f"no canary has found anything of {server or 'any server'} yet: hitmap canary URL")
    print_kept(kept, as_json)


@contextmanager
def _ended_softly() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: with what is known by then."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _untold(measure: str, ledger: Ledger) -> None:
    """Progress where nobody looks."""


def _measures(typed: str) -> list[str]:
    """The measurements asked for, in the order in which they are taken."""
    names = [name.strip() for name in typed.split(",") if name.strip()]
    if names == ["all"]:
        return list(MEASURES)
    if wrong := [name for name in names if name not in MEASURES]:
        raise UsageError(f"--measure {wrong[0]}: there are {', '.join(MEASURES)} and all")
    if not names:
        raise UsageError(f"--measure: say one of {', '.join(MEASURES)}")
    return [name for name in MEASURES if name in names]


def _seconds(typed: str | None) -> tuple[float, ...]:
    if typed is None:
        return tuple(_OPTIONS.waits_s)
    try:
        waits = tuple(float(text) for text in typed.split(","))
    except ValueError:
        waits = ()
    if not waits or not all(0 < wait_s < 1e7 for wait_s in waits):
        raise UsageError(f"--lifetime {typed}: write seconds, as in 60,300")
    return waits


@contextmanager
def _bar(expected: Report, console: Console) -> Iterator[Told]:
    """A bar over the requests that a rehearsal sent."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("asking", total=expected.requests, told="")

        def told(measure: str, ledger: Ledger) -> None:
            spent = f"{ledger.requests:,} requests, {ledger.tokens:,} tokens"
            bar.update(task, description=measure, completed=ledger.requests, told=spent)

        yield told
