"""The demo on a live server: the reference engine under load, in periods that differ in one line of the prompts."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

import engine as engine_package
from collector.attach import Attachment, AttachOptions, detect
from collector.chains.settings import Capture, ChainSettings
from collector.detection import Detection
from collector.resume import Stored
from hitmap.demo.engine_process import Serving, engine
from hitmap.demo.periods import (
    AFTER,
    BEFORE,
    ENOUGH,
    PROBE,
    PROBE_S,
    REWRITTEN,
    WARM_UP,
    WARM_UP_S,
    Load,
    Rewrite,
    one_by_one,
    plan,
    rate_of,
)
from hitmap.demo.stage import Stage, Watched, stage
from hitmap.load.summary import Summary
from store.client import connect

SERVER = "demo-engine"
TOKENIZER = (
    Path(engine_package.__file__).parent / "model/demo"
)  # of the model that the engine serves by itself
OVERLOADED = 1.25
REPORT_S = 40.0


@dataclass(frozen=True)
class Live:
    """What came in of the periods before and after; the engine still serves. log: of all requests. again: sends those
    of the second period through a rewriter, to an empty cache, and comes back when they are in the store."""

    watched: Watched
    log: Path
    again: Callable[[Rewrite], None]


@contextmanager
def live(home: Path, *, seconds: float, console: Console) -> Iterator[Live]:
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
            played = _Played(ground, serving, detection, log, console)
            yield replace(played.story(seconds, busy), again=played.again)


class _Played:
    """What is played on one stage, to one engine."""

    def __init__(
        self, ground: Stage, serving: Serving, detection: Detection, log: Path, console: Console
    ) -> None:
        self._ground, self._serving, self._detection = ground, serving, detection
        self._log, self._console = log, console
        self._rate = self._seconds = 0.0

    def story(self, seconds: float, busy: float | None) -> Live:
        """Probe, warm up, before and after."""
        with self._loaded() as load:
            load.expect(PROBE_S + WARM_UP_S + 2 * seconds)
            probed = load.send(PROBE, one_by_one(PROBE), PROBE_S)
            self._rate = rate = rate_of(_alone_s(probed))
            self._seconds = seconds = max(seconds, ENOUGH / rate)
            load.expect(PROBE_S + WARM_UP_S + 2 * seconds)
            self._console.print(_outlook(probed, rate, seconds), soft_wrap=True)
            warmed = load.send(WARM_UP, plan(WARM_UP, rate, WARM_UP_S), WARM_UP_S)
            load.send(BEFORE, plan(BEFORE, rate, seconds), seconds)
            after = load.send(AFTER, plan(AFTER, rate, seconds), seconds)
        remarks = _remarks(probed, warmed, after, seconds, rate)
        watched = self._ground.watched(SERVER, self._detection)
        return Live(
            replace(watched, remarks=remarks, seconds=seconds, busy=busy), self._log, again=self.again
        )

    def again(self, rewrite: Rewrite) -> None:
        """As in Live."""
        url = f"{self._serving.url}/reset_prefix_cache"  # or it would find what the first period left there
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30):  # noqa: S310 - ours
            pass
        with self._loaded() as load:
            load.expect(self._seconds)
            load.send(REWRITTEN, plan(REWRITTEN, self._rate, self._seconds, rewrite), self._seconds)

    @contextmanager
    def _loaded(self) -> Iterator[Load]:
        """Watched meanwhile; in the end everything of it is in the store."""
        chains = ChainSettings(str(TOKENIZER), capture=Capture.FULL)  # these prompts are nobody's
        options = AttachOptions(
            server=SERVER, log=self._log, label_fields=("session_id",), interval_s=0.5, chains=chains
        )
        stored, sink = Stored(lambda: connect(self._ground.dsn)), self._ground.pipeline.sink
        with Attachment(self._detection, options, sink, stored, hasher=self._ground.hasher):
            with Load(self._serving.url, self._log, self._console) as load:
                yield load
            self._ground.watched(SERVER, self._detection)
        self._ground.drain()


def _alone_s(probed: Summary) -> float:
    """Of a request without a cache and without company."""
    return probed.e2e_s.p50 if probed.e2e_s else 1.0


def _outlook(probed: Summary, rate: float, seconds: float) -> str:
    minutes = (WARM_UP_S + 3 * seconds + REPORT_S) / 60
    return (
        f"Without a cache a request takes {1000 * _alone_s(probed):.0f} ms here: {rate:g} requests a second for"
        f" {seconds:.0f} s, before the change, after it, and once more through the rewriter that is advised then. About"
        f" {minutes:.1f} minutes to go."
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
