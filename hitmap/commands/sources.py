"""`hitmap sources`: what each server tells, what it does not, and which of its figures cannot be trusted."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.console import Console

from cachemodel.errors import UsageError
from hitmap.commands._store_option import open_client, store_option


@click.command()
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@click.option("--from", "begin", default="-24h", show_default=True, metavar="TIME", help="From when on.")
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="Until when.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--check", is_flag=True, help="Exit with 1 where a figure is found to be wrong.")
@store_option
def command(
    servers: tuple[str, ...], begin: str, end: str, as_json: bool, check: bool, store: str | None
) -> None:
    """What each server tells, what it does not, and which of its figures cannot be trusted.

    \b
      hitmap sources
      hitmap sources vllm-a --from -2h
      hitmap sources --from 2026-11-29T10:00 --to 2026-11-29T11:00 --json

    A SERVER is a name given at attach, all of them by default. Findings are of four kinds: "wrong", a figure that
    cannot be true; "beware", one that is easily misread; "blind", one that is missing; "note", good to know before
    figures are compared. Each says what was seen, the right figure or "unknown", and what to do.
    """
    from analysis.sanity.json import to_json
    from analysis.sanity.sources import sources
    from analysis.sanity.text import to_terminal
    from analysis.selection import parse_time

    now = datetime.now(UTC)
    first, last = parse_time(begin, now), parse_time(end, now)
    if first >= last:
        raise UsageError(f"--from {begin} is not before --to {end}")
    with open_client(store) as client:
        found = sources(client, servers, first, last)
    if as_json:
        click.echo(to_json(found, first, last))
    elif not found:
        click.echo("The store has nothing of any server yet: hitmap attach URL, or hitmap demo")
    else:
        to_terminal(found, first, last, Console(highlight=False))
    if check and any(finding.rule.severity == "wrong" for server in found for finding in server.findings):
        raise click.exceptions.Exit(1)
