"""`hitmap demo`: the main job, on a live server or on a recorded one."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from cachemodel.errors import UserError
from hitmap.commands._compare import progress

if TYPE_CHECKING:
    from analysis.report.model import Report
    from hitmap.demo.stage import Watched

RECORDING = Path(__file__).parents[2] / "tests/data/vllm-0.32/run1"


@dataclasses.dataclass(frozen=True)
class Story:
    """What a demo compares. a, b: selections of requests."""

    a: str
    b: str
    title: str


LIVE = Story(
    "phase=before", "phase=after", "Before (A) and after (B) a clock came to the top of the system prompts"
)
RECORDED = Story(
    "phase=tsend", "phase=tsfront", "A timestamp last in the prompt (A) against a timestamp first (B)"
)


@click.command()
@click.option(
    "--seconds",
    default=40.0,
    show_default=True,
    type=click.FloatRange(10, 3600),
    help="Of load before the change, and as many after it; longer where that makes too few requests.",
)
@click.option("--recorded", is_flag=True, help="Play a recorded vLLM 0.32 instead: real figures, no torch.")
@click.option(
    "--capture",
    type=click.Path(path_type=Path),
    help="Play this recording, which has the phases tsend and tsfront.",
)
@click.option(
    "--speed",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.1, 20),
    help="Of a recording. 1: as it was.",
)
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep store and log in this folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    seconds: float, recorded: bool, capture: Path | None, speed: float, keep: Path | None, as_json: bool
) -> None:
    """See it work: a live LLM server loses its prefix cache, and the report says what caused that and where it shows.

    Starts the embedded store, the collector and the reference engine, each a process or a thread of its own that only
    sockets connect; attaches to the engine; and sends it the same requests at the same times twice, the second time
    with the time of day at the top of the system prompt. The report compares the two.
    """
    from analysis.misses.report import build as misses
    from analysis.report import json as as_data
    from analysis.report.compare import Asked, compare
    from analysis.report.text import print_steps, to_terminal
    from hitmap.commands._detection_view import table
    from hitmap.demo.unnamed import unnamed
    from store.client import connect

    story = RECORDED if recorded or capture else LIVE
    console = Console(stderr=as_json, highlight=False)
    home = keep or Path(tempfile.mkdtemp(prefix="hitmap-demo-"))
    try:
        home.mkdir(parents=True, exist_ok=True)
        if story is RECORDED:
            console.print("Starting the store and the collector, then a played vLLM.", style="bold")
            watched = _played(capture or RECORDING, home, speed, console)
        else:
            console.print(
                "Starting the store, the collector and the reference engine, then the load.", style="bold"
            )
            watched = _live(home, seconds, console)
        with watched as result:
            console.print(
                f"{result.requests} requests came in, with spans, KV events and a request log. What the server itself"
                " told when it was attached:\n"
            )
            for line in table(result.server, result.detection):
                console.print(Text(line), soft_wrap=True)
            console.print()
            client = connect(result.dsn)
            with progress() as tell:
                report = compare(client, story.a, story.b, Asked(past=False, progress=tell))
            why = misses(client, story.b).answer
            remarks = result.remarks
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    report = _with_steps(report, keep)
    if as_json:
        click.echo(as_data.to_json(report))
        return
    console.print(f"{story.title}\n", style="bold")
    for remark in remarks:
        console.print(remark, soft_wrap=True)
    console.print()
    to_terminal(dataclasses.replace(report, next_steps=[]), console)
    console.print(f"\n{report.answer}", style="bold", markup=False)
    console.print(f"Of B: {why}", markup=False)
    for line in unnamed(report, result.busy, result.seconds) if story is LIVE else ():
        console.print(line, soft_wrap=True, markup=False)
    print_steps(report.next_steps, console)


def _played(capture: Path, home: Path, speed: float, console: Console) -> AbstractContextManager[Watched]:
    from hitmap.demo.recorded import played

    if not capture.is_dir():
        raise UserError(
            f"the recording {capture} is not here; run from a source tree, or name one with --capture"
        )
    return played(capture, home, speed=speed, console=console)


def _live(home: Path, seconds: float, console: Console) -> AbstractContextManager[Watched]:
    from hitmap.demo.live import live

    return live(home, seconds=seconds, console=console)


def _with_steps(report: Report, keep: Path | None) -> Report:
    """The steps are commands on this store: they need it kept, and to be told where it is."""
    program = "hitmap" if shutil.which("hitmap") else shlex.quote(sys.argv[0])
    if keep:
        home_is = f"HITMAP_HOME={shlex.quote(str(keep))}"
        more = [
            "hitmap explain ID    # one prompt token by token",
            "hitmap dashboard    # the same in a browser",
        ]
        steps = [f"{home_is} {step.replace('hitmap', program, 1)}" for step in [*report.next_steps, *more]]
    else:
        steps = [f"{program} demo --keep demo    # keeps the store, for questions of your own"]
        steps.append(
            f"{program} misses --help; {program} explain --help; {program} gate --help    # what to ask it"
        )
        steps.append(f"HITMAP_HOME=demo {program} dashboard    # the same in a browser")
    steps.append(f"{program} attach http://127.0.0.1:8000 --check    # your server")
    return dataclasses.replace(report, next_steps=steps)
