"""`hitmap config`: check a configuration file, or print one to start from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hitmap.config.example import example
from hitmap.config.load import DEFAULT_NAME, load
from hitmap.config.model import Config


@click.group()
def command() -> None:
    """The one file that `hitmap up` reads.

    \b
      hitmap config example > hitmap.yaml
      hitmap config check
    """


@command.command("example")
def example_command() -> None:
    """Print a file with every setting, its default and its meaning."""
    click.echo(example(), nl=False)


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path), default=DEFAULT_NAME)
@click.option(
    "--json", "as_json", is_flag=True, help="Print what is in force, defaults included; secrets as stars."
)
def check(file: Path, as_json: bool) -> None:
    """Say what is wrong with FILE (hitmap.yaml), each mistake with its line.

    Exit code 0 if nothing is, 2 if something is. No server is asked: `hitmap attach URL --check` does that.
    """
    config = load(file)
    click.echo(
        json.dumps(config.model_dump(mode="json"), indent=2) if as_json else f"{file}: {summary(config)}"
    )


def summary(config: Config) -> str:
    """What a configuration amounts to, in a line."""
    store = "a ClickHouse server" if config.store.dsn else "the embedded store"
    servers = ", ".join(config.servers) or "no servers, only what is sent here"
    listening = ", ".join(
        f"{name} on {address}"
        for name, address in (
            ("OTLP/gRPC", config.collector.otlp_grpc),
            ("OTLP/HTTP", config.collector.otlp_http),
        )
        if address != "off"
    )
    return f"good; watches {servers}; {listening or 'no OTLP'}; {store}"
