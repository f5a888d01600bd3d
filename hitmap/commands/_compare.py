"""What `hitmap report` and `hitmap gate` compare: two sets, or before and after a deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
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
class Question:
    """What a person asks. a, b: two sets; or deploy: a deployment, `window` long before and after it. layers: a YAML
    file that describes another chain of layers. fast: without windows of the past."""

    a: str | None
    b: str | None
    deploy: str | None
    window: str
    metric: str
    quantile: float | None
    layers: Path | None
    fast: bool
    seed: int

    def check(self) -> None:
        """Raises UsageError where the sets say too much or too little."""
        if self.deploy and (self.a or self.b):
            raise UsageError("--deploy makes both sets: use it, or --a and --b")
        if self.deploy and self.layers:
            raise UsageError("--layers takes --a and --b: a deployment is marked for servers")
        if not self.deploy and not (self.a and self.b):
            raise UsageError("say what to compare: --a SET --b SET, or --deploy NAME")
        if self.metric not in METRICS and not self.layers:
            raise UsageError(
                f"{self.metric!r} is of a chain of layers: say which file describes it, --layers FILE"
            )

    def asked(self, tell: Callable[[str], None]) -> Asked:
        """The same for analysis."""
        from analysis.report.compare import Asked

        return Asked(self.metric, self.quantile, past=not self.fast, seed=self.seed, progress=tell)

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


_OPTIONS = (
    click.option("--b", metavar="SET", help="The requests in question: the treatment, after."),
    click.option(
        "--deploy", metavar="NAME", help="Instead of two sets: before and after a marked deployment."
    ),
    click.option(
        "--window", default="1h", show_default=True, help="How long before and after, with --deploy."
    ),
    click.option("--metric", type=click.Choice(list(METRICS)), default="ttft", show_default=True),
    click.option(
        "--quantile",
        type=Quantile(),
        default=0.5,
        show_default=True,
        help=f"To take apart: 0.99 for P99, or {MEAN}.",
    ),
    click.option(
        "--layers",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Another chain of layers than an LLM server's, as docs/layers.md describes one.",
    ),
    click.option(
        "--fast",
        is_flag=True,
        help="Without windows of the past, which tell how often chance names a cause.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Of the resampling: the same seed, the same report.",
    ),
)


def question_options(*a: str, metavar: str, what: str) -> Callable[[Decorated], Decorated]:
    """Adds all that makes a `Question`, which becomes the argument `question`. a: names of the option for the first
    set; metavar, what: how its help calls it."""
    options = (click.option(*a, "a", metavar=metavar, help=what), *_OPTIONS)

    def decorate(function: Decorated) -> Decorated:
        @wraps(function)
        def asked(*arguments: Any, **options: Any) -> Any:
            question = Question(**{field.name: options.pop(field.name) for field in fields(Question)})
            return function(*arguments, question=question, **options)

        for option in reversed(options):
            asked = option(asked)
        return asked

    return decorate


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Says on a terminal's stderr what is being done; elsewhere nothing."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda text: status.update(text)
