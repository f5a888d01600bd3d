"""`hitmap doctor`: what this host can tell of servers that run on it, and what would open the rest."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
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

    Exit code 0: all that this hardware and kernel have can be watched. 1: something more could be, and its row says
    what that needs.
    """
    rows = _rows(only or _SENSORS)
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _show(rows, Console(highlight=False))
    sys.exit(int(any(row.needs for row in rows)))


def _rows(sensors: Sequence[str]) -> list[Support]:
    """Imported only when looked at: each sensor has needs of its own, and one that cannot be imported is a row, too."""
    from probes.support import State, Support

    rows: list[Support] = []
    for sensor in sensors:
        try:
            rows += importlib.import_module(f"probes.{sensor}.support").support()
        except ImportError as error:
            why = f"it cannot be imported: {error}"
            rows.append(Support(sensor, "sensor", State.NO, why, "pip install --upgrade hitmap"))
    return rows


def _show(rows: Sequence[Support], console: Console) -> None:
    """What is alike of one sensor stands together: without a GPU there is one reason for all that needs one."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(min_width=max(len(sign) for sign, _ in _SIGNS.values()), no_wrap=True)
    table.add_column(overflow="fold")
    before = ""
    for (sensor, state, how, needs), names in _alike(rows).items():
        if sensor != before:
            table.add_row(Text(f"\n{sensor}" if before else sensor, "bold"), "")
            before = sensor
        sign, style = _SIGNS[state]
        told = Text.assemble((", ".join(names), "bold"), f": {how}")
        if needs:
            told.append("\nneeds ", "yellow").append(needs)
        table.add_row(Text(sign, style), told)
    console.print(table)
    counted = {state: sum(row.state == state for row in rows) for state in _SIGNS}
    told_all = ", ".join(f"{count} {_SIGNS[state][0]}" for state, count in counted.items() if count)
    rest = sum(bool(row.needs) for row in rows)
    end = f"; {rest} of these would open with what they need" if rest else ""
    console.print(Text(f"\n{told_all}{end}."))


def _alike(rows: Sequence[Support]) -> dict[tuple[str, str, str, str], list[str]]:
    """Names by sensor, state, how and needs; in the order of the first of each."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        found.setdefault((row.sensor, row.state, row.how, row.needs), []).append(row.name)
    return found
