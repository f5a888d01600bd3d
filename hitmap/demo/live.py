"""The demo on a live server: the reference engine under load, in two periods that differ in one line of the prompts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from rich.console import Console
from rich.progress import Progress

import engine as engine_package
from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.chains.settings import ChainSettings
from collector.resume import Stored
from hitmap.demo.engine_process import engine
from hitmap.demo.stage import Watched, stage
from hitmap.load import mix, run
from hitmap.load.summary import Summary, Tally
from hitmap.load.view import progress
from store.client import connect

SERVER = "demo-engine"
TOKENIZER = (
    Path(engine_package.__file__).parent / "model/demo"
)  # of the model that the engine serves by itself
PROBE_S, WARM_UP_S = 8.0, 10.0
PROBE_RATE = 1.5  # requests a second that hardly meet
MIN_RATE, MAX_RATE = 1.0, 6.0
# With so many requests under way at a time, each as long as one alone without a cache, the engine is nearly busy: it
# serves that rate easily with its cache, and just so, or not quite, without.
CONCURRENCY = 1.5
OVERLOADED = 1.25
# A cause is told by a twin of the server, which takes a hundred requests a period; a slow machine gets some time more.
ENOUGH, LONGER = 120, 1.5


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


@contextmanager
def live(home: Path, *, seconds: float, console: Console) -> Iterator[Watched]:
    """Run the engine, watch it and load it for `seconds` before and after the change, or somewhat longer where that
    makes too few requests, into a store below `home`.

    Everything it starts ends with the context. Raises UserError.
    """
    log = home / "requests.jsonl"
    with stage(home) as ground:
        log.write_bytes(b"")
        told = ["--otlp", ground.otlp, "--service-name", SERVER]
        told += ["--kv-events", "tcp://127.0.0.1:*", "--kv-replay", "tcp://127.0.0.1:*"]
        with engine(home / "engine.log", told) as serving:
            detection = detect(serving.url, otlp=ground.otlp)
            options = AttachOptions(
                server=SERVER, log=log, interval_s=0.5, chains=ChainSettings(str(TOKENIZER))
            )
            stored = Stored(lambda: connect(ground.dsn))
            with Attachment(detection, options, ground.pipeline.sink, stored, hasher=ground.hasher):
                with _Load(serving.url, log, console) as load:
                    load.expect(PROBE_S + WARM_UP_S + 2 * seconds)
                    probed = load.send(PROBE, PROBE_S, PROBE_RATE)
                    rate = _rate(probed)
                    seconds = min(LONGER * seconds, max(seconds, ENOUGH / rate))
                    load.expect(PROBE_S + WARM_UP_S + 2 * seconds)
                    warmed = load.send(WARM_UP, WARM_UP_S, rate)
                    load.send(BEFORE, seconds, rate)
                    after = load.send(AFTER, seconds, rate)
                watched = ground.watched(SERVER, detection)
        ground.drain()
        yield replace(watched, remarks=_remarks(probed, warmed, after, seconds, rate))


def _rate(probed: Summary) -> float:
    """Requests a second that this machine can just serve without a cache."""
    alone_s = probed.e2e_s.p50 if probed.e2e_s else 1.0
    return round(min(MAX_RATE, max(MIN_RATE, CONCURRENCY / alone_s)), 1)


def _remarks(
    probed: Summary, warmed: Summary, after: Summary, seconds: float, rate: float
) -> tuple[str, ...]:
    """What a reader of the report should know of the load."""
    spare = probed.completed + warmed.completed
    told = f"{rate:g} requests a second, what this machine can just serve without a cache; {spare} more to find out and"
    remarks = [f"{told} to warm up."]
    if after.wall_s > OVERLOADED * seconds:
        remarks.append(
            f"Without its prefix cache the engine did not keep up: it took {after.wall_s:.0f} s for requests of"
            f" {seconds:.0f} s. Most of the queue is what follows from that, and it would grow with --seconds."
        )
    return tuple(remarks)


class _Load:
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

    def send(self, period: Period, seconds: float, rate: float) -> Summary:
        """Send a period's requests and wait for their answers. Raises UserError where there is none."""
        begun = self._bar.tasks[0].completed
        if not self._console.is_terminal:
            self._console.print(f"  {seconds:.0f} s {period.what}")

        def tell(elapsed_s: float, tally: Tally) -> None:
            shown = f"{period.what} ({progress(elapsed_s, tally)})"
            self._bar.update(self._task, completed=begun + min(elapsed_s, seconds), description=shown)

        plan = mix.plan(mix.DEFAULT, rate=rate, seed=period.seed, clock=period.clock).limited(seconds)
        summary = run(plan, self._url, self._log, {"phase": period.phase}, tell)
        self._bar.update(self._task, completed=begun + seconds)
        if not summary.completed:
            raise UserError(f"the engine completed none of {summary.sent} requests: {summary.errors}")
        return summary
