"""`hitmap probe`: watch a server's processes and GPUs from beside it, and tell an OTLP collector."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import click

from cachemodel.errors import UsageError, UserError

if TYPE_CHECKING:
    from probes.daemon.loop import Sink
    from probes.daemon.sensors import Wanted

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
    help="Whoever listens there now, and after its restarts.",
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
    metavar="HOST:PORT",
    help="The collector: OTLP over gRPC, at port 4318 or with a path over HTTP; https:// for TLS. "
    "Default: OpenTelemetry's variables (OTEL_EXPORTER_OTLP_ENDPOINT), or 127.0.0.1:4317.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Sent along, as in authorization='Bearer TOKEN'; OTEL_EXPORTER_OTLP_HEADERS keeps it out of ps.",
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
    to: str | None,
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
    from hitmap.probing import grouped, run
    from probes.daemon.loop import Daemon, Watch
    from probes.daemon.sensors import opened
    from probes.daemon.targets import Asked, Targets

    chosen = {name for name in _SENSORS if flags[name]}
    _check(bool(pids or ports), everything, chosen)
    targets = Targets(Asked(pids, ports, everything, server), version("hitmap"))
    sink, where = _sink(to, headers, as_json)
    try:
        found = list(opened(_wanted(chosen, flags, hz), targets.pids))
    except OSError as error:  # even Python's own files cannot be opened
        raise UserError(
            f"the sensors cannot be opened: {error.strerror} (ulimit -n says how many may be)"
        ) from None
    watches = [one for one in found if isinstance(one, Watch)]
    gaps = [one for one in found if not isinstance(one, Watch)]
    if not watches:
        raise UserError(f"nothing can be watched: {'; '.join(grouped(gaps))}")
    if not run(Daemon(watches, targets, sink), gaps, where, hz, duration):
        raise UserError(f"no point reached {where}: is a collector there?")


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


def _sink(to: str | None, headers: Sequence[str], as_json: bool) -> tuple[Sink, str]:
    """Where points go, and that in words. Raises UserError for an address or a header that is none."""
    if as_json:
        from probes.daemon.lines import Lines

        return Lines(sys.stdout), "standard output"
    from probes.daemon.channel import open_channel
    from probes.daemon.endpoint import endpoint
    from probes.daemon.sender import Sender

    where = endpoint(to, headers, os.environ)
    return Sender(open_channel(where), version("hitmap")), where.told
