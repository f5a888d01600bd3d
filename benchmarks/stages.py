"""What each stage of the ingest costs when it runs alone, in CPU microseconds a span."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.running import cpu_of, settle
from benchmarks.spans import SPANS_A_REQUEST, export_request
from collector.batch import Batch
from collector.finaliser import Finaliser
from collector.landing import Landing
from collector.otlp.check import Window, check_traces
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.sink import Entry
from collector.spool import Spool
from collector.tally import Tally
from store.client import connect
from store.embedded import ensure
from store.migrate import migrate

GROUP = 117  # requests a batch: what the writer takes at most when it is behind


class _Discard:
    def put(self, entries: Sequence[Entry]) -> int:
        return len(entries)


def stage_costs(requests: int) -> Iterator[tuple[str, float]]:
    """(stage, CPU us a span), in the order a span goes through them."""
    bodies = [export_request(10_000_000 + i) for i in range(requests)]
    spans = requests * SPANS_A_REQUEST
    work = Path(tempfile.mkdtemp(prefix="hitmap-stages-"))
    try:
        check = _cost(lambda: [check_traces(body, Window()) for body in bodies], spans)
        parse = ExportTraceServiceRequest.FromString
        yield "(for comparing machines: upb parse)", _cost(lambda: [parse(body) for body in bodies], spans)
        yield "gRPC receipt", _receipt(requests) - check
        yield "parse and check", check
        spool = Spool(work / "spool")
        yield (
            "spool: put",
            _cost(lambda: [spool.put([Entry("traces", b, SPANS_A_REQUEST)]) for b in bodies], spans),
        )
        yield "spool: read and delete", _cost(lambda: _drain(spool), spans)
        yield from _store_costs(work / "store", bodies)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _cost(work: Callable[[], object], spans: int) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) / spans * 1e6


def _receipt(requests: int) -> float:
    receiver = OtlpGrpcReceiver(_Discard(), Tally(), "127.0.0.1:0")
    receiver.start()
    sender = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.spans", receiver.endpoint, str(requests), "20000000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sender.stdout
    sender.stdout.readline()
    cost = _cost(lambda: sender.communicate("go\n"), requests * SPANS_A_REQUEST)
    receiver.stop()
    return cost


def _drain(spool: Spool) -> None:
    while batch := spool.seal("traces", GROUP * SPANS_A_REQUEST, 32 << 20):
        spool.payload(batch)
        spool.done(batch)


def _store_costs(directory: Path, bodies: list[bytes]) -> Iterator[tuple[str, float]]:
    spans = len(bodies) * SPANS_A_REQUEST
    with ensure(directory) as store:
        client = connect(store.dsn)
        migrate(client)
        client.command("SYSTEM STOP MERGES")
        landing, finaliser = Landing(client, "traces"), Finaliser(client)
        names = []
        ours, theirs = time.process_time(), cpu_of(store.pid)
        for first in range(0, len(bodies), GROUP):
            group = bodies[first : first + GROUP]
            batch = Batch(
                first, "traces", 0, 0, len(group), len(group) * SPANS_A_REQUEST, 0, f"stage-{first}"
            )
            landing.insert(batch, b"".join(group))
            names.append(batch.name)
        yield "send to the store", (time.process_time() - ours) / spans * 1e6
        yield "receive, parse, index and write", (cpu_of(store.pid) - theirs) / spans * 1e6
        theirs = cpu_of(store.pid)
        for name in names:
            finaliser.finalise("traces", name)
        yield "finaliser", (cpu_of(store.pid) - theirs) / spans * 1e6
        theirs = cpu_of(store.pid)
        client.command("SYSTEM START MERGES")
        settle(store.pid)
        yield "merges", (cpu_of(store.pid) - theirs) / spans * 1e6
        client.close()
