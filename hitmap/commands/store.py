"""`hitmap store`: serve, migrate, status, sql, rejected."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cachemodel.printable import printable
from hitmap.commands._store_option import open_client, open_reader, open_store, store_option


@click.group()
def command() -> None:
    """Run, migrate and query the store.

    Without --store everything here means the embedded store: a ClickHouse engine in a directory of yours, owned by one
    process that speaks ClickHouse's HTTP interface on loopback.
    """


@command.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory to own. Default: $HITMAP_HOME/store.",
)
@click.option(
    "--port", default=8123, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free port."
)
@click.option(
    "--memory-mb",
    type=click.IntRange(min=500),
    help="Bound of all queries and caches together. Default: half of the machine's memory, at most 4000.",
)
@click.option("--while-used", is_flag=True, hidden=True)
def serve(directory: Path | None, port: int, memory_mb: int | None, while_used: bool) -> None:
    """Own a store directory and serve it on loopback until interrupted.

    The writer's password is in DIR/server.json, readable by you alone. Anybody else on this machine may read the
    database, nothing more:

    \b
      curl 'http://127.0.0.1:8123/?database=hitmap' --data 'SELECT count() FROM requests'
    """
    from store.embedded import home
    from store.engine import Limits
    from store.serve import serve as run

    directory = directory or home() / "store"
    limits = Limits(memory_mb * 1_000_000) if memory_mb else Limits()

    def announce(port: int) -> None:
        click.echo(
            f"hitmap store: {directory} on http://127.0.0.1:{port}, memory bound {limits.memory // 1_000_000} MB;"
            " Ctrl-C ends it",
            err=True,
        )

    run(directory, port, limits, while_used=while_used, ready=None if while_used else announce)


@command.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def migrate(store: str | None, as_json: bool) -> None:
    """Create or update the tables. Applied files are never run again."""
    from store.client import connect
    from store.migrate import known
    from store.migrate import migrate as run

    with open_store(store) as dsn:
        done = [f"{m.number:04}_{m.name}" for m in run(connect(dsn))]
    if as_json:
        click.echo(json.dumps({"applied": done, "schema": known()[-1].number}))
    elif done:
        click.echo("applied " + ", ".join(done))
    else:
        click.echo(f"schema {known()[-1].number:04} is up to date")


_OWN_FORMAT = re.compile(r"\bFORMAT\s+\w+\s*;?\s*$", re.IGNORECASE)
STATUS = """
SELECT t.name AS table, sum(p.rows) AS rows, sum(p.bytes_on_disk) AS bytes,
       if(rows = 0, NULL, round(bytes / rows, 1)) AS bytes_per_row, countIf(p.name != '') AS parts,
       if(parts = 0, NULL, max(p.modification_time)) AS changed
FROM system.tables AS t
LEFT JOIN (SELECT * FROM system.parts WHERE active AND database = currentDatabase()) AS p ON p.table = t.name
WHERE t.database = currentDatabase() AND t.engine LIKE '%MergeTree'
GROUP BY t.name
ORDER BY t.name
SETTINGS join_use_nulls = 0
"""


@command.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def status(store: str | None, as_json: bool) -> None:
    """Rows, bytes and parts of each table, and the schema's number."""
    from store.client import connect
    from store.migrate import applied

    with open_store(store) as dsn:
        client = connect(dsn)
        found = client.query(STATUS)
        # Parts count rows that are deleted and not merged away yet.
        counted = {
            table: client.query(f"SELECT count() FROM `{table}`").result_rows[0][0]
            for table, *_ in found.result_rows
        }
        schema = max(applied(client), default=0)
        version = client.server_version
    rows = [dict(zip(found.column_names, row, strict=True)) for row in found.result_rows]
    for row in rows:
        row["rows"] = counted[row["table"]]
    if as_json:
        click.echo(json.dumps({"schema": schema, "clickhouse": version, "tables": rows}, default=str))
        return
    table = Table(title=f"schema {schema:04}, ClickHouse {version}")
    table.add_column("table")
    for column in ("rows", "bytes", "bytes a row", "parts"):
        table.add_column(column, justify="right")
    for row in rows:
        per_row = "-" if row["bytes_per_row"] is None else f"{row['bytes_per_row']:.1f}"
        table.add_row(row["table"], f"{row['rows']:,}", f"{row['bytes']:,}", per_row, str(row["parts"]))
    Console().print(table)


@command.command()
@click.argument("query")
@store_option
@click.option(
    "--format",
    "output_format",
    metavar="FORMAT",
    help="Print raw in a ClickHouse format: TSV, CSV, JSON, Vertical...",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format JSON.")
@click.option("--write", is_flag=True, help="Allow statements that change the embedded store.")
def sql(query: str, store: str | None, output_format: str | None, as_json: bool, write: bool) -> None:
    """Run one SQL statement and print its result.

    \b
      hitmap store sql 'SELECT server, count() FROM requests GROUP BY server'
      hitmap store sql 'SELECT * FROM requests LIMIT 1' --format Vertical
      hitmap store sql 'SELECT * FROM requests LIMIT 1 FORMAT Vertical'
    """
    output_format = "JSON" if as_json else output_format
    with open_client(store) if write else open_reader(store) as client:
        if output_format or _OWN_FORMAT.search(query):
            click.echo(client.raw_query(query, fmt=output_format), nl=False)
            return
        found = client.query(query)
        if any(found.column_names):  # else it was no query
            _print_rows(found.column_names, found.result_rows, Console())


@command.command()
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="The collector's spool. Default: spool/ in $HITMAP_HOME.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def rejected(spool: Path | None, as_json: bool) -> None:
    """Show what the store could not read, so that the collector set it aside.

    Nothing else was lost with it. The files hold the payloads as they were sent.
    """
    from collector.set_aside import rejections
    from store.embedded import home

    found = list(rejections(spool or home() / "spool"))
    if as_json:
        rows = [asdict(rejection) | {"file": str(rejection.file)} for rejection in found]
        click.echo(json.dumps(rows, indent=2))
        return
    if not found:
        click.echo("nothing was set aside")
    for rejection in found:
        when = datetime.fromtimestamp(rejection.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
        click.echo(
            f"{when}  {rejection.kind}, {rejection.rows:,} rows: {' '.join(rejection.reason.split())[:300]}"
        )
        click.echo(f"  {rejection.file}")


def _print_rows(names: Sequence[str], rows: Sequence[Sequence[object]], console: Console) -> None:
    """A table, or a line a value where the table would not fit."""
    cells = [["NULL" if value is None else printable(str(value)) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    if sum(widths) + 3 * len(widths) + 1 <= console.width:
        table = Table(*names)
        for row in cells:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    width = max(map(len, names))
    for number, row in enumerate(cells, start=1):
        console.print(f"row {number}", style="bold")
        for name, cell in zip(names, row, strict=True):
            console.print(Text(f"  {name:<{width}}  {cell}"), soft_wrap=True)
