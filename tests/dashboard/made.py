"""A miss report and an explanation with known figures and hostile names, and a process that serves them.

`python -m tests.dashboard.made ARGUMENTS` is `hitmap ARGUMENTS`, with these answers in place of analysis' own: the way
from a report to pixels is tried apart from the way to a report.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from analysis.attribution.model import Verdict
from analysis.misses.report_model import (
    CeilingLine,
    EventsLine,
    Explanation,
    MissLine,
    MissReport,
    TokenRun,
)
from analysis.report.model import Report
from analysis.selection import parse_set
from cachemodel.errors import UserError
from tests.analysis.attributions import attributed, refused, share, view
from tests.analysis.attributions import made as made_attribution
from tests.analysis.sets import compared, requests

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOSTILE = "<script>window.hit=1</script> **bold** [x](javascript:1) :smile: $e^1$ www.example.com"
WIDE = "arrivals 2.41/s -> 2.38/s, mean prompt 1,579 tokens -> 1,607 tokens, mean completion 20 tokens -> 21 tokens"
WAIT_S = 60
_ASKED_FOR_LESS, _ASKED_FOR_ELSE = threading.Event(), threading.Event()
PARTS = {
    "device": 600_000,
    "host": 100_000,
    "evicted/capacity": 120_000,
    "changed": 150_000,
    "cold": 25_000,
    "unknown": 5_000,
}


def line(key: str, scale: float, begin: str = "") -> MissLine:
    parts = {name: round(count * scale) for name, count in PARTS.items()}
    return MissLine(key, round(500 * scale), round(490 * scale), sum(parts.values()), parts, 1_234, begin)


def build(client: object, selection: str, *, by: str = "server", now: datetime | None = None) -> MissReport:
    """As analysis.misses.report.build: with as many tokens more as the selection has conditions. `phase=slow` takes
    until somebody asks for less, of one server."""
    chosen = parse_set(selection, now=now or START, labels=["phase"], prefix="m")
    scale = 1.0 + chosen.condition.count(" AND ")
    if "phase" in chosen.texts and "nothing" in chosen.name:
        raise UserError("no request matches <b>nothing</b>")
    if "phase=slow" in selection and "server=" not in selection:
        _ASKED_FOR_LESS.wait(WAIT_S)
    elif "phase=slow" in selection:
        _ASKED_FOR_LESS.set()
    times = [START + timedelta(minutes=i) for i in (0, 1, 2, 3, 10, 11)]
    return MissReport(
        name=selection,
        by=by,
        begin=times[0].isoformat(),
        end=times[-1].isoformat(),
        sampled=1,
        derived=3,
        history_begin=START.isoformat(),
        total=line("all", scale),
        lines=[
            line("vllm-a", scale * 0.6),
            line(HOSTILE, scale * 0.3),
            line("vllm-with-a-long-name-eu-west-1", scale * 0.1),
        ],
        trend=[line("", scale / 6, time.isoformat()) for time in times],
        ceilings=[
            CeilingLine("vllm-a", 16, 0, 100, 600_000, 400_000, 520_000, 450_000),
            CeilingLine(HOSTILE, 2144, 1, 40, 300_000, 100_000, 280_000, 200_000),
        ],
        events_alone=[
            EventsLine(
                "vllm-a",
                t.isoformat(),
                (t + timedelta(minutes=1)).isoformat(),
                9_000,
                {"cold": 4_000, "changed": 5_000},
            )
            for t in times
        ],
        unknown_needs=[f"3,000 tokens: the prompts of {HOSTILE}"],
        warnings=[f"{HOSTILE} tells no cached tokens"],
        next_steps=["changed: move what changes", "hitmap explain r1"],
        answer=f"Most of it was served; the rest is {HOSTILE}.",
        events_since=START.isoformat(),
    )


def explain(client: object, request_id: str, server: str = "") -> Explanation:
    """As analysis.misses.explain.explain: knows one request."""
    if request_id not in ("r1", HOSTILE):
        raise UserError(f"no request {request_id!r}")
    runs = [
        TokenRun(0, 320, "device", "held since 12:00:01", "You are a helpful assistant."),
        TokenRun(320, 400, "evicted/capacity", f"evicted 12:05:31 to make room, by {HOSTILE}", HOSTILE),
        TokenRun(400, 410, "cold", "never sent before"),
    ]
    return Explanation(
        request_id, server or "vllm-a", "m", START.isoformat(), 410, 320, False, "server", 16,
        "hits come in units of 16 tokens", runs, {"queue": 1.5, "prefill": 20.25}, None, [f"a note on {HOSTILE}"],
        ["evicted/capacity: give KV more room"], f"the same as {HOSTILE} (4 s before) up to token 400",
    )  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """As analysis.report.compare.Asked, as far as a page asks."""

    metric: str = "ttft"
    quantile: float | None = 0.5
    early: Callable[[Report], None] | None = None


def compare(client: object, a: str, b: str, asked: Asked) -> Report:
    """As analysis.report.compare.compare: what caused it is not told of `server=vllm-a`; `phase=slow` takes until
    somebody asks for something else."""
    if "nothing" in a + b:
        raise UserError("no request matches <b>nothing</b>")
    sides = requests(600, 1, 30, 0.75, asked.metric), requests(700, 2, 110, 0.0, asked.metric)
    report = compared(*sides, asked.metric, asked.quantile, (a, b))
    if asked.early:
        asked.early(report)
    if "phase=slow" in a:
        _ASKED_FOR_ELSE.wait(WAIT_S)
    _ASKED_FOR_ELSE.set()
    found = made_attribution()
    if "server=vllm-a" in a:
        found = made_attribution(refused("caused", f"the layers of {HOSTILE} are not told"))
    if "phase=wide" in a:
        found = made_attribution(view("caused", [share("workload", 276.0, 25.0, Verdict.NAMED, WIDE)]))
    return attributed(report, found)


def _install() -> None:
    made = {
        "analysis.misses.report": (build,),
        "analysis.misses.explain": (explain,),
        "analysis.report.compare": (compare, Asked),
    }
    for name, things in made.items():
        module = types.ModuleType(name)
        for thing in things:
            setattr(module, thing.__name__, thing)
        sys.modules[name] = module


if __name__ == "__main__":
    _install()
    from hitmap.cli import main

    main()
