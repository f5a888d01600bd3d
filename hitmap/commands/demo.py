"""`hitmap demo`: the main job on a recorded vLLM."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from cachemodel.errors import UserError

RECORDING = Path(__file__).parents[2] / "tests/data/vllm-0.32/run1"
CONTROL, TREATMENT = "phase=tsend", "phase=tsfront"


@click.command()
@click.option(
    "--capture",
    type=click.Path(path_type=Path),
    default=RECORDING,
    help="Another recording with the phases tsend and tsfront. Default: vLLM 0.32, in the source tree.",
)
@click.option(
    "--speed", default=2.0, show_default=True, type=click.FloatRange(0.1, 20), help="1: as it was recorded."
)
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep store and log in this folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(capture: Path, speed: float, keep: Path | None, as_json: bool) -> None:
    """See it work: a recorded vLLM 0.32 comes in through real sockets, then the report.

    Starts the embedded store and the collector, plays the recording through the ports of a live server (spans by gRPC,
    /metrics over HTTP, KV events over ZeroMQ, a growing request log), attaches to it, and compares the requests that
    had a timestamp first in their prompt with those that had it last.
    """
    from analysis.report import json as as_data
    from analysis.report.compare import compare
    from analysis.report.text import to_terminal
    from hitmap.commands._detection_view import table
    from hitmap.demo import played
    from store.client import connect

    if not capture.is_dir():
        raise UserError(
            f"the recording {capture} is not here; run from a source tree, or name one with --capture"
        )
    console = Console(stderr=as_json, highlight=False)
    home = keep or Path(tempfile.mkdtemp(prefix="hitmap-demo-"))
    try:
        home.mkdir(parents=True, exist_ok=True)
        console.print("Starting the store and the collector, then a played vLLM.", style="bold")
        with played(capture, home, speed=speed, console=console) as result:
            console.print(
                f"{result.requests} requests came in, with spans, KV events and a request log. What the server itself"
                " told when it was attached:\n"
            )
            for line in table(result.server, result.detection):
                console.print(Text(line), soft_wrap=True)
            console.print()
            report = compare(connect(result.dsn), CONTROL, TREATMENT)
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    # The steps are commands on this store: they need it kept, and to be told where it is.
    program = "hitmap" if shutil.which("hitmap") else shlex.quote(sys.argv[0])
    if keep:
        home_is = f"HITMAP_HOME={shlex.quote(str(keep))}"
        steps = [f"{home_is} {step.replace('hitmap', program, 1)}" for step in report.next_steps]
    else:
        steps = [f"{program} demo --keep demo    # keeps the store, for questions of your own"]
    steps.append(f"{program} attach http://127.0.0.1:8000 --check    # your server")
    report = dataclasses.replace(report, next_steps=steps)
    if as_json:
        click.echo(as_data.to_json(report))
        return
    console.print("A timestamp last in the prompt (A) against a timestamp first (B)\n", style="bold")
    to_terminal(report, console)
