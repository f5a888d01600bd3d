"""`hitmap collect`: receive OpenTelemetry from servers and write it to the store, until told to stop."""

from __future__ import annotations

import click
from rich.console import Console

from cachemodel.errors import UsageError
from hitmap.commands._collector_options import collector_options, store_config
from hitmap.commands._store_option import store_option
from hitmap.config.model import OFF, CollectorConfig
from hitmap.session import run


@click.command()
@collector_options
@store_option
def command(collector: CollectorConfig, store: str | None) -> None:
    """Receive OpenTelemetry (OTLP over gRPC and HTTP: traces, metrics, logs) and write it to the store.

    What was acknowledged is on disk and reaches the store exactly once, whatever crashes in between.
    """
    if collector.otlp_grpc == collector.otlp_http == OFF:
        raise UsageError("both doors are off: there would be nothing to receive")
    run("hitmap collect", store_config(store), collector, Console(stderr=True, highlight=False))
