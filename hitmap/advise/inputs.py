"""What `hitmap advise` reads: logs of requests, with where each prompt stands and what was none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from cachemodel.prompts.model import Prompt
from hitmap.advise.places import Place, PlacedFiles


class Read(NamedTuple):
    """The prompts of logs, where each stands, by its id, and what was none."""

    prompts: list[Prompt]
    places: Mapping[str, Place]
    left_out: list[str]


def read_logs(logs: Sequence[Path]) -> Read:
    """With a bar on the terminal; raises UserError for a file that cannot be read."""
    screen = Console(stderr=True)
    whole = sum(log.stat().st_size for log in logs if log.is_file())
    with Progress(
        TextColumn("reading prompts"), BarColumn(), DownloadColumn(), console=screen, transient=True
    ) as bar:
        task = bar.add_task("", total=whole)
        files = PlacedFiles(logs, progress=lambda count: bar.advance(task, count))
        prompts = list(files)
    left_out = [
        f"{out.count:,} lines: {why}, the first at {out.first}" for why, out in files.left_out.items()
    ]
    if files.mended:
        left_out.append(f"{files.mended:,} lines had broken UTF-8, which was replaced")
    return Read(prompts, files.places, left_out)
