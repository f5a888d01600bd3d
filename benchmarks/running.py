"""A real `hitmap collect` and its store, as processes that can be measured, killed and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from store.client import connect
from store.embedded import Embedded, ensure

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Running:
    """The store of `home` and a collector that writes to it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.stores: list[Embedded] = []
        self._ensure()
        self.collector: subprocess.Popen[str] | None = None
        self.endpoint = ""

    def start_collector(self, *options: str) -> None:
        """Start `hitmap collect` on a free port and wait until it listens."""
        self.collector = subprocess.Popen(
            [sys.executable, "-m", "hitmap", "collect", "--otlp-grpc", "127.0.0.1:0", *options],
            env=os.environ | {"HITMAP_HOME": str(self.home), "COLUMNS": "300"},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.collector.stderr
        line = self.collector.stderr.readline()
        found = re.search(r"OTLP/gRPC on (\S+);", line)
        if not found:
            raise RuntimeError(line + self.collector.stderr.read())
        self.endpoint = found[1]

    def stop_collector(self, number: int = signal.SIGTERM) -> None:
        """Signal the collector and wait for its end."""
        if self.collector:
            self.collector.send_signal(number)
            self.collector.wait(60)
            if self.collector.stderr:
                self.collector.stderr.close()
        self.collector = None

    @property
    def store_pid(self) -> int:
        """The process that owns the store now, started again if it is gone."""
        return self._ensure().pid

    def _ensure(self) -> Embedded:
        store = ensure(self.home / "store")
        self.stores.append(store)
        return store

    def client(self) -> Client:
        """A connection to the store, which is started again if it is gone."""
        return connect(self._ensure().dsn)

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds of collector and store so far."""
        assert self.collector
        return cpu_of(self.collector.pid), cpu_of(self.store_pid)

    def close(self) -> None:
        """End both."""
        self.stop_collector()
        for store in self.stores:
            store.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def cpu_of(pid: int) -> float:
    """User and system CPU seconds of a process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def rss_of(pid: int, peak: bool = False) -> int:
    """Resident bytes of a process, now or at their highest."""
    key = "VmHWM" if peak else "VmRSS"
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def settle(pid: int, quiet_s: float = 2.0, limit_s: float = 120.0) -> None:
    """Wait until a process has next to nothing to do: merges are over."""
    end, quiet_since, last = time.monotonic() + limit_s, time.monotonic(), cpu_of(pid)
    while time.monotonic() < end and time.monotonic() - quiet_since < quiet_s:
        time.sleep(0.5)
        now = cpu_of(pid)
        if now - last > 0.03:
            quiet_since = time.monotonic()
        last = now
