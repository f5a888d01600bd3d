"""Runs the probe's daemon for a person: says what is watched, what is not told and why, and what it cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from rich.console import Console

from hitmap.signals import stopped_by_signals
from probes.daemon.loop import Daemon
from probes.reading import Gap


def run(daemon: Daemon, gaps: Iterable[Gap], console: Console, seconds: float | None = None) -> None:
    """Until a signal, until `seconds` are over or nothing is left to watch. gaps: sensors that could not be opened."""
    began_s, cpu_s = time.monotonic(), time.process_time()
    with stopped_by_signals() as stop:
        try:
            daemon.run(stop, _Tick(stop, tuple(gaps), console, seconds))
        finally:
            daemon.close()
    wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    lost = ", ".join(f"{count:,} {why}" for why, count in daemon.lost.items() if count)
    console.print(
        f"{daemon.points:,} points in {wall_s:,.0f} s, for {100 * cpu_s / max(wall_s, 1e-9):.1f} % of a core"
        + (f"; lost: {lost}" if lost else ""),
        markup=False,
    )


def introduced(
    resources: Mapping[int | None, Mapping[str, str]], everything: bool, hz: float, where: str
) -> str:
    """What is about to be watched."""
    names = [
        f"{told['process.executable.name']} ({pid})" for pid, told in resources.items() if pid is not None
    ]
    whom = "all processes" if everything else ", ".join(names) or "this host's GPUs"
    return f"hitmap probe: {whom}; {hz:g} readings a second, to {where}"


class _Tick:
    """Says what is new, each thing once."""

    def __init__(
        self, stop: threading.Event, gaps: Iterable[Gap], console: Console, seconds: float | None
    ) -> None:
        self._stop, self._gaps, self._console = stop, tuple(gaps), console
        self._ends_s = None if seconds is None else time.monotonic() + seconds
        self._said: set[str] = set()

    def __call__(self, daemon: Daemon) -> None:
        whys: dict[tuple[str, str], list[str]] = {}
        for gap in (*self._gaps, *daemon.gaps()):
            whys.setdefault((gap.why, gap.needs), []).append(gap.what)
        for (why, needs), names in whys.items():
            self._say(f"not told: {', '.join(names)}: {why}" + (f" (needs: {needs})" if needs else ""))
        if daemon.trouble:
            self._say(f"nothing gets through: {daemon.trouble}")
        if self._ends_s is not None and time.monotonic() >= self._ends_s:
            self._stop.set()

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._console.print(line, markup=False)
