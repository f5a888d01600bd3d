"""What `hitmap attach` runs, in a process that tells how full its queues were; for benchmarks.load.

    python -m benchmarks.load_pipeline DSN SPOOL SPOOL_LIMIT_MB INTERVAL_S

reads what to attach to as a line of JSON, prints the addresses of its doors, collects until it reads another line,
writes what waits to the store and prints the highest marks and counts.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.running import rss_of
from collector.attach import Attachment, AttachOptions, detect
from collector.otlp import OtlpGrpcReceiver
from collector.otlp_http import BODIES, OtlpHttpReceiver
from collector.otlp_intake import Limits
from collector.pipeline import Pipeline
from collector.writer import Flush

BASE_BYTES = 160 << 20  # the process without traffic, libraries included
EVERY_S = 0.1
DRAIN_S = 120.0


class Gauges:
    """The highest value of each queue, looked at ten times a second."""

    def __init__(self, pipeline: Pipeline, grpc: OtlpGrpcReceiver, http: OtlpHttpReceiver) -> None:
        self.highest: dict[str, float] = {}
        self._pipeline, self._grpc, self._http = pipeline, grpc, http
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Gauges:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            for name, value in self._now().items():
                self.highest[name] = max(value, self.highest.get(name, 0))

    def _now(self) -> dict[str, float]:
        stats = self._pipeline.stats()
        return {
            "spool, bytes": stats.spool_bytes,
            **{f"rows waiting, {kind}": rows for kind, rows in stats.pending.items()},
            "HTTP bodies held, bytes": self._http.held_bytes,
            "HTTP requests under way": self._http.intake.under_way,
            "gRPC requests under way": self._grpc.intake.under_way,
            "threads": threading.active_count(),
            "open files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
            "resident memory, bytes": rss_of(os.getpid()),
        }


def attached(
    told: dict[str, Any], interval_s: float, pipeline: Pipeline, stack: ExitStack
) -> list[Attachment]:
    """Attach to every server, the first ones with their KV events."""
    attachments = []
    for number, url in enumerate(told["urls"]):
        events, replay = told["kv"][number] if number < len(told["kv"]) else ("", "")
        options = AttachOptions(
            f"stub-{number}", kv_events=events, replay=replay, kv_bind=False, interval_s=interval_s
        )
        attachments.append(stack.enter_context(Attachment(detect(url), options, pipeline.sink)))
    return attachments


def main() -> None:
    dsn, spool, limit_mb, interval_s = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    pipeline = Pipeline(dsn, spool, spool_limit_bytes=limit_mb << 20)
    grpc, http = (
        kind(pipeline.sink, pipeline.tally, "127.0.0.1:0") for kind in (OtlpGrpcReceiver, OtlpHttpReceiver)
    )
    with ExitStack() as stack, Gauges(pipeline, grpc, http) as gauges:
        for door in (grpc, http):
            stack.callback(door.stop)
            door.start()
        attachments = attached(json.loads(sys.stdin.readline()), interval_s, pipeline, stack)
        print(json.dumps({"grpc": grpc.endpoint, "http": http.endpoint}), flush=True)
        sys.stdin.readline()
    sources: dict[str, Counter[str]] = {"metrics": Counter(), "kv events": Counter()}
    for attachment in attachments:
        for status in attachment.status():
            sources[" ".join(status.source.split()[:-1])].update(status.counts)
    drained = pipeline.close(DRAIN_S)
    kinds = pipeline.tally.snapshot()
    report = {
        "highest": gauges.highest,
        "bounds": {
            "spool, bytes": limit_mb << 20,
            "HTTP bodies held, bytes": (BODIES + 1) * Limits().message_bytes,
            "resident memory, bytes": BASE_BYTES
            + grpc.memory_bytes
            + http.memory_bytes
            + 3 * Flush().max_bytes,
        },
        "sources": sources,
        "drained": drained,
        "accepted": {kind: tally.accepted for kind, tally in kinds.items()},
        "duplicates": {kind: tally.duplicates for kind, tally in kinds.items() if tally.duplicates},
        "rejected": {kind: tally.rejected for kind, tally in kinds.items() if tally.rejected},
        "retries": {kind: tally.retries for kind, tally in kinds.items() if tally.retries},
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
