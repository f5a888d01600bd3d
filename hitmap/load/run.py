"""Runs a plan against a server: what `hitmap load` and the demo call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path

from hitmap.load.blocks import WORDS, Prompts, TextPrompts, TokenPrompts
from hitmap.load.client import Client, pick_model
from hitmap.load.plan import Plan
from hitmap.load.record import Log, checked_labels
from hitmap.load.sender import Progress, Sender
from hitmap.load.summary import Summary

_FEWEST_TOKENS = 64  # of fewer, too few different blocks can be made


def run(
    plan: Plan,
    url: str,
    log: Path | None = None,
    labels: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    *,
    model: str = "",
    api_key: str = "",
    max_in_flight: int = 256,
    timeout_s: float = 120.0,
    traceparent: bool = False,
    stopping: threading.Event | None = None,
) -> Summary:
    """Send `plan` to the OpenAI-compatible server at `url` and wait for the answers.

    log: JSONL file to which a line for every request is added. labels: fields of those lines. progress: called some
    times a second with the seconds since the start and the counts so far. model: the server's first by default.
    timeout_s: of one request. traceparent: begin a sampled trace with every request. stopping: ends it early. Raises
    UserError at once where no such server answers.
    """

    fields, stop = checked_labels(labels or {}), stopping or threading.Event()

    async def load() -> Summary:
        async with Client(url, api_key=api_key, timeout_s=timeout_s) as client:
            models = await client.models()
            sender = Sender(
                client=client,
                log=opened,
                model=pick_model(models, model, client.url),
                models=frozenset() if model else frozenset(models),
                labels=fields,
                max_in_flight=max_in_flight,
                traceparent=traceparent,
                progress=progress,
                stopping=stop,
            )
            wall_s = await sender.send(plan)
            return sender.tally.summary(plan.name, schedule, wall_s, stop.is_set())

    with Log(log) as opened:
        schedule = plan.schedule()
        return asyncio.run(load())


def prompts(url: str, *, model: str = "", api_key: str = "", seed: int = 0) -> Prompts:
    """How to write prompts of given lengths for the server at `url`: as token ids where it tokenizes a text for us (so
    that they are ordinary tokens of its model), else as words. Raises UserError where no such server answers."""

    async def vocabulary() -> list[int]:
        async with Client(url, api_key=api_key) as client:
            name = pick_model(await client.models(), model, client.url)
            return sorted(set(await client.tokenize(name, " ".join(WORDS))))

    ids = asyncio.run(vocabulary())
    return TokenPrompts(ids, seed) if len(ids) >= _FEWEST_TOKENS else TextPrompts(seed)
