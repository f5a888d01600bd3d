"""What an engine holds, from outside: its process and its /metrics."""

from __future__ import annotations

import os
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from collector.prometheus import parse
from hitmap.demo.engine_process import Serving

REST_S = 60.0


@dataclass(frozen=True)
class Look:
    """At rest. finished: requests that ended so far; held: blocks that somebody holds; unaccounted: blocks of all tiers
    that are cached beyond what there is; far_blocks: cached on host and disk."""

    finished: int
    rss_mb: float
    fds: int
    threads: int
    held: int
    unaccounted: int
    far_blocks: tuple[int, int]
    preemptions: int

    @property
    def line(self) -> str:
        process = f"{self.rss_mb:.0f} MB, {self.fds} files, {self.threads} threads"
        return f"{self.finished} ended, {process}, {self.held} blocks held"


def look(serving: Serving) -> Look:
    """Read /proc and /metrics."""
    told = _metrics(serving.url)
    process = Path("/proc") / str(serving.pid)
    blocks = {tier: told["hitmap_engine_kv_blocks", tier] for tier in ("device", "host", "remote")}
    cached = {tier: told["hitmap_engine_kv_cached_blocks", tier] for tier in blocks}
    return Look(
        finished=int(
            sum(v for (name, _), v in told.items() if name == "hitmap_engine_requests_finished_total")
        ),
        rss_mb=int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
        fds=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())),
        held=int(sum(v for (name, _), v in told.items() if name == "hitmap_engine_kv_used_blocks")),
        unaccounted=int(sum(max(0.0, cached[tier] - blocks[tier]) for tier in blocks)),
        far_blocks=(int(cached["host"]), int(cached["remote"])),
        preemptions=int(told["hitmap_engine_preemptions_total", ""]),
    )


def at_rest(url: str) -> None:
    """Wait until nobody runs, waits or holds a block. Goes on after REST_S: the look then says who still does."""
    deadline = time.monotonic() + REST_S
    while time.monotonic() < deadline:
        told = _metrics(url)
        busy = [told[f"hitmap_engine_num_requests_{state}", ""] for state in ("running", "waiting")]
        if not any(busy) and not told["hitmap_engine_kv_used_blocks", "device"]:
            break
        time.sleep(0.5)
    time.sleep(1.0)  # for what is closed a moment later: connections, spans on their way


def _metrics(url: str) -> dict[tuple[str, str], float]:
    """Samples by name and the value of their one label, empty where they have none."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        samples = parse(answer.read()).samples
    return {(s.name, next(iter(dict(s.labels).values()), "")): s.value for s in samples if len(s.labels) < 2}
