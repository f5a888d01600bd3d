"""`hitmap up`: the store, the collector and every server of the configuration file, until told to stop."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from cachemodel.errors import UserError
from cachemodel.printable import printable
from collector.attach import AttachOptions
from collector.chains.memory import ChainMemory
from collector.chains.settings import ChainSettings
from collector.detection import Detection
from collector.joining import Joining
from collector.pipeline import Pipeline
from collector.resume import Stored
from hitmap.config.load import DEFAULT_NAME, load
from hitmap.config.model import CollectorConfig, Config, ServerConfig
from hitmap.config.words import as_settings
from hitmap.doors import Doors
from hitmap.session import Watched, run, snapshots


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="HITMAP_CONFIG",
    help=f"Configuration file (or $HITMAP_CONFIG). Default: {DEFAULT_NAME} where there is one, else all defaults.",
)
def command(file: Path | None) -> None:
    """Run everything: the store, the doors for OpenTelemetry, and a watch on every server of the file.

    \b
      hitmap config example > hitmap.yaml
      hitmap up

    A server that is down is looked for until it answers. What was accepted is kept through crashes and restarts.
    """
    config = load(file or Path(DEFAULT_NAME)) if file or Path(DEFAULT_NAME).exists() else Config()
    hasher, memory = config.collector.hasher, ChainMemory()
    console = Console(stderr=True, highlight=False)

    def found(server: str, detection: Detection) -> None:
        seen = sum(capability.seen is True for capability in detection.capabilities)
        version = detection.version or "(unknown version)"
        line = (
            f"hitmap up: {server} is {detection.kind} {version}, {seen} of {len(detection.capabilities)} signals seen;"
            f" hitmap attach {detection.url} --check names the rest"
        )
        console.print(printable(line), soft_wrap=True, markup=False)

    def servers(pipeline: Pipeline, stored: Stored | None, doors: Doors) -> list[Watched]:
        return [
            Joining(
                server.url,
                options(name, server, config.collector),
                pipeline.sink,
                stored,
                hasher=hasher,
                snapshots=snapshots(),
                memory=memory,
                otlp=doors.address,
                found=found,
            )
            for name, server in config.servers.items()
        ]

    try:
        run("hitmap up", config.store, config.collector, console, servers, as_settings)
    except UserError as error:
        raise type(error)(as_settings(str(error))) from None


def options(name: str, server: ServerConfig, collector: CollectorConfig) -> AttachOptions:
    """How a server of the file is watched."""
    return AttachOptions(
        server=name,
        services=server.services,
        kv_events=server.kv_events,
        replay=server.replay,
        kv_bind=server.kv_bind,
        kv_ranks=server.kv_ranks,
        log=server.log,
        server_log=server.server_log,
        drain=server.drain,
        label_fields=server.label_fields,
        interval_s=server.interval,
        api_key=server.api_key.get_secret_value() if server.api_key else "",
        window=collector.window,
        chains=ChainSettings(server.tokenizer, server.block_size, collector.capture),
    )
