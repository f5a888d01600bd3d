"""A perturbation check for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from analysis.numbers import ms, quantile_name
from hitmap.engine_perturb.model import Perturbed, Sensitivity


def to_terminal(found: Perturbed, console: Console) -> None:
    """A table of sensitivities and what to know of them."""
    what = f"{quantile_name(found.q)} of {found.metric}"
    console.print(
        f"{found.server}: {what} {ms(found.value)} without a delay (n = {found.n:,}). By how many ms it moves for each"
        f" ms of delay, {found.delay_ms:g} ms at every passage of a layer:",
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    for name in ("layer", "n", "measured", "95 %", "linear rule", "twin"):
        table.add_column(name, justify="left" if name == "layer" else "right")
    for line in found.layers:
        table.add_row(
            line.layer,
            f"{line.n:,}",
            _number(line.measured),
            _interval(line),
            _number(line.linear),
            _number(line.twin),
        )
    console.print(table)
    for note in found.notes:
        console.print(note, soft_wrap=True)


def _interval(line: Sensitivity) -> str:
    return "-" if line.low is None or line.high is None else f"{line.low:.2f} to {line.high:.2f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
