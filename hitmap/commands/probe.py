"""`hitmap probe`: watch a server's processes and GPUs from beside it, and tell an OTLP collector."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import click
from rich.console import Console

from cachemodel.errors import UsageError

if TYPE_CHECKING:
    from probes.daemon.loop import Sink
    from probes.daemon.sensors import Wanted

_ENDPOINT = "127.0.0.1:4317"
_ENVIRONMENT = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SENSORS = ("kernel", "pmu", "gpu", "cupti")
_OF_HOST = {"gpu", "cupti"}


@click.command()
@click.option(
    "--pid", "pids", type=click.IntRange(min=1), multiple=True, help="This process and what it starts."
)
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="Whoever listens there, now and later.",
)
@click.option("--all", "everything", is_flag=True, help="All processes of this host, the busiest 128.")
@click.option("--kernel", is_flag=True, help="Page faults, TLB flushes, switches, CPU time, memory.")
@click.option("--pmu", is_flag=True, help="Misses of L1d, last-level cache and dTLB, cycles, instructions.")
@click.option(
    "--gpu", is_flag=True, help="Memory, caches, links, pipes and clocks of NVIDIA GPUs (NVML, GPM)."
)
@click.option(
    "--cupti", is_flag=True, help="L1, L2 and tensor counters of GPUs, in bursts of 100 ms every 10 s."
)
@click.option(
    "--waits", is_flag=True, help="Waits for locks and off-CPU time, which cost more than faults do."
)
@click.option("--threads", is_flag=True, help="By thread, too.")
@click.option(
    "--hz", type=click.FloatRange(0.1, 100), default=10.0, show_default=True, help="Readings a second."
)
@click.option(
    "--server", default="", metavar="NAME", help="The server's name in the store, where its port tells none."
)
@click.option(
    "--to",
    "endpoint",
    metavar="HOST:PORT",
    help=f"The collector: OTLP over gRPC, at port 4318 over HTTP. Default: ${_ENVIRONMENT[1]} or {_ENDPOINT}.",
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent along, as in authorization=..."
)
@click.option(
    "--duration", type=click.FloatRange(min=0, min_open=True), metavar="S", help="End after so long."
)
@click.option("--json", "as_json", is_flag=True, help="Print the points as JSON lines, and send nothing.")
def command(
    pids: tuple[int, ...],
    ports: tuple[int, ...],
    everything: bool,
    hz: float,
    server: str,
    endpoint: str | None,
    headers: tuple[str, ...],
    duration: float | None,
    as_json: bool,
    **flags: bool,
) -> None:
    """Count page faults, TLB flushes, CPU cache misses and GPU counters beside a server.

    \b
      sudo hitmap probe --port 8000                  # the server on that port, with its workers: all that there is
      hitmap probe --pid 4711 --kernel               # as an ordinary user: what /proc and perf tell
      hitmap probe --gpu --to collector:4317         # this host's GPUs alone
      sudo hitmap probe --all --kernel --json | jq   # to look at, without a collector

    The server needs no change and no restart. hitmap trace and the page Request show what was counted while a request
    ran; hitmap doctor says what this host can tell, and what would open the rest.
    """
    from hitmap.probing import introduced, run
    from probes.daemon.loop import Daemon, Watch
    from probes.daemon.sensors import opened
    from probes.daemon.targets import Asked, Targets

    chosen = {name for name in _SENSORS if flags[name]}
    _check(bool(pids or ports), everything, chosen)
    targets = Targets(Asked(pids, ports, everything, server), version("hitmap"))
    targets.refresh()
    sink, where = _sink(endpoint, headers, as_json)
    found = list(opened(_wanted(chosen, flags, hz), targets.pids))
    watches = [one for one in found if isinstance(one, Watch)]
    gaps = [one for one in found if not isinstance(one, Watch)]
    console = Console(stderr=True, highlight=False)
    console.print(introduced(targets.resources(), everything, hz, where), markup=False)
    run(Daemon(watches, targets, sink), gaps, console, duration)


def _check(named: bool, everything: bool, chosen: set[str]) -> None:
    if named and everything:
        raise UsageError("--all watches every process: leave --pid and --port out")
    if not named and not everything and not (chosen and chosen <= _OF_HOST):
        raise UsageError("say whom: --pid 4711, --port 8000 or --all; --gpu alone watches this host's GPUs")


def _wanted(chosen: set[str], flags: Mapping[str, bool], hz: float) -> Wanted:
    """Sensors: those that are named, or all that cost a server nothing."""
    from probes.daemon.sensors import Wanted

    on = {name: name in chosen or (not chosen and name != "cupti") for name in _SENSORS}
    return Wanted(**on, threads=flags["threads"], waits=flags["waits"], every_s=1 / hz)


def _sink(endpoint: str | None, headers: Sequence[str], as_json: bool) -> tuple[Sink, str]:
    """Where points go, and that in words. Raises UsageError for a header that is none, UserError for an address."""
    from probes.daemon.lines import Lines
    from probes.daemon.otlp import open_channel
    from probes.daemon.sender import Sender

    if as_json:
        return Lines(sys.stdout), "standard output"
    told = endpoint or next(filter(None, map(os.environ.get, _ENVIRONMENT)), _ENDPOINT)
    pairs = dict(header.partition("=")[::2] for header in headers)
    if not all(pairs) or not all(pairs.values()):
        raise UsageError("--header is NAME=VALUE")
    return Sender(open_channel(told, pairs), version("hitmap")), told
