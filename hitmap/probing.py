"""Runs the probe's daemon for a person: says what is watched, what is not told and why, and what it cost."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

import click

from cachemodel.observed import BY_NAME
from cachemodel.printable import printable
from hitmap.signals import stopped_by_signals
from probes.daemon.loop import Daemon
from probes.reading import Gap

_MOST_NAMES = 5
_MOST_SAID = 500  # of lines that differ in more than their numbers: there are a few dozen


def run(daemon: Daemon, gaps: Iterable[Gap], where: str, hz: float, seconds: float | None = None) -> bool:
    """Until a signal, until `seconds` are over or nothing is left to watch; whether any point got through.

    gaps: sensors that could not be opened.
    """
    began_s, cpu_s = time.monotonic(), time.process_time()
    progress = Progress(gaps, daemon.targets.roots())
    whom = _listed(daemon.targets.roots()) or (
        "this host's GPUs" if daemon.targets.pids is not None else "all processes"
    )
    say(f"hitmap probe: {whom}; {hz:g} readings a second, to {where}")
    with stopped_by_signals() as stop:
        timer = threading.Timer(seconds or 0.0, stop.set)
        timer.daemon = True
        if seconds is not None:
            timer.start()
        try:
            daemon.run(stop, progress)
        finally:
            timer.cancel()
            daemon.close()
    wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    lost = ", ".join(f"{count:,} {why}" for why, count in daemon.lost.items() if count)
    say(
        f"{daemon.points:,} points in {wall_s:,.0f} s, for {100 * cpu_s / max(wall_s, 1e-9):.1f} % of a core"
        + (f"; lost: {lost}" if lost else "")
    )
    return not daemon.points or daemon.points > daemon.lost["unsent"] + daemon.lost["refused"]


class Progress:
    """Says what is new: each reason once, and when who is watched, or whether points get through, changed."""

    def __init__(self, gaps: Iterable[Gap], roots: Mapping[int, str]) -> None:
        self._gaps, self._roots = tuple(gaps), roots
        self._said: set[str] = set()
        self._trouble = ""

    def __call__(self, daemon: Daemon) -> None:
        roots = daemon.targets.roots()
        left = {pid: name for pid, name in self._roots.items() if pid not in roots}
        came = {pid: name for pid, name in roots.items() if pid not in self._roots}
        self._roots = roots
        if left:
            end = ": nothing is left to watch" if daemon.targets.gone else ""
            say(f"exited: {_listed(left)}{end}")
        if came:
            say(f"watched from now on: {_listed(came)}")
        for line in grouped([*self._gaps, *daemon.gaps()]):
            self._say_once(f"not told: {line}")
        if daemon.trouble:
            self._say_once(f"collector: {daemon.trouble}", again=not self._trouble)
        elif self._trouble:
            say("collector: points get through again")
        self._trouble = daemon.trouble

    def _say_once(self, line: str, again: bool = False) -> None:
        kind = re.sub(r"[\d,]+", "0", line)  # a count that grows is no news
        if again or (kind not in self._said and len(self._said) < _MOST_SAID):
            self._said.add(kind)
            say(line)


def say(line: str) -> None:
    """On standard error. Who no longer reads it (`2>&1 | head`) stops nothing; names of processes are any bytes."""
    line = printable(line)
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():  # a log wraps nothing
            columns = shutil.get_terminal_size().columns
            line = textwrap.fill(line, columns, subsequent_indent="  ", break_on_hyphens=False)
        click.echo(line, err=True)


def grouped(gaps: Sequence[Gap]) -> list[str]:
    """One line a reason."""
    whys: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        names = whys.setdefault((gap.why, gap.needs), [])
        names += [name for name in gap.what.split(", ") if name not in names]
    return [
        f"{_metrics(names)}: {why}" + (f" (needs: {needs})" if needs else "")
        for (why, needs), names in whys.items()
    ]


def _metrics(names: Sequence[str]) -> str:
    """`hitmap.pmu.*` where all are among them that begin so."""
    told = list(names)
    for prefix in sorted({".".join(name.split(".")[:2]) + "." for name in names if name in BY_NAME}):
        family = [name for name in BY_NAME if name.startswith(prefix)]
        if len(family) > 1 and set(family) <= set(told):
            told = [name for name in told if name not in family] + [prefix + "*"]
    return ", ".join(told)


def _listed(roots: Mapping[int, str]) -> str:
    """`python3.11 (4711)`, of many the first."""
    names = [f"{name} ({pid})" for pid, name in roots.items()]
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
