"""Mixed load on a live engine for minutes: does anything stay behind? `python -m benchmarks.soak --seconds 600`

A real `hitmap engine serve` with small tiers, so that blocks move all the time, tells its doings to a real collector
and store. It gets requests of every kind, callers that leave in the middle of an answer, requests that are refused, and
faults that come and go. Between two rounds it is left at rest and looked at: what is then still held was leaked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from benchmarks.soak_look import Look, at_rest, look
from collector.attach import Attachment, AttachOptions, detect
from collector.resume import Stored
from hitmap.demo.engine_process import engine
from hitmap.demo.stage import stage
from hitmap.load import mix, run
from store.client import connect

ROUND_S = 30.0
OPTIONS = ("--device-blocks", "320", "--host-blocks", "256", "--disk-blocks", "512")
FAULTS = (
    "evict=0.5,every_s=2",
    "device_blocks=160",
    "layer=host,delay_ms=5,p=0.3",
    "layer=decode,slowdown=1.5",
    "lose_events=0.2",
)
REFUSED = (
    b"{",
    b"\xff\xfe",
    b'{"model": "demo", "messages": []}',
    b'{"model": "nobody", "messages": [{"role": "user", "content": "hello"}]}',
    b'{"model": "demo", "prompt": "' + b"too long " * 8000 + b'"}',
)


@dataclass
class Callers:
    """Those who do not behave, beside the load. did: what became of their requests."""

    url: str
    seconds: float
    seed: int

    def __post_init__(self) -> None:
        self.did: Counter[str] = Counter()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        draw, ends = random.Random(self.seed), time.monotonic() + self.seconds
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            while time.monotonic() < ends:
                group.create_task(self._leave(session, draw.randrange(12), draw.randrange(40)))
                group.create_task(self._refused(session, draw.choice(REFUSED)))
                await asyncio.sleep(draw.expovariate(3.0))

    async def _leave(self, session: aiohttp.ClientSession, pieces: int, topic: int) -> None:
        """Ask for a long answer and go after a few pieces of it, or before the first."""
        asked = {"role": "user", "content": f"Tell me all of topic {topic}. " + "And of its history. " * 30}
        body = {"model": "demo", "messages": [asked], "max_tokens": 200, "stream": True}
        async with session.post(f"{self.url}/v1/chat/completions", json=body) as answer:
            async for _ in answer.content:
                if pieces <= 0:
                    break
                pieces -= 1
        self.did["left"] += 1

    async def _refused(self, session: aiohttp.ClientSession, body: bytes) -> None:
        path = "completions" if b'"prompt"' in body else "chat/completions"
        headers = {"content-type": "application/json"}
        async with session.post(f"{self.url}/v1/{path}", data=body, headers=headers) as answer:
            await answer.read()
            self.did[f"refused {answer.status}"] += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second of the mix")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hitmap-soak-") as folder:
        looks, did, stored = _soak(Path(folder), options.seconds, options.rate)
    wrong = _verdict(looks, stored)
    if options.json:
        print(
            json.dumps({"looks": [vars(one) for one in looks], "did": did, "stored": stored, "wrong": wrong})
        )
    else:
        _show(looks, did, stored, wrong)
    sys.exit(bool(wrong))


def _soak(home: Path, seconds: float, rate: float) -> tuple[list[Look], Counter[str], int]:
    """Looks at the engine at rest, before the first round and after each; what was done; rows in the store."""
    log, did, looks = home / "requests.jsonl", Counter[str](), []
    log.write_bytes(b"")
    with stage(home) as ground:
        told = ["--otlp", ground.otlp, "--kv-events", "tcp://127.0.0.1:*", "--kv-replay", "tcp://127.0.0.1:*"]
        with engine(home / "engine.log", [*OPTIONS, *told]) as serving:
            detection = detect(serving.url, otlp=ground.otlp)
            watch = AttachOptions(server="soak", log=log)
            with Attachment(
                detection,
                watch,
                ground.pipeline.sink,
                Stored(lambda: connect(ground.dsn)),
                hasher=ground.hasher,
            ):
                ends, number = time.monotonic() + seconds, 0
                while time.monotonic() < ends:
                    did += _round(
                        serving.url, log, number, min(ROUND_S, max(5.0, ends - time.monotonic())), rate
                    )
                    at_rest(serving.url)
                    looks.append(look(serving))
                    number += 1
                    print(f"round {number}: {looks[-1].line}", file=sys.stderr, flush=True)
                watched = ground.watched("soak", detection)
    return looks, did, watched.requests


def _round(url: str, log: Path, number: int, seconds: float, rate: float) -> Counter[str]:
    """Load of every kind under one fault, and under none every other round."""
    if number % 2:
        _faults(url, "POST", FAULTS[number // 2 % len(FAULTS)])
    callers = Callers(url, seconds, number)
    thread = threading.Thread(target=callers.run)
    thread.start()
    plan = mix.plan(mix.DEFAULT, rate=rate, seed=number, clock=mix.CLOCKS[number % 3]).limited(seconds)
    summary = run(plan, url, log, {"phase": f"round-{number}"})
    thread.join()
    _faults(url, "DELETE")
    callers.did["completed"] += summary.completed
    callers.did.update({f"failed, {kind}": count for kind, count in summary.failed.items()})
    return callers.did


def _faults(url: str, method: str, spec: str = "") -> None:
    body, headers = spec.encode() or None, {"content-type": "text/plain"}
    asked = urllib.request.Request(f"{url}/v1/admin/faults", body, headers, method=method)
    urllib.request.urlopen(asked, timeout=10).close()


def _verdict(looks: list[Look], stored: int) -> list[str]:
    """What stayed behind. In the first half things may still grow: caches and pools fill, asyncio's pool of threads
    among them, which gets another one whenever none of it is idle. What grows in the second half as well is a leak."""
    wrong = [f"{one.held} blocks held at rest" for one in looks if one.held]
    wrong += [f"{one.unaccounted} blocks missing from the pool" for one in looks if one.unaccounted]
    half = looks[len(looks) // 2 :]
    if len(half) > 3:
        wrong += _grown(half)
    if stored != looks[-1].finished:
        wrong.append(f"{looks[-1].finished} requests ended, {stored} are in the store")
    return wrong


def _grown(looks: list[Look]) -> Iterator[str]:
    """What the last two looks have more of than the first two."""
    for what, unit, most in (
        ("rss_mb", "MB of memory", 32),
        ("fds", "open files", 2),
        ("threads", "threads", 0),
    ):
        first, last = (
            statistics.median(getattr(one, what) for one in two) for two in (looks[:2], looks[-2:])
        )
        if last - first > most:
            yield f"{unit} went from {first:.0f} to {last:.0f} in the second half"


def _show(looks: list[Look], did: Counter[str], stored: int, wrong: list[str]) -> None:
    table = Table("round", "ended", "RSS, MB", "files", "threads", "held blocks", "host", "disk", "preempted")
    for number, one in enumerate(looks, 1):
        figures = (one.finished, f"{one.rss_mb:.0f}", one.fds, one.threads, one.held)
        table.add_row(str(number), *map(str, (*figures, *one.far_blocks, one.preemptions)))
    console = Console(highlight=False)
    console.print(table)
    console.print("; ".join(f"{what}: {count:,}" for what, count in sorted(did.items())), soft_wrap=True)
    console.print(f"{looks[-1].finished:,} requests ended, {stored:,} are in the store")
    console.print("\n".join(wrong) or "nothing stayed behind", style="bold")


if __name__ == "__main__":
    main()
