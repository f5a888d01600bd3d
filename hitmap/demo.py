"""The whole path on a recording: store, collector, a played server, its attachment, and the report at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Detection
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.pipeline import Pipeline
from collector.resume import Stored
from hitmap.replay.capture import Capture
from hitmap.replay.player import Player, Shift
from store.client import connect
from store.embedded import ensure

SETTLE_S = 60.0


@dataclass(frozen=True)
class Played:
    """A capture that went through the ports into a store. requests: rows in the end."""

    dsn: str
    detection: Detection
    server: str
    requests: int


@contextmanager
def played(
    folder: Path, home: Path, *, speed: float, shift: Shift = "now", with_log: bool = True, console: Console
) -> Iterator[Played]:
    """Play the capture in `folder` into a store below `home` by every way a live server would be watched.

    Everything it starts listens on free ports of loopback and ends with the context. Raises UserError.
    """
    with ExitStack() as stack:
        store = stack.enter_context(ensure(home / "store"))
        pipeline = Pipeline(store.dsn, home / "spool")
        stack.callback(pipeline.close)
        receiver = OtlpGrpcReceiver(pipeline.sink, pipeline.tally, "127.0.0.1:0")
        receiver.start()
        stack.callback(receiver.stop)
        log = home / "requests.jsonl"
        log.write_bytes(b"")
        player = stack.enter_context(
            Player(Capture.read(folder), receiver.endpoint, log, speed=speed, shift=shift)
        )
        server = player.capture.service_name
        detection = detect(player.url, otlp=receiver.endpoint)
        options = AttachOptions(
            server=server,
            services=(server,),
            kv_events=player.kv_endpoint,
            replay=player.replay_endpoint,
            kv_bind=False,
            log=log if with_log else None,
            interval_s=0.2,
        )
        stored = Stored(lambda: connect(store.dsn))
        with Attachment(detection, options, pipeline.sink, stored):
            if not player.wait_attached(20):
                raise UserError("the attachment did not reach the played server within 20 s")
            with Progress(console=console, transient=True) as bar:
                task = bar.add_task(f"playing {len(player.capture.items)} recorded messages")
                player.play(lambda done, total: bar.update(task, completed=done, total=total))
            player.wait_scraped(5)
            _settle(pipeline)
        client = connect(store.dsn)
        rows = client.query("SELECT count() FROM requests").result_rows[0][0]
        client.close()
        yield Played(store.dsn, detection, server, int(rows))


def _settle(pipeline: Pipeline) -> None:
    """Wait until what was sent has arrived in the store: nothing pending, and nothing new for a second."""
    deadline, still_since, before = time.monotonic() + SETTLE_S, time.monotonic(), -1
    while time.monotonic() < deadline:
        stats = pipeline.stats()
        written = sum(tally.written for tally in stats.kinds.values())
        if written != before or stats.pending:
            still_since, before = time.monotonic(), written
        elif time.monotonic() - still_since > 1.0:
            return
        time.sleep(0.1)
    raise UserError(f"not everything reached the store within {SETTLE_S:.0f} s: {pipeline.stats().pending}")
