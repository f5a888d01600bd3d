"""`hitmap demo`: the main job, on a live server or on a recorded one."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from analysis.report.json import as_data
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
    """See it work: a live LLM server loses its prefix cache, the report says what caused that and where it shows, the
    advice what to write instead, and the server what that saves.

    Starts the embedded store, the collector and the reference engine, each a process or a thread of its own that only
    sockets connect; attaches to the engine; and sends it the same requests at the same times twice, the second time
    with the time of day at the top of the system prompt. The report compares the two. Then the requests of the second
    time are sent once more through the rewriter that the advice is, and measured beside what it predicts.
    """
    console = Console(stderr=as_json, highlight=False)
    home = keep or Path(tempfile.mkdtemp(prefix="hitmap-demo-"))
    try:
        home.mkdir(parents=True, exist_ok=True)
        if recorded or capture:
            told = _on_recording(capture or RECORDING, home, speed, keep, console, show=not as_json)
        else:
            told = _on_engine(home, seconds, keep, console, show=not as_json)
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    if as_json:
        click.echo(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False))


def _on_recording(
    capture: Path, home: Path, speed: float, keep: Path | None, console: Console, *, show: bool
) -> dict[str, Any]:
    """Play it and tell what the report says, as data; show: on the console, too."""
    from analysis.report.text import print_steps
    from hitmap.demo.recorded import played

    if not capture.is_dir():
        raise UserError(
            f"the recording {capture} is not here; run from a source tree, or name one with --capture"
        )
    console.print("Starting the store and the collector, then a played vLLM.", style="bold")
    with played(capture, home, speed=speed, console=console) as watched:
        report = _reported(RECORDED, watched, keep, console, show=show)
    if show:
        print_steps(report.next_steps, console)
    return as_data(report)


def _on_engine(
    home: Path, seconds: float, keep: Path | None, console: Console, *, show: bool
) -> dict[str, Any]:
    """Serve, report, advise and verify, and tell all of it as data."""
    from analysis.advisor.text import to_terminal
    from analysis.report.text import print_steps
    from hitmap.demo.advised import advised, rewriter, verified
    from hitmap.demo.advised import show as show_verified
    from hitmap.demo.live import live
    from hitmap.demo.unnamed import unnamed
    from store.client import connect

    console.print("Starting the store, the collector and the reference engine, then the load.", style="bold")
    with live(home, seconds=seconds, console=console) as played:
        report = _reported(LIVE, played.watched, keep, console, show=show)
        for line in unnamed(report, played.watched.busy, played.watched.seconds) if show else ():
            console.print(line, soft_wrap=True, markup=False)
        client = connect(played.watched.dsn)
        found = advised(client, played.log, home)
        if show:
            console.print("\nWhat to write instead", style="bold")
            to_terminal(found.told, console)
            console.print()
        played.again(rewriter(found, home))
        proof = verified(client, found)
    if show:
        console.print()
        show_verified(proof, console)
        print_steps(report.next_steps, console)
    return {**as_data(report), "advice": as_data(found.told), "verified": as_data(proof)}


def _reported(story: Story, watched: Watched, keep: Path | None, console: Console, *, show: bool) -> Report:
    from analysis.misses.report import build as misses
    from analysis.report.compare import Asked, compare
    from analysis.report.text import to_terminal
    from hitmap.commands._detection_view import table
    from store.client import connect

    console.print(
        f"{watched.requests} requests came in, with spans, KV events and a request log. What the server itself"
        " told when it was attached:\n"
    )
    for line in table(watched.server, watched.detection):
        console.print(Text(line), soft_wrap=True)
    console.print()
    client = connect(watched.dsn)
    with progress() as tell:
        report = compare(client, story.a, story.b, Asked(past=False, progress=tell))
    why = misses(client, story.b).answer
    if show:
        console.print(f"{story.title}\n", style="bold")
        for remark in watched.remarks:
            console.print(remark, soft_wrap=True)
        console.print()
        to_terminal(dataclasses.replace(report, next_steps=[]), console)
        console.print(f"\n{report.answer}", style="bold", markup=False)
        console.print(f"Of B: {why}", markup=False)
    return _with_steps(report, keep, advised=story is LIVE)


def _with_steps(report: Report, keep: Path | None, *, advised: bool) -> Report:
    """The steps are commands on this store: they need it kept, and to be told where it is."""
    program = "hitmap" if shutil.which("hitmap") else shlex.quote(sys.argv[0])
    if keep:
        home_is = f"HITMAP_HOME={shlex.quote(str(keep))}"
        more = [
            "hitmap explain ID    # one prompt token by token",
            *(
                [f"hitmap advise {shlex.quote(str(keep / 'after.jsonl'))} --price    # the advice once more"]
                if advised
                else []
            ),
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
