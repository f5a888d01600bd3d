"""What `hitmap attach` runs, in a process that tells how full its queues were; for benchmarks.load.

    python -m benchmarks.load_pipeline DSN SPOOL SPOOL_LIMIT_MB INTERVAL_S PUBLISHED

reads what to attach to as a line of JSON, prints the addresses of its doors, collects until it reads another line,
takes what was published, writes what waits to the store and prints the highest marks, their bounds and counts.
PUBLISHED is the file of benchmarks.load_servers.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.load_gauges import EVERY_S, Gauges, Measured, bounds
from collector.attach import Attachment, AttachOptions, detect
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.otlp.http import OtlpHttpReceiver
from collector.pipeline import Pipeline
from collector.sink import Sink
from tests.collector.support import HASHER

SETTLE_S = 60.0  # for the last KV events, which nobody acknowledges
DRAIN_S = 120.0


def attach(
    told: dict[str, Any], interval_s: float, pipeline: Pipeline, sink: Sink, gauges: Gauges, stack: ExitStack
) -> None:
    """Attach to every server, the first ones with their KV events, of which there are some to catch up on."""
    for number, url in enumerate(told["urls"]):
        events, replay = told["kv"][number] if number < len(told["kv"]) else ("", "")
        options = AttachOptions(
            f"stub-{number}", kv_events=events, replay=replay, kv_bind=False, interval_s=interval_s
        )
        while (stats := pipeline.stats()).spool_bytes > stats.spool_limit_bytes / 2:
            time.sleep(EVERY_S)  # nothing is attached to while the spool is full
        gauges.attachments.append(stack.enter_context(Attachment(detect(url), options, sink, hasher=HASHER)))


def take_the_rest(gauges: Gauges) -> None:
    """Wait until every message that was published is taken, or for as long as that may take."""
    end = time.monotonic() + SETTLE_S
    while any(untaken for untaken, _ in gauges.kv_untaken()) and time.monotonic() < end:
        time.sleep(EVERY_S)


def counted(attachments: list[Attachment]) -> dict[str, Any]:
    """What the sources counted: together, and the good scrapes of each server."""
    sources: dict[str, Counter[str]] = {}
    good = []
    for attachment in attachments:
        for status in attachment.status():
            kind = " ".join(status.source.split()[:-1])
            sources.setdefault(kind, Counter()).update(status.counts)
            if kind == "metrics":
                counts = status.counts
                good.append(counts.get("scrapes", 0) - counts.get("failed", 0) - counts.get("refused", 0))
    return {"sources": sources, "good_scrapes": good}


def main() -> None:
    dsn, spool, limit_mb, interval_s = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    pipeline = Pipeline(dsn, spool, spool_limit_bytes=limit_mb << 20)
    sink = Measured(pipeline.sink)
    grpc = OtlpGrpcReceiver(sink, pipeline.tally, "127.0.0.1:0")
    http = OtlpHttpReceiver(sink, pipeline.tally, "127.0.0.1:0")
    with ExitStack() as stack:
        for door in (grpc, http):
            stack.callback(door.stop)
            door.start()
        told = json.loads(sys.stdin.readline())
        with Gauges(pipeline, grpc, http, Path(sys.argv[5])) as gauges:
            attach(told, interval_s, pipeline, sink, gauges, stack)
            print(json.dumps({"grpc": grpc.endpoint, "http": http.endpoint}), flush=True)
            sys.stdin.readline()
            take_the_rest(gauges)
    drained = pipeline.close(DRAIN_S)
    kinds = pipeline.tally.snapshot()
    report = {
        "highest": gauges.highest,
        "bounds": bounds(gauges, sink, limit_mb << 20, told["connections"]),
        **counted(gauges.attachments),
        "drained": drained,
        "accepted": {kind: tally.accepted for kind, tally in kinds.items()},
        "duplicates": {kind: tally.duplicates for kind, tally in kinds.items() if tally.duplicates},
        "rejected": {kind: tally.rejected for kind, tally in kinds.items() if tally.rejected},
        "retries": {kind: tally.retries for kind, tally in kinds.items() if tally.retries},
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
