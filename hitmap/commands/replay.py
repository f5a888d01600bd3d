"""`hitmap replay`: a recording plays the part of a live server."""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress

from cachemodel.errors import UserError
from hitmap.signals import stopped_by_signals

if TYPE_CHECKING:
    from hitmap.replay.player import Player

_DOOR = "127.0.0.1:4317"  # of hitmap collect and attach, unless told otherwise
_LAST_LOOK_S = 1.0  # for those who follow the logs, before these go


@click.command()
@click.argument("folder", metavar="CAPTURE", type=click.Path(path_type=Path))
@click.option("--otlp", default=_DOOR, show_default=True, metavar="HOST:PORT", help="The collector.")
@click.option(
    "--http-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Of /metrics and /version. Default: any free one.",
)
@click.option(
    "--kv-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Of the KV-event publisher. Default: any free one.",
)
@click.option(
    "--replay-port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Of its replay socket. Default: any free one.",
)
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the request log grows and stays. Default: a file that goes with the command.",
)
@click.option(
    "--speed", default=1.0, show_default=True, type=click.FloatRange(0.01, 1000), help="2: in half the time."
)
@click.option(
    "--shift",
    type=click.Choice(["now", "none"]),
    default="now",
    show_default=True,
    help="Move all times so that the recording ends now, or keep them as recorded.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until somebody has attached.")
@click.option(
    "--linger",
    default=10.0,
    show_default=True,
    metavar="S",
    help="At the end, wait for what is left of /metrics until nobody has fetched it for so long.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the addresses, and the counts at the end, as JSON lines."
)
def command(
    folder: Path,
    otlp: str,
    http_port: int,
    kv_port: int,
    replay_port: int,
    log_file: Path | None,
    speed: float,
    shift: str,
    no_wait: bool,
    linger: float,
    as_json: bool,
) -> None:
    """Play a recorded CAPTURE through the ports a live server would use.

    OTLP bodies go to the collector by gRPC, /metrics is served over HTTP, KV events are published on a real socket with
    a replay socket beside it, and the request log grows in a file, the server's own log in one beside it. Request and
    span ids stay as recorded, so playing twice adds no request: what was played before moves to the times of the new
    play. With --shift none it adds no row anywhere, but for those of llama.cpp's /slots, which tell no time.
    """
    from hitmap.replay.capture import Capture
    from hitmap.replay.player import Player

    capture = Capture.read(folder)
    console = Console(stderr=True, highlight=False)
    with (
        stopped_by_signals() as stopping,
        _logs(log_file) as requests_log,
        Player(
            capture,
            otlp,
            requests_log,
            speed=speed,
            shift="none" if shift == "none" else "now",
            http_port=http_port,
            kv_port=kv_port,
            replay_port=replay_port,
            tell=lambda line: console.print(f"hitmap replay: {line}", soft_wrap=True, markup=False),
        ) as player,
    ):
        _introduce(player, console, otlp, as_json)
        while not no_wait and not stopping.is_set() and not player.wait_attached(0.5):
            pass
        with Progress(console=console, transient=True, disable=as_json) as bar:
            task = bar.add_task(f"playing {folder.name}")
            player.play(lambda done, total: bar.update(task, completed=done, total=total), stopping)
        if not no_wait:
            _wait_scraped(player, console, linger, stopping)
        counts = {**player.counts, "scrapes served": player.scrapes_served}
    if as_json:
        click.echo(json.dumps(counts))
    else:
        console.print(
            "played " + ", ".join(f"{count} {name}" for name, count in counts.items()), soft_wrap=True
        )
        console.print(
            "its ports are closed: attach finds nobody there any more and can be stopped", soft_wrap=True
        )
    if stopping.is_set():
        raise click.Abort


def _wait_scraped(player: Player, console: Console, linger_s: float, stopping: Event) -> None:
    """Until the last /metrics is fetched. Raises UserError where nobody asks for it any more."""
    if (left := player.texts_left) > 1:
        console.print(
            f"hitmap replay: {left} /metrics texts wait to be fetched, one at a time", soft_wrap=True
        )
    if player.wait_scraped(linger_s, stopping) or stopping.is_set():
        return
    raise UserError(
        f"{player.texts_left} of {player.counts['metrics texts']} /metrics texts were not fetched, as nobody asked for"
        f" {linger_s:g} s: the counters of the end are missing. Keep attach running with an --interval below that, or"
        " replay with a longer --linger"
    )


@contextmanager
def _logs(file: Path | None) -> Iterator[Path]:
    """The request log, with a folder of its own where nobody named one; that goes in the end."""
    if file:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="hitmap-replay-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "requests.jsonl"
        time.sleep(_LAST_LOOK_S)


def _introduce(player: Player, console: Console, otlp: str, as_json: bool) -> None:
    """Say where the ports are: as the command that attaches to them, its door where spans will be sent."""
    tokenizer = player.capture.tokenizer if player.capture.log else None
    addresses = {
        "url": player.url,
        "kv_events": player.kv_endpoint,
        "replay": player.replay_endpoint,
        "log": str(player.log_file),
        "server_log": str(player.server_log_file) if player.capture.server_log else "",
        "service": player.capture.service_name,
        "tokenizer": str(tokenizer.absolute()) if tokenizer else "",
    }
    if as_json:
        click.echo(json.dumps(addresses))
        return
    words = ["hitmap", "attach", player.url]
    if player.capture.kv:
        # A publisher at a concrete address connects, by vLLM's rule; this one binds.
        words += ["--kv-events", player.kv_endpoint, "--kv-connect", "--replay", player.replay_endpoint]
    if player.capture.log:
        words += ["--log", str(player.log_file.absolute())]
    if tokenizer:
        words += ["--tokenizer", str(tokenizer.absolute())]
    if player.capture.server_log:
        words += ["--server-log", str(player.server_log_file.absolute())]
    if interval_s := player.interval_s:
        words += ["--interval", f"{interval_s:.2g}"]
    if player.capture.service_name:
        words += ["--service", player.capture.service_name]
    if otlp != _DOOR:
        words += ["--otlp-grpc", otlp]
    console.print("In another terminal:", style="bold")
    console.print("  " + shlex.join(words), soft_wrap=True, markup=False)
