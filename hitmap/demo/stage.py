"""What every demo stands on: a store, a collector and its door, all on free ports of loopback, ended together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cachemodel.content import ContentHasher
from cachemodel.errors import UserError
from collector.chains.key import installation_key
from collector.detection import Detection
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.pipeline import Pipeline
from store.client import connect
from store.embedded import ensure

SETTLE_S = 60.0
STILL_S = 2.0
_ENDLESS = ("samples", "series")  # scraped anew as long as the server lives


@dataclass(frozen=True)
class Watched:
    """A server whose telemetry went into a store. requests: rows in the end. remarks: what to know of the figures.
    seconds: of load that each side has, 0 of a recording. busy: processes that wanted a processor before the demo, for
    each there is; None where nobody tells."""

    dsn: str
    detection: Detection
    server: str
    requests: int
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0
    busy: float | None = None


@dataclass(frozen=True)
class Stage:
    """dsn: of the store; otlp: host:port where spans are received. hasher: with a key of this stage's own."""

    dsn: str
    pipeline: Pipeline
    otlp: str
    hasher: ContentHasher

    def watched(self, server: str, detection: Detection) -> Watched:
        """What has come in, once nothing more does."""
        self._settle()
        client = connect(self.dsn)
        rows = client.query("SELECT count() FROM requests").result_rows[0][0]
        client.close()
        return Watched(self.dsn, detection, server, int(rows))

    def drain(self) -> None:
        """Wait until what the watching gave up in the end, such as the last chains, is in the store."""
        deadline = time.monotonic() + SETTLE_S
        while any(self.pipeline.stats().pending.values()) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _settle(self) -> None:
        """Wait until what was sent has arrived in the store: nothing pending, and nothing new for some time."""
        deadline, still_since, before = time.monotonic() + SETTLE_S, time.monotonic(), -1
        while time.monotonic() < deadline:
            stats = self.pipeline.stats()
            written = sum(tally.written for kind, tally in stats.kinds.items() if kind not in _ENDLESS)
            if written != before or any(
                stats.pending.get(kind) for kind in stats.kinds if kind not in _ENDLESS
            ):
                still_since, before = time.monotonic(), written
            elif time.monotonic() - still_since > STILL_S:
                return
            time.sleep(0.1)
        pending = self.pipeline.stats().pending
        raise UserError(f"not everything reached the store within {SETTLE_S:.0f} s: {pending}")


@contextmanager
def stage(home: Path) -> Iterator[Stage]:
    """Start everything below `home`."""
    with ExitStack() as stack:
        store = stack.enter_context(ensure(home / "store"))
        pipeline = Pipeline(store.dsn, home / "spool")
        stack.callback(pipeline.close)
        receiver = OtlpGrpcReceiver(pipeline.sink, pipeline.tally, "127.0.0.1:0")
        receiver.start()
        stack.callback(receiver.stop)
        yield Stage(store.dsn, pipeline, receiver.endpoint, ContentHasher(installation_key(home / "key")))
