"""`hitmap collect`: receive OpenTelemetry from servers and write it to the store, until told to stop."""

from __future__ import annotations

import logging
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from cachemodel.errors import UsageError
from collector.otlp_check import DAY_S, Window
from collector.otlp_intake import Limits
from collector.pipeline import Pipeline, Stats
from collector.writer import Flush
from hitmap.commands._otlp_doors import OFF, DoorOptions, Doors, door_options
from hitmap.commands._store_option import store_option
from store.embedded import ensure, home

BASE_BYTES = 160 << 20  # the process without traffic, libraries included
LOG_EVERY_S = 10.0
DRAIN_S = 10.0


@click.command()
@door_options
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for what is accepted and not yet in the store. Default: spool/ in $HITMAP_HOME.",
)
@click.option(
    "--spool-limit",
    default=1024,
    show_default=True,
    metavar="MB",
    type=click.IntRange(min=1),
    help="When this much waits, senders are asked to try again later.",
)
@click.option(
    "--fsync", is_flag=True, help="Flush the disk before each acknowledgement: safe against power cuts too."
)
@click.option(
    "--max-age",
    default=400,
    show_default=True,
    metavar="DAYS",
    type=click.IntRange(min=1),
    help="Refuse what is older.",
)
@store_option
def command(
    doors: DoorOptions,
    spool: Path | None,
    spool_limit: int,
    fsync: bool,
    max_age: int,
    store: str | None,
) -> None:
    """Receive OpenTelemetry (OTLP over gRPC and HTTP: traces, metrics, logs) and write it to the store.

    What was acknowledged is on disk and reaches the store exactly once, whatever crashes in between.
    """
    if set(doors.addresses.values()) == {OFF}:
        raise UsageError("both doors are off: there would be nothing to receive")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    console = Console(stderr=True, highlight=False)
    flush = Flush()
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with ExitStack() as stack:

        def embedded_dsn() -> str:
            return stack.enter_context(ensure()).dsn

        pipeline = Pipeline(
            store or embedded_dsn,
            spool or home() / "spool",
            spool_limit_bytes=spool_limit << 20,
            fsync=fsync,
            flush=flush,
        )
        stack.callback(pipeline.close, DRAIN_S)
        opened = doors.open(pipeline, Window(max_age_s=max_age * DAY_S), stack)
        doors.require(opened)
        console.print(
            f"hitmap collect: {opened}; memory stays below {memory_bound(opened, flush) >> 20} MB,"
            f" the spool below {spool_limit} MB",
            soft_wrap=True,
        )
        for error in opened.closed.values():
            console.print(f"hitmap collect: {error}", soft_wrap=True)
        watch(pipeline, opened, console, stopping)
        console.print("hitmap collect: stopping; what is not in the store yet stays in the spool")


def memory_bound(doors: Doors, flush: Flush) -> int:
    """Bytes this process can take: at rest, requests under way, one batch read, joined and sent."""
    return BASE_BYTES + doors.memory_bytes + 3 * (flush.max_bytes + Limits().message_bytes)


def watch(pipeline: Pipeline, doors: Doors, console: Console, stopping: threading.Event) -> None:
    """Show how things stand until `stopping` is set: one live line on a terminal, else a line now and then."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            while not stopping.wait(1.0):
                live.update(status_line(pipeline.stats()) + doors.text_note(), refresh=True)
        return
    logged_at, last = time.monotonic(), ""
    while not stopping.wait(0.2):
        if time.monotonic() >= logged_at + LOG_EVERY_S:
            logged_at = time.monotonic()
            line = status_line(pipeline.stats()) + doors.text_note()
            if line != last:
                console.print(line, soft_wrap=True)
            last = line


def status_line(stats: Stats) -> str:
    """One line: what was accepted, written, refused and what waits."""
    parts = []
    for kind, tally in sorted(stats.kinds.items()):
        part = f"{kind}: {tally.written:,} written of {tally.accepted:,}"
        if tally.duplicates:
            part += f", {tally.duplicates:,} repeated"
        if tally.rejected:
            reasons = ", ".join(f"{rows:,} x {reason}" for reason, rows in tally.rejected.items())
            part += f", refused {reasons}"
        if tally.last_error:
            part += f", waiting: {tally.last_error}"
        parts.append(part)
    used = stats.spool_bytes / stats.spool_limit_bytes
    return "; ".join(parts or ["nothing received yet"]) + f"; spool {used:.0%} full"
