"""The demo on a recording: a played server, its attachment, and what came in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.chains.settings import ChainSettings
from collector.resume import Stored
from hitmap.demo.stage import Watched, stage
from hitmap.replay.capture import Capture
from hitmap.replay.player import Player, Shift
from store.client import connect


@contextmanager
def played(
    folder: Path, home: Path, *, speed: float, shift: Shift = "now", with_log: bool = True, console: Console
) -> Iterator[Watched]:
    """Play the capture in `folder` into a store below `home` by every way a live server would be watched.

    Everything it starts ends with the context. Raises UserError.
    """
    log = home / "requests.jsonl"
    with stage(home) as ground:
        log.write_bytes(b"")
        with Player(Capture.read(folder), ground.otlp, log, speed=speed, shift=shift) as player:
            server = player.capture.service_name
            detection = detect(player.url, otlp=ground.otlp)
            options = AttachOptions(
                server=server,
                services=(server,),
                kv_events=player.kv_endpoint,
                replay=player.replay_endpoint,
                kv_bind=False,
                log=log if with_log else None,
                interval_s=0.2,
                chains=ChainSettings(str(player.capture.tokenizer or "")),
            )
            stored = Stored(lambda: connect(ground.dsn))
            with Attachment(detection, options, ground.pipeline.sink, stored, hasher=ground.hasher):
                _play(player, console)
                watched = ground.watched(server, detection)
            ground.drain()
            yield watched


def _play(player: Player, console: Console) -> None:
    if not player.wait_attached(20):
        raise UserError("the attachment did not reach the played server within 20 s")
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"playing {len(player.capture.items)} recorded messages")
        player.play(lambda done, total: bar.update(task, completed=done, total=total))
    if not player.wait_scraped(5):
        raise UserError(f"{player.texts_left} of the recording's /metrics texts were not fetched: try again")
