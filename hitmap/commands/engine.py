"""`hitmap engine`: the reference engine, a small LLM server with real contention and faults that are known."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from cachemodel.address import server_url
from cachemodel.errors import UsageError
from cachemodel.printable import printable
from engine.config import EngineConfig
from hitmap.commands._engine_faults import ask
from hitmap.commands._engine_perturb import perturb

if TYPE_CHECKING:
    from engine.serve import EngineServer

_DEFAULTS = EngineConfig()
_HELP = {
    "model": "demo (drawn weights, no download), or a folder with config.json, safetensors and tokenizer.json.",
    "served_model_name": "What clients call the model. Default: what --model says.",
    "dtype": "float32 or bfloat16.",
    "device": "cpu or cuda.",
    "seed": "Of drawn weights, and of what faults leave to chance.",
    "max_model_len": "Most tokens of a prompt and its answer together.",
    "block_size": "Tokens a KV block.",
    "device_blocks": "KV blocks on the device.",
    "host_blocks": "KV blocks in host memory, 0 for none.",
    "disk_blocks": "KV blocks on disk, 0 for none.",
    "disk_path": "Folder of the disk tier. Default: a temporary one.",
    "prefix_caching": "Reuse the KV of prompts that begin alike.",
    "cache_unit": "Tokens that are reused together, a multiple of --block-size, as with hybrid models; 0: a block.",
    "drop_last_unit": "Compute the last unit that was found all the same, as with EAGLE and MTP.",
    "cache_ttl": "Seconds after its last use for which a block stays cached, 0 for ever.",
    "max_num_batched_tokens": "Most tokens a step computes; longer prompts go in chunks.",
    "max_num_seqs": "Requests that run at once.",
    "max_waiting": "Requests that may queue before others are refused.",
    "max_load_blocks": "Blocks a step moves to the device at most.",
    "hash_seed": "PYTHONHASHSEED of the block hashes, as of vLLM; random: another one each time.",
    "threads": "Of torch, 0 for its own choice.",
}
_MOST = {"threads": 1024}  # torch dies of more than the system has
_MAY_BE_0 = {"seed", "host_blocks", "disk_blocks", "cache_unit", "threads"}
_CHOICES = {"dtype": ["float32", "bfloat16"]}
_token = click.option(
    "--token",
    envvar="HITMAP_ENGINE_TOKEN",
    help="What callers must show as 'authorization: Bearer TOKEN' (or $HITMAP_ENGINE_TOKEN). Needed off loopback.",
)


def _config_options(function: Any) -> Any:
    """An option for each field of EngineConfig."""
    for field in reversed(dataclasses.fields(EngineConfig)):
        default, name = getattr(_DEFAULTS, field.name), "--" + field.name.replace("_", "-")
        kind: Any = type(default)
        if field.name == "disk_path":
            kind = click.Path(file_okay=False, path_type=Path)
        elif field.name in _CHOICES:
            kind = click.Choice(_CHOICES[field.name])
        elif kind is int:
            kind = click.IntRange(0 if field.name in _MAY_BE_0 else 1, _MOST.get(field.name, (1 << 31) - 1))
        elif kind is float:
            kind = click.FloatRange(0, 1e9)
        if isinstance(default, bool):
            name, kind = f"{name}/--no-{name[2:]}", None
        option = click.option(
            name, default=default, show_default=default not in ("", None), type=kind, help=_HELP[field.name]
        )
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Run the reference engine: a small LLM server that tells all it does, and goes wrong when asked to.

    \b
      hitmap engine serve                                     OpenAI-compatible HTTP and gRPC on loopback
      hitmap attach http://127.0.0.1:8000                     watch it, in another terminal
      hitmap engine inject URL layer=host,delay_ms=5          break something while it runs
      hitmap engine perturb URL                               how much a quantile moves when a layer gets slower
      hitmap engine bench                                     what this machine does
    """


command.add_command(perturb)


@command.command()
@_config_options
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; elsewhere needs a --token."
)
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="HTTP; 0: any free one."
)
@click.option(
    "--grpc-port",
    default=8001,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="gRPC; 0: any free one.",
)
@_token
@click.option(
    "--otlp", default="", metavar="HOST:PORT", help="Send spans there (OTLP/gRPC), a collector's 4317."
)
@click.option(
    "--service-name",
    envvar="OTEL_SERVICE_NAME",
    default="hitmap-engine",
    show_default=True,
    help="service.name of the spans.",
)
@click.option(
    "--capture",
    type=click.Choice(["hashes", "full"]),
    default="hashes",
    show_default=True,
    help="full: put the text of prompts and answers on the spans.",
)
@click.option(
    "--kv-events", default="", metavar="ENDPOINT", help="Publish KV events there: tcp://127.0.0.1:5557."
)
@click.option(
    "--kv-replay", default="", metavar="ENDPOINT", help="And replay missed ones there: tcp://127.0.0.1:5558."
)
@click.option(
    "--inject",
    multiple=True,
    metavar="SPEC",
    help="A fault from the start: layer=host,delay_ms=5. Repeatable.",
)
def serve(
    host: str,
    port: int,
    grpc_port: int,
    token: str | None,
    otlp: str,
    service_name: str,
    capture: Any,
    kv_events: str,
    kv_replay: str,
    inject: tuple[str, ...],
    **config: Any,
) -> None:
    """Serve a model: OpenAI-compatible HTTP (with /metrics) and gRPC, spans over OTLP, KV events over ZeroMQ.

    \b
      hitmap engine serve --otlp 127.0.0.1:4317 --kv-events tcp://127.0.0.1:5557
      hitmap engine serve --model ./Llama-3.2-1B --dtype bfloat16 --disk-blocks 4096
      hitmap engine serve --inject layer=prefill,slowdown=2 --inject evict=0.5,every_s=5
    """
    from engine.serve import DRAIN_S, ServeOptions
    from engine.serve import serve as run
    from engine.telemetry import TelemetryConfig

    if kv_replay and not kv_events:
        raise UsageError("--kv-replay needs --kv-events")
    options = ServeOptions(
        engine=EngineConfig(**config),
        telemetry=TelemetryConfig(otlp, service_name, "", capture, kv_events, kv_replay),
        host=host,
        port=port,
        grpc_port=grpc_port,
        token=token,
        inject=inject,
    )
    resolved: list[str] = []
    console = Console(stderr=True, highlight=False)

    def say(text: str) -> None:
        console.print(f"hitmap engine: {printable(text)}", soft_wrap=True, markup=False)

    def ready(server: EngineServer) -> None:
        say(_introduction(server))
        resolved.extend(["--port", str(server.port), "--grpc-port", str(server.grpc_port)])
        if source := server.telemetry.kv_event_sources().get("0"):
            resolved.extend(["--kv-events", source["endpoint"]])
            resolved.extend(["--kv-replay", source["replay_endpoint"]] if source["replay_endpoint"] else [])

    def stopping() -> None:
        say(f"stopping: requests under way have {DRAIN_S} s; Ctrl-C again ends them")

    say(f"loading {options.engine.model} ...")
    if run(options, ready, stopping):
        _begin_again(resolved)


@command.command()
@click.argument("url")
@click.argument("spec", required=False)
@click.option("--list", "as_list", is_flag=True, help="Only say which are on.")
@click.option("--clear", is_flag=True, help="Switch all off.")
@click.option(
    "--token", envvar="HITMAP_ENGINE_TOKEN", help="The --token of that engine (or $HITMAP_ENGINE_TOKEN)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the faults that are on as JSON.")
def inject(url: str, spec: str | None, as_list: bool, clear: bool, token: str | None, as_json: bool) -> None:
    """Switch a fault on in the engine at URL while it runs, and say which are on.

    \b
      layer=host,delay_ms=5[,p=0.1]      each passage of a layer waits: frontend, queue, prefix, host, remote,
                                         prefill, decode or other
      layer=decode,slowdown=2[,p=0.1]    prefill or decode takes twice its time
      evict=0.5[,every_s=2]              half of the cached blocks on the device go, every 2 seconds
      device_blocks=64                   a smaller pool
      layer=prefix,cold_mb=1[,salt=S]    each passage (of requests with that cache_salt) reads a megabyte that no
                                         cache holds: page faults; of prefix, host or prefill
      layer=prefix,unmap_mb=8[,salt=S]   it maps, writes and unmaps so much: TLB shootdowns
      step_ms=12                         every pass over the device takes 12 ms longer
      token_ms=0.2                       and this much for each prompt token that it computes
      lose_events=0.1                    one in ten batches of KV events is lost
      layer=host,fail=1                  no load from the host (or remote) comes through
      ...,for_s=30                       it is over after 30 seconds

    \b
      hitmap engine inject http://127.0.0.1:8000 layer=remote,delay_ms=20,for_s=60
      hitmap engine inject http://127.0.0.1:8000 --clear
    """
    if [spec is not None, as_list, clear].count(True) != 1:
        raise UsageError("say one of: a SPEC such as layer=host,delay_ms=5; --list; --clear")
    method = "DELETE" if clear else "POST" if spec is not None else "GET"
    faults = ask(method, server_url(url), token, spec)
    if as_json:
        click.echo(json.dumps({"faults": [fault._asdict() for fault in faults]}))
        return
    click.echo("on now:" if faults else "no fault is on")
    for number, line in faults:
        click.echo(f"{number:>4}  {line}")
    if spec is not None:
        click.echo(_what_shows(spec))


@command.command()
@_config_options
@click.option("--quick", is_flag=True, help="Fewer rounds: a look, no figures to quote.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def bench(quick: bool, as_json: bool, **config: Any) -> None:
    """Measure the engine on this machine: prefix hits, tier loads against recomputing, telemetry's cost, throughput."""
    from engine.bench import main

    main(quick=quick, as_json=as_json, config=EngineConfig(**config))


def _what_shows(spec: str) -> str:
    """Where a fault can be seen."""
    if "lose_events" in spec:
        return "it marks no request: `hitmap sources` shows the gaps"
    first = spec.partition(",")[0].strip()  # a comma would end the condition
    return f"compare: hitmap report --a 'fault=' --b 'fault={first}*'"


def _introduction(server: EngineServer) -> str:
    source, otlp = server.telemetry.kv_event_sources().get("0"), server.options.telemetry.otlp
    parts = [f"{server.frontend.model} on {server.url}", f"gRPC on {server.host}:{server.grpc_port}"]
    parts += [f"KV events on {source['endpoint']}"] if source else []
    parts += [f"spans to {otlp}" if otlp else "no spans, which --otlp would send"]
    return f"{'; '.join(parts)}\nwatch it with: hitmap attach {server.url}"


def _begin_again(resolved: list[str]) -> None:
    """Replace this process by a new one on the same ports; a later option wins over an earlier one."""
    arguments = sys.orig_argv[1:]
    if arguments[-len(resolved) :] != resolved:
        arguments += resolved
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - our own arguments
