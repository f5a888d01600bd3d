"""The demo on a live server: the reference engine under load, in two periods that differ in one line of the prompts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress, TaskID

from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.resume import Stored
from hitmap.demo.engine_process import engine
from hitmap.demo.stage import Watched, stage
from hitmap.load import mix, run
from hitmap.load.summary import Tally
from hitmap.load.view import progress
from store.client import connect

SERVER = "demo-engine"
# Requests a second: with prefixes cached two cores serve them with room to spare, without it just so.
RATE = 5.0
WARM_UP_S = 8.0


class Period(NamedTuple):
    """A part of the demo. phase: label of its requests. clock: where the time stands in the prompts. seed: periods of
    one seed send the same requests at the same times, but for the clock."""

    phase: str
    clock: str
    seed: int
    what: str


WARM_UP = Period("warm-up", "none", 1, "warming up")
BEFORE = Period("before", "none", 2, "before: system prompts that stay the same")
AFTER = Period("after", "first", 2, "after: the time of day at the top of each system prompt")


@contextmanager
def live(home: Path, *, seconds: float, console: Console) -> Iterator[Watched]:
    """Run the engine, watch it and load it for `seconds` before and after the change, into a store below `home`.

    Everything it starts ends with the context. Raises UserError.
    """
    log = home / "requests.jsonl"
    with stage(home) as ground:
        log.write_bytes(b"")
        told = ["--otlp", ground.otlp, "--service-name", SERVER]
        told += ["--kv-events", "tcp://127.0.0.1:*", "--kv-replay", "tcp://127.0.0.1:*"]
        with engine(home / "engine.log", told) as serving:
            detection = detect(serving.url, otlp=ground.otlp)
            options = AttachOptions(server=SERVER, services=(SERVER,), log=log, interval_s=0.5)
            stored = Stored(lambda: connect(ground.dsn))
            with Attachment(detection, options, ground.pipeline.sink, stored):
                with Progress(console=console, transient=True) as bar:
                    task = bar.add_task("", total=WARM_UP_S + 2 * seconds)
                    _load(WARM_UP, WARM_UP_S, serving.url, log, bar, task)
                    _load(BEFORE, seconds, serving.url, log, bar, task)
                    _load(AFTER, seconds, serving.url, log, bar, task)
                watched = ground.watched(SERVER, detection)
        yield watched


def _load(period: Period, seconds: float, url: str, log: Path, bar: Progress, task: TaskID) -> None:
    """Send a period's requests and wait for their answers."""
    begun = bar.tasks[task].completed

    def tell(elapsed_s: float, tally: Tally) -> None:
        shown = f"{period.what} ({progress(elapsed_s, tally)})"
        bar.update(task, completed=begun + min(elapsed_s, seconds), description=shown)

    plan = mix.plan(mix.DEFAULT, rate=RATE, seed=period.seed, clock=period.clock).limited(seconds)
    summary = run(plan, url, log, {"phase": period.phase}, tell)
    bar.update(task, completed=begun + seconds)
    if not summary.completed:
        raise UserError(f"the engine completed none of {summary.sent} requests: {summary.errors}")
