"""Entry point of the `hitmap` command: finds the subcommand, turns errors into exit codes.

Each subcommand is a module of `hitmap.commands` with a click command called `command`. Modules are imported when
they are called, so that `hitmap --help` is quick and a base installation can say which extra is missing.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from cachemodel.errors import UserError
from cachemodel.printable import printable

# name -> help line; a module hitmap/commands/<name>.py stands behind each
COMMANDS = {
    "demo": "See it work: a live LLM server loses its prefix cache, and the report says what caused it.",
    "up": "Run everything in the configuration file: store, collector and every server.",
    "doctor": "What can be watched on this host, and what would open the rest?",
    "probe": "Count page faults, TLB flushes, CPU cache misses and GPU counters beside a server.",
    "attach": "Watch live LLM servers: what each tells, what it does not, and the flag that opens the rest.",
    "collect": "Receive OpenTelemetry from servers and write it to the store.",
    "report": "Compare two sets of requests: what caused the change in latency, and where it shows?",
    "alerts": "Which thresholds were breached, when, by whom, and what explains it?",
    "gate": "For CI: fail when a cause costs more milliseconds than its budget.",
    "misses": "Why were prompt tokens computed? Causes by server, template, tenant and time.",
    "heatmap": "Where in the prompts are caches read, and where does rewriting pay?",
    "advise": "Which part of the prompts breaks the cache, and what to write instead?",
    "explain": "One prompt token by token: where each came from, or why it was computed.",
    "trace": "One request in all five layers: its spans, page faults, cache misses and GPU counters.",
    "sources": "What each server tells, what it does not, and which figures cannot be trusted.",
    "dashboard": "The same in a browser, on this machine.",
    "canary": "Measure what a server does not tell, by a few requests of its own within a budget.",
    "replay": "Play a recorded capture through the ports a live server would use.",
    "engine": "Run the reference engine: a small LLM server with known faults.",
    "load": "Send requests to an LLM server as callers would, and say what they saw.",
    "deploy": "Mark a deployment, so that reports can compare before and after.",
    "config": "Check the configuration file, or print one to start from.",
    "store": "Run, migrate and query the store.",
}
EXTRA_OF = {
    "aiohttp": "engine",
    "grpc_health": "engine",
    "grpc_reflection": "engine",
    "jinja2": "engine",
    "safetensors": "engine",
    "tokenizers": "engine",
    "torch": "engine",
    "chdb": "server",
    "clickhouse_connect": "server",
    "numba": "server",
    "numpy": "server",
    "plotly": "dashboard",
    "pyarrow": "server",
    "pydantic": "server",
    "rapidfuzz": "server",
    "starlette": "server",
    "streamlit": "dashboard",
    "yaml": "server",
}


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"hitmap.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hitmap")
def cli() -> None:
    """hitmap tells which cache layer your LLM latency comes from.

    \b
    First steps:
      hitmap demo                              the whole path on a live server
      hitmap attach http://127.0.0.1:8000      watch a server of your own
      hitmap sources                           which of its figures cannot be true
      hitmap report --a '-2h/-1h' --b '-1h/now'  compare two windows
    """


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 wrong call, 3 not decided (gate), 75 store directory taken,
    130 interrupted."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it has to say comes back as errors
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)  # what ctx.exit said, which click returns here
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except UserError as error:
        click.echo(f"hitmap: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = EXTRA_OF.get(package)
        if extra is None:
            raise
        click.echo(f"hitmap: this command needs {package}: pip install 'hitmap[{extra}]'", err=True)
        sys.exit(getattr(error, "exit_code", 1))  # a command for CI says what its codes mean
