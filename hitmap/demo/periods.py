"""The periods of the demo on a live server, and how their load is sent and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.progress import Progress

from cachemodel.errors import UserError
from hitmap.load import mix, run
from hitmap.load.plan import Body, Plan, Planned
from hitmap.load.summary import Summary, Tally
from hitmap.load.view import progress

Rewrite = Callable[[dict[str, Any]], dict[str, Any]]
PROBES, PROBE_S, WARM_UP_S = 16, 8.0, 10.0
# So much of its time the engine works where no request finds anything in its cache. Requests meet, so that some wait;
# and a machine that turns out half as fast beside something else is not overloaded, where all would be queue.
UTILISATION = 0.7
MAX_RATE = 6.0  # requests a second
# A cause is told by a twin of the server, which takes a hundred requests a period; how many come within a time varies.
ENOUGH = 120
LONGEST_S = 200.0  # a period, of a machine however slow


class Period(NamedTuple):
    """A part of the demo. phase: label of its requests. clock: where the time stands in the prompts. seed: periods of
    one seed send the same requests at the same times, but for the clock."""

    phase: str
    clock: str
    seed: int
    what: str


PROBE = Period("probe", "first", 1, "how long this machine takes for a request without a cache")
WARM_UP = Period("warm-up", "none", 3, "warming up")
BEFORE = Period("before", "none", 2, "before: system prompts that stay the same")
AFTER = Period("after", "first", 2, "after: the time of day at the top of each system prompt")
REWRITTEN = Period("rewritten", "first", 2, "the same requests once more, through the rewriter")


def plan(period: Period, rate: float, seconds: float, rewrite: Rewrite | None = None) -> Plan:
    """Its requests; rewrite: what stands between them and the server."""
    made = mix.plan(mix.DEFAULT, rate=rate, seed=period.seed, clock=period.clock).limited(seconds)
    return made if rewrite is None else _through(rewrite, made)


def one_by_one(period: Period) -> Plan:
    """A few of a period's requests, each sent when the one before is answered."""
    many = mix.plan(mix.DEFAULT, rate=1.0, seed=period.seed, clock=period.clock)

    def requests() -> Iterator[Planned]:
        return (replace(planned, due_s=0.0, session=period.phase) for planned in many)

    return replace(many, requests=requests, times=None).limited(count=PROBES)


def rate_of(alone_s: float) -> float:
    """Requests a second that a machine serves with ease, also without a cache, which takes so long for one alone."""
    return round(min(MAX_RATE, max(ENOUGH / LONGEST_S, UTILISATION / alone_s)), 2)


def _through(rewrite: Rewrite, made: Plan) -> Plan:
    def rewritten(planned: Planned) -> Planned:
        def body(answers: Sequence[str]) -> Body:
            return rewrite(planned.body(answers))

        return replace(planned, body=body)

    return replace(made, requests=lambda: map(rewritten, made.requests()))


class Load:
    """Sends periods of load and shows how it goes: a bar on a terminal, else a line a period."""

    def __init__(self, url: str, log: Path, console: Console) -> None:
        self._url, self._log, self._console = url, log, console
        self._bar = Progress(console=console, transient=True)
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def expect(self, seconds: float) -> None:
        """How long all of it takes."""
        self._bar.update(self._task, total=seconds)

    def send(self, period: Period, plan: Plan, seconds: float) -> Summary:
        """Send a period's requests, which takes about so long, and wait for their answers. Raises UserError where there
        is none."""
        begun = self._bar.tasks[0].completed
        if not self._console.is_terminal:
            self._console.print(f"  {seconds:.0f} s {period.what}")

        def tell(elapsed_s: float, tally: Tally) -> None:
            shown = f"{period.what} ({progress(elapsed_s, tally)})"
            self._bar.update(self._task, completed=begun + min(elapsed_s, seconds), description=shown)

        summary = run(plan, self._url, self._log, {"phase": period.phase}, tell)
        self._bar.update(self._task, completed=begun + seconds)
        if not summary.completed:
            raise UserError(f"the engine completed none of {summary.sent} requests: {summary.errors}")
        return summary
