"""What `hitmap report` and `hitmap gate` compare: two sets, or before and after a deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from analysis.report.metrics import METRICS
from cachemodel.errors import UsageError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from analysis.report.compare import Asked
    from analysis.report.model import Report

Decorated = Callable[..., Any]
MEAN = "mean"


class Quantile(click.ParamType[float | None]):
    """0.99, p99 or mean, which is None."""

    name = "Q"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        if value is None or value == MEAN:
            return None
        if isinstance(value, float):
            return value
        try:
            found = float(value[1:]) / 100 if value[:1] in "pP" else float(value)
        except ValueError:
            raise UsageError(f"{value!r} is no quantile: write 0.99 for P99, or {MEAN}") from None
        if not 0 < found < 1:
            raise UsageError(f"a quantile lies between 0 and 1: write 0.99 for P99, not {value}")
        return found


@dataclass(frozen=True, slots=True)
class Sets:
    """Two sets as a person names them: a and b, or a deployment and how long around it. layers: a YAML file that
    describes another chain of layers."""

    a: str | None
    b: str | None
    deploy: str | None
    window: str
    layers: Path | None = None

    def check(self) -> None:
        """Raises UsageError where they say too much or too little."""
        if self.deploy and (self.a or self.b):
            raise UsageError("--deploy makes both sets: use it, or --a and --b")
        if self.deploy and self.layers:
            raise UsageError("--layers takes --a and --b: a deployment is marked for servers")
        if not self.deploy and not (self.a and self.b):
            raise UsageError("say what to compare: --a SET --b SET, or --deploy NAME")

    def compared(self, client: Client, asked: Asked) -> Report:
        """The report; raises UserError."""
        from analysis.report.compare import compare, compare_deploy
        from analysis.selection import parse_duration

        if self.layers:
            from analysis.chain.build import compare_chain

            return compare_chain(client, self.layers, self.a or "", self.b or "", asked)
        if self.deploy:
            return compare_deploy(client, self.deploy, parse_duration(self.window), asked)
        return compare(client, self.a or "", self.b or "", asked)


def question_options(function: Decorated) -> Decorated:
    """Adds `--deploy`, `--window`, `--metric`, `--quantile`, `--layers`, `--fast`, `--seed`."""
    for option in (
        click.option(
            "--seed", default=0, show_default=True, help="Of the resampling: the same seed, the same report."
        ),
        click.option(
            "--fast",
            is_flag=True,
            help="Without windows of the past, which tell how often chance names a cause.",
        ),
        click.option(
            "--layers",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Another chain of layers than an LLM server's, as docs/layers.md describes one.",
        ),
        click.option(
            "--quantile",
            type=Quantile(),
            default=0.5,
            show_default=True,
            help="To take apart: 0.99 for P99, or mean.",
        ),
        click.option("--metric", type=click.Choice(list(METRICS)), default="ttft", show_default=True),
        click.option(
            "--window", default="1h", show_default=True, help="How long before and after, with --deploy."
        ),
        click.option(
            "--deploy", metavar="NAME", help="Instead of two sets: before and after a marked deployment."
        ),
    ):
        function = option(function)
    return function


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Says on a terminal's stderr what is being done; elsewhere nothing."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda text: status.update(text)
