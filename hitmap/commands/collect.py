"""`hitmap collect`: receive OpenTelemetry from servers and write it to the store, until told to stop."""

from __future__ import annotations

import ipaddress
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
from collector.otlp import Limits, OtlpGrpcReceiver
from collector.otlp_check import DAY_S, Window
from collector.pipeline import Pipeline, Stats
from collector.writer import Flush
from hitmap.commands._store_option import store_option
from store.embedded import ensure, home

BASE_BYTES = 160 << 20  # the process without traffic, libraries included
LOG_EVERY_S = 10.0
DRAIN_S = 10.0


@click.command()
@click.option(
    "--otlp-grpc",
    "address",
    default="127.0.0.1:4317",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen for OTLP/gRPC. Port 0 takes any free one.",
)
@click.option(
    "--token",
    envvar="HITMAP_TOKEN",
    help="What senders must show as 'authorization: Bearer TOKEN' (or $HITMAP_TOKEN). Needed off loopback.",
)
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
    address: str,
    token: str | None,
    spool: Path | None,
    spool_limit: int,
    fsync: bool,
    max_age: int,
    store: str | None,
) -> None:
    """Receive OpenTelemetry (OTLP/gRPC: traces, metrics, logs) and write it to the store.

    What was acknowledged is on disk and reaches the store exactly once, whatever crashes in between.
    """
    require_token_off_loopback(address, token)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    console = Console(stderr=True, highlight=False)
    limits, flush = Limits(window=Window(max_age_s=max_age * DAY_S)), Flush()
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
        receiver = OtlpGrpcReceiver(pipeline.sink, pipeline.tally, address, limits=limits, token=token)
        stack.callback(receiver.stop)
        receiver.start()
        console.print(
            f"hitmap collect: OTLP/gRPC on {receiver.endpoint};"
            f" memory stays below {memory_bound(limits, flush) >> 20} MB, the spool below {spool_limit} MB",
            soft_wrap=True,
        )
        watch(pipeline, console, stopping)
        console.print("hitmap collect: stopping; what is not in the store yet stays in the spool")


def require_token_off_loopback(address: str, token: str | None) -> None:
    """Raise UsageError for an address others can reach without a token, or for one that is no HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{address!r} is no HOST:PORT, for example 127.0.0.1:4317")
    try:
        local = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        local = False
    if not local and not token:
        raise UsageError(f"{host} can be reached from other machines: set a --token that senders must show")


def memory_bound(limits: Limits, flush: Flush) -> int:
    """Bytes this process can take: at rest, requests in flight, one batch read, joined and sent."""
    return BASE_BYTES + limits.memory_bytes + 3 * (flush.max_bytes + limits.message_bytes)


def watch(pipeline: Pipeline, console: Console, stopping: threading.Event) -> None:
    """Show how things stand until `stopping` is set: one live line on a terminal, else a line now and then."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            while not stopping.wait(1.0):
                live.update(status_line(pipeline.stats()), refresh=True)
        return
    logged_at, last = time.monotonic(), ""
    while not stopping.wait(0.2):
        if time.monotonic() >= logged_at + LOG_EVERY_S:
            logged_at = time.monotonic()
            line = status_line(pipeline.stats())
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
