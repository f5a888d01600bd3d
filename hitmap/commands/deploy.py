"""`hitmap deploy`: markers that reports compare before and after."""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.table import Table

from cachemodel.errors import UsageError, UserError
from hitmap.commands._store_option import open_client, store_option

_STANDS = """
    SELECT what FROM deploys
    WHERE time = {time:DateTime64(6, 'UTC')} AND server = {server:String} AND name = {name:String} LIMIT 1
"""


@click.group()
def command() -> None:
    """Mark a deployment, so that reports can compare before and after.

    \b
      hitmap deploy mark v42 --what 'new system prompt'
      hitmap report --deploy v42 --window 1h
    """


@command.command()
@click.argument("name")
@store_option
@click.option("--server", default="", help="The server it went to. Default: all.")
@click.option("--what", default="", help="What changed, in a few words.")
@click.option(
    "--at", metavar="TIME", help="As 2026-11-29T10:00, UTC unless it says otherwise, or -10m. Default: now."
)
def mark(name: str, store: str | None, server: str, what: str, at: str | None) -> None:
    """Record that NAME was deployed. Marked again for the same time and server, it stays as it is."""
    from analysis.selection import parse_time

    if not name.strip():
        raise UsageError("a deployment needs a name: hitmap deploy mark v42")
    now = datetime.now(UTC)
    time = parse_time(at, now) if at else now
    moment = f"{time:%Y-%m-%d %H:%M:%S} UTC"
    with open_client(store) as client:
        if stands := client.query(_STANDS, parameters=_key(time, server, name)).result_rows:
            if what not in ("", stands[0][0]):
                raise UserError(
                    f"{name} is marked at {moment} already, as {stands[0][0]!r}: use another name or --at"
                )
            click.echo(f"{name} is marked at {moment} already")
            return
        client.insert(
            "deploys",
            [[time, server, name, getpass.getuser(), what]],
            column_names=["time", "server", "name", "who", "what"],
        )
    click.echo(f"{name} marked at {moment}")


def _key(time: datetime, server: str, name: str) -> dict[str, str]:
    return {"time": f"{time:%Y-%m-%d %H:%M:%S.%f}", "server": server, "name": name}


@command.command("list")
@store_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def list_(store: str | None, as_json: bool) -> None:
    """Show the markers, newest first."""
    with open_client(store) as client:
        found = client.query(
            "SELECT time, name, server, who, what FROM deploys ORDER BY time DESC LIMIT 1000"
        )
    if as_json:
        rows = [dict(zip(found.column_names, row, strict=True)) for row in found.result_rows]
        click.echo(json.dumps(rows, default=str))
        return
    table = Table("time (UTC)", "name", "server", "who", "what")
    for time, name, server, who, what in found.result_rows:
        table.add_row(f"{time:%Y-%m-%d %H:%M:%S}", name, server or "all", who, what)
    Console().print(table)
