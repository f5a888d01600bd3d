"""`hitmap attach`: find out what live servers tell, show it, then collect it until told to stop."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from cachemodel.address import bearer_key, server_url
from cachemodel.errors import UsageError, UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.chains.memory import ChainMemory
from collector.chains.settings import ChainSettings
from collector.detection import Detection
from collector.pipeline import Pipeline
from collector.resume import Stored
from hitmap.commands._collector_options import collector_options, store_config
from hitmap.commands._detection_view import as_dict, table, unreachable
from hitmap.commands._store_option import store_option
from hitmap.config.model import OFF, CollectorConfig, tokenizer_setting
from hitmap.doors import Doors
from hitmap.session import run, snapshots

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.+)", re.DOTALL)


@click.command()
@click.argument("servers", nargs=-1, required=True, metavar="[NAME=]URL...")
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="[NAME=]SERVICE",
    help="The service.name in its spans. Default: as the server says.",
)
@click.option(
    "--kv-events", multiple=True, metavar="[NAME=]ENDPOINT", help="Its KV events, as in --kv-events-config."
)
@click.option("--replay", "replays", multiple=True, metavar="[NAME=]ENDPOINT", help="Its replay_endpoint.")
@click.option(
    "--kv-bind/--kv-connect",
    default=None,
    help="Who binds the endpoint: hitmap or the server. Default: vLLM's rule.",
)
@click.option(
    "--kv-ranks",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1024),
    help="Data-parallel ranks, one port each.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="JSONL log of its responses, followed as it grows.",
)
@click.option(
    "--server-log",
    "server_logs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="The server's own log, followed as it grows.",
)
@click.option(
    "--drain",
    is_flag=True,
    help="Also read endpoints that are empty once read (TensorRT-LLM): nobody else gets what hitmap reads there.",
)
@click.option(
    "--label-field",
    "label_fields",
    multiple=True,
    metavar="FIELD",
    help="Field of the log to keep as a label.",
)
@click.option(
    "--tokenizer",
    "tokenizers",
    multiple=True,
    metavar="[NAME=]HOW",
    help="Of the prompts in the log: server, the path of its model folder or tokenizer.json, approximate, or off."
    " Default: server, if it will.",
)
@click.option(
    "--block-size",
    "block_sizes",
    multiple=True,
    metavar="[NAME=]TOKENS",
    help="Of a block. Default: as the server says.",
)
@click.option(
    "--interval",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.05, 3600),
    metavar="S",
    help="Seconds between scrapes.",
)
@click.option(
    "--api-key",
    envvar="HITMAP_API_KEY",
    default="",
    help="Bearer token that the servers want (or $HITMAP_API_KEY).",
)
@collector_options
@click.option(
    "--check", is_flag=True, help="Show what the servers tell and stop. Exit code 0 if all can be reached."
)
@click.option("--json", "as_json", is_flag=True, help="With --check: as JSON.")
@store_option
def command(
    servers: tuple[str, ...],
    services: tuple[str, ...],
    kv_events: tuple[str, ...],
    replays: tuple[str, ...],
    kv_bind: bool | None,
    kv_ranks: int,
    logs: tuple[str, ...],
    server_logs: tuple[str, ...],
    drain: bool,
    label_fields: tuple[str, ...],
    tokenizers: tuple[str, ...],
    block_sizes: tuple[str, ...],
    interval: float,
    api_key: str,
    collector: CollectorConfig,
    check: bool,
    as_json: bool,
    store: str | None,
) -> None:
    """Watch live LLM servers: what each tells, what it does not, and the flag that opens the rest.

    \b
      hitmap attach http://127.0.0.1:8000 --check
      hitmap attach blue=http://10.0.0.1:8000 green=http://10.0.0.2:8000 --log green=requests.jsonl

    A server goes by NAME, or by its host and port. With several servers, other options say which one they mean.
    """
    if as_json and not check:
        raise UsageError("--json goes with --check")
    urls = server_names(servers)
    of = {
        option: by_server(values, list(urls), option)
        for option, values in (
            ("--service", services),
            ("--kv-events", kv_events),
            ("--replay", replays),
            ("--log", logs),
            ("--server-log", server_logs),
            ("--tokenizer", tokenizers),
            ("--block-size", block_sizes),
        )
    }
    options = [
        AttachOptions(
            server=name,
            services=tuple(of["--service"][name]),
            kv_events=_single(of["--kv-events"][name], "--kv-events"),
            replay=_single(of["--replay"][name], "--replay"),
            kv_bind=kv_bind,
            kv_ranks=kv_ranks,
            log=_path(of["--log"][name], "--log"),
            server_log=_path(of["--server-log"][name], "--server-log"),
            drain=drain,
            label_fields=label_fields,
            interval_s=interval,
            api_key=bearer_key(api_key),
            window=collector.window,
            chains=ChainSettings(
                _tokenizer(_single(of["--tokenizer"][name], "--tokenizer")),
                _tokens(_single(of["--block-size"][name], "--block-size")),
                collector.capture,
            ),
        )
        for name in urls
    ]
    if check:
        wanted = (address for address in (collector.otlp_grpc, collector.otlp_http) if address != OFF)
        detect_all(urls, options, next(wanted, CollectorConfig().otlp_grpc), as_json)
        return
    for url in urls.values():
        detect(url, api_key=api_key)  # what cannot be attached is said before anything is started

    hasher, memory = collector.hasher, ChainMemory()

    def attachments(pipeline: Pipeline, stored: Stored | None, doors: Doors) -> list[Attachment]:
        detections = detect_all(urls, options, doors.address, as_json)
        pairs = zip(detections, options, strict=True)
        return [
            Attachment(
                detection, option, pipeline.sink, stored, hasher=hasher, snapshots=snapshots(), memory=memory
            )
            for detection, option in pairs
        ]

    run("hitmap attach", store_config(store), collector, Console(stderr=True, highlight=False), attachments)


def server_names(servers: Sequence[str]) -> dict[str, str]:
    """URL by name, from `NAME=URL` or `URL`."""
    urls: dict[str, str] = {}
    for server in servers:
        named = _NAMED.fullmatch(server)
        url = server_url(named[2] if named else server)
        name = named[1] if named else url.partition("://")[2]
        if url in urls.values():
            raise UsageError(f"{url} is given twice: everything it tells would count twice")
        if name in urls:
            raise UsageError(f"two servers are called {name}: give them names, as in blue={url}")
        urls[name] = url
    return urls


def by_server(values: Sequence[str], names: Sequence[str], option: str) -> dict[str, list[str]]:
    """Values of an option by the server they are for; the name may be left out where there is one server only."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for value in values:
        named = _NAMED.fullmatch(value)
        if named and named[1] in found:
            found[named[1]].append(named[2])
        elif named and not Path(value).exists():
            raise UsageError(f"{option} {value}: no server is called {named[1]}; there is {', '.join(names)}")
        elif len(names) == 1:
            found[names[0]].append(value)
        else:
            raise UsageError(f"which server is {option} {value} for? Write {option} {names[0]}={value}")
    return found


def _single(values: list[str], option: str) -> str:
    if len(values) > 1:
        raise UsageError(f"{option} is given twice for one server")
    return values[0] if values else ""


def _tokenizer(value: str) -> str:
    try:
        return tokenizer_setting(value)
    except ValueError as error:
        raise UsageError(f"--tokenizer: {error}") from None


def _tokens(value: str) -> int | None:
    if value and not (value.isascii() and value.isdigit() and 0 < int(value) <= 65536):
        raise UsageError(f"--block-size {value}: a number of tokens, such as 16")
    return int(value) if value else None


def _path(values: list[str], option: str) -> Path | None:
    return Path(path) if (path := _single(values, option)) else None


def given(detection: Detection, files: Mapping[str, Path | None]) -> Detection:
    """A detection by whom these options of `hitmap attach` were given: what their files tell is seen, and nobody is
    asked for them again. What else its flags name stays."""
    capabilities = list(detection.capabilities)
    for option, file in files.items():
        asked = f"hitmap attach {option} FILE"
        for at, capability in enumerate(capabilities):
            if file is not None and asked in capability.flag:
                capabilities[at] = replace(
                    capability,
                    evidence=capability.evidence.replace("which this cannot see", f"read from {file}"),
                    flag=", and ".join(part for part in capability.flag.split(", and ") if asked not in part),
                )
    return replace(detection, capabilities=tuple(capabilities))


def detect_all(
    urls: Mapping[str, str], options: Iterable[AttachOptions], otlp: str, as_json: bool
) -> list[Detection]:
    """Detect every server and print what it tells. Raises UserError in the end where one could not be detected."""
    found: dict[str, Detection] = {}
    failed: dict[str, UserError] = {}
    for option in options:
        url = urls[option.server]
        try:
            told = detect(url, api_key=option.api_key, otlp=otlp, service=option.service)
            found[option.server] = given(told, {"--log": option.log, "--server-log": option.server_log})
        except UserError as error:
            failed[option.server] = error
    if as_json:
        shown = [
            as_dict(name, found[name]) if name in found else unreachable(name, url, failed[name])
            for name, url in urls.items()
        ]
        click.echo(json.dumps(shown, indent=2))
    elif found:
        click.echo("\n\n".join("\n".join(table(name, detection)) for name, detection in found.items()))
    failures = list(failed.values())
    for failure in failures[1:]:
        click.echo(f"hitmap: {failure}", err=True)
    if failures:
        raise failures[0]
    return list(found.values())
