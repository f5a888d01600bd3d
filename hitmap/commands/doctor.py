"""`hitmap doctor`: what this host can tell of servers that run on it, and what would open the rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from probes.support import Support

_SENSORS = ("grpc", "kernel", "pmu", "gpu")
_SIGNS = {
    "yes": ("yes", "green"),
    "less": ("in part", "yellow"),
    "no": ("no", "red"),
    "never": ("not here", "dim"),
}


@click.command()
@click.option("--only", type=click.Choice(_SENSORS), multiple=True, help="Look at this alone.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def command(only: tuple[str, ...], as_json: bool) -> None:
    """What can be watched on this host, each thing tried just now, and what would open the rest.

    \b
      hitmap doctor                       # as whoever would run the probe
      sudo hitmap doctor --only kernel
      hitmap doctor --json | jq '.[] | select(.state == "no")'

    Exit code 0: all that this hardware and kernel have can be watched. 1: something more could be, and the last column
    says what it needs.
    """
    rows = _rows(only or _SENSORS)
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _show(rows, Console(highlight=False))
    sys.exit(any(row.needs for row in rows))


def _rows(sensors: Sequence[str]) -> list[Support]:
    """Imported only when looked at: each sensor has needs of its own."""
    rows: list[Support] = []
    if "grpc" in sensors:
        from probes.grpc.support import support as grpc

        rows += grpc()
    if "kernel" in sensors:
        from probes.kernel.support import support as kernel

        rows += kernel()
    if "pmu" in sensors:
        from probes.pmu.support import support as pmu

        rows += pmu()
    if "gpu" in sensors:
        from probes.gpu.support import support as gpu

        rows += gpu()
    return rows


def _show(rows: Sequence[Support], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "what", "", "how, or why not", "needs"):
        table.add_column(heading, overflow="fold")
    before = ""
    for row in rows:
        sign, style = _SIGNS[row.state]
        first = row.sensor if row.sensor != before else ""
        table.add_row(first, row.name, Text(sign, style), Text(row.how), Text(row.needs))
        before = row.sensor
    console.print(table)
    counted = {state: sum(row.state == state for row in rows) for state in _SIGNS}
    told = ", ".join(f"{count} {_SIGNS[state][0]}" for state, count in counted.items() if count)
    rest = sum(bool(row.needs) for row in rows)
    console.print(
        f"{told}." + (f" {rest} of these would open with what stands in the last column." if rest else "")
    )
