"""The demo on a live server: the reference engine under load, in two periods that differ in one line of the prompts."""

from __future__ import annotations

import os
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
from hitmap.load.plan import Plan, Planned
from hitmap.load.summary import Summary, Tally
from hitmap.load.view import progress
from store.client import connect

SERVER = "demo-engine"
TOKENIZER = (
    Path(engine_package.__file__).parent / "model/demo"
)  # of the model that the engine serves by itself
PROBES, PROBE_S, WARM_UP_S = 16, 8.0, 10.0
# So much of its time the engine works where no request finds anything in its cache. Requests meet, so that some wait;
# and a machine that turns out half as fast beside something else is not overloaded, where all would be queue.
UTILISATION = 0.7
MAX_RATE = 6.0  # requests a second
# A cause is told by a twin of the server, which takes a hundred requests a period; how many come within a time varies.
ENOUGH = 120
LONGEST_S = 200.0  # a period, of a machine however slow
OVERLOADED = 1.25
REPORT_S = 30.0


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
    """Run the engine, watch it and load it for `seconds` before and after the change, or longer where that makes too
    few requests for the report to tell a cause, into a store below `home`.

    Everything it starts ends with the context. Raises UserError.
    """
    log, busy = home / "requests.jsonl", _busy()
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
                    probed = load.send(PROBE, _one_by_one(PROBE), PROBE_S)
                    rate = _rate(probed)
                    seconds = max(seconds, ENOUGH / rate)
                    load.expect(PROBE_S + WARM_UP_S + 2 * seconds)
                    console.print(_outlook(probed, rate, seconds), soft_wrap=True)
                    warmed = load.send(WARM_UP, _plan(WARM_UP, rate, WARM_UP_S), WARM_UP_S)
                    load.send(BEFORE, _plan(BEFORE, rate, seconds), seconds)
                    after = load.send(AFTER, _plan(AFTER, rate, seconds), seconds)
                watched = ground.watched(SERVER, detection)
        ground.drain()
        yield replace(
            watched, remarks=_remarks(probed, warmed, after, seconds, rate), seconds=seconds, busy=busy
        )


def _plan(period: Period, rate: float, seconds: float) -> Plan:
    return mix.plan(mix.DEFAULT, rate=rate, seed=period.seed, clock=period.clock).limited(seconds)


def _one_by_one(period: Period) -> Plan:
    """A few of a period's requests, each sent when the one before is answered."""
    many = mix.plan(mix.DEFAULT, rate=1.0, seed=period.seed, clock=period.clock)

    def requests() -> Iterator[Planned]:
        return (replace(planned, due_s=0.0, session=period.phase) for planned in many)

    return replace(many, requests=requests, times=None).limited(count=PROBES)


def _alone_s(probed: Summary) -> float:
    """Of a request without a cache and without company."""
    return probed.e2e_s.p50 if probed.e2e_s else 1.0


def _rate(probed: Summary) -> float:
    """Requests a second that this machine serves with ease, also without a cache."""
    return round(min(MAX_RATE, max(ENOUGH / LONGEST_S, UTILISATION / _alone_s(probed))), 2)


def _outlook(probed: Summary, rate: float, seconds: float) -> str:
    minutes = (WARM_UP_S + 2 * seconds + REPORT_S) / 60
    return (
        f"Without a cache a request takes {1000 * _alone_s(probed):.0f} ms here: {rate:g} requests a second for"
        f" {seconds:.0f} s, before the change and after it. About {minutes:.1f} minutes to go."
    )


def _busy() -> float | None:
    """How many processes want a processor, for each that this machine has, before any of the demo's own; None where no
    system tells."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return None


def _remarks(
    probed: Summary, warmed: Summary, after: Summary, seconds: float, rate: float
) -> tuple[str, ...]:
    """What a reader of the report should know of the load."""
    spare = probed.completed + warmed.completed
    told = f"{rate:g} requests a second, which this machine serves with ease without a cache;"
    remarks = [f"{told} {spare} more to find out and to warm up."]
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
