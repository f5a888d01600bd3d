"""What `hitmap probe` takes of a host, and of the server that it watches, in one run.

    python -m benchmarks.probes_host [--seconds 20] [--rounds 6] [--json]      (as root; under four minutes)

The command itself, with all sensors that there are (kernel, pmu, gpu) at 10 readings a second, sends to a stock OTLP
receiver. Its share of a core and its resident memory, those of its children included, are read from /proc, once it has
run for some seconds: beside a process of 1, 16 and 128 threads that fault, wait and compute, and beside the reference
engine under load. Then requests a second of the engine with the probe and without it, in an order that turns: told are
the median of the differences within a round, and their quartiles.
"""

from __future__ import annotations

import argparse
import http.client
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from hitmap.demo.engine_process import engine
from probes.kernel.processes import descendants

THREADS = (1, 16, 128)
SETTLE_S = 4.0
ROUND_S = 6.0
CLIENTS = 4
_TICK_S, _PAGE = 1 / os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Taken(NamedTuple):
    """beside: what. core_percent, rss_mb: of the probe with its children. points: a second."""

    beside: str
    core_percent: float
    rss_mb: float
    points: float


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """OpenTelemetry's stubs, which take everything."""

    def __init__(self) -> None:
        self.points = 0
        self._server = grpc.server(ThreadPoolExecutor(2))
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        """gRPC's name."""
        self.points += sum(
            len(metric.sum.data_points) + len(metric.gauge.data_points)
            for block in request.resource_metrics
            for metric in block.scope_metrics[0].metrics
        )
        return ExportMetricsServiceResponse()

    def close(self) -> None:
        self._server.stop(0).wait()


def busy(threads: int) -> None:
    """The watched process: each thread faults, computes and waits, some fifty times a second."""

    def work() -> None:
        memory = mmap.mmap(-1, 16 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        while True:
            memory.madvise(mmap.MADV_DONTNEED)
            memory[:: mmap.PAGESIZE] = bytes(16)
            sum(range(2000))
            time.sleep(0.02)

    threading.stack_size(256 * 1024)
    for _ in range(threads - 1):
        threading.Thread(target=work, daemon=True).start()
    work()


@contextmanager
def beside(threads: int) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.probes_host", "--busy", str(threads)]
    process = subprocess.Popen(command)
    try:
        time.sleep(1.0)
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def probe(address: str, *whom: str) -> Iterator[int]:
    command = [sys.executable, "-m", "hitmap", "probe", *whom, "--to", address]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(SETTLE_S)
        yield process.pid
    finally:
        process.terminate()
        said = process.communicate(timeout=30)[1]
        if process.returncode:
            sys.exit(f"the probe failed: {said}")


def taken(beside: str, pid: int, receiver: Receiver, seconds: float) -> Taken:
    """What that probe takes from now on."""
    points, cpu_s, began = receiver.points, _cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began
    return Taken(
        beside,
        100 * (_cpu_s(pid) - cpu_s) / took_s,
        sum(_stat(one)[21] * _PAGE for one in _family(pid)) / 1e6,
        (receiver.points - points) / took_s,
    )


def _family(pid: int) -> list[int]:
    return [pid, *(child.pid for child in descendants(pid))]


def _cpu_s(pid: int) -> float:
    """With children that ended."""
    return sum(sum(_stat(one)[11:15]) for one in _family(pid)) * _TICK_S


def _stat(pid: int) -> list[int]:
    """Fields of /proc/PID/stat, from the state on, which is no number."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, told[1:])]


def requests(url: str, seconds: float) -> float:
    """Completions a second that some clients get, each of which asks when it was answered."""
    split, counts, end = urlsplit(url), [0] * CLIENTS, time.monotonic() + seconds

    def ask(client: int) -> None:
        connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=60)
        while time.monotonic() < end:
            text = f"client {client} asks " + "the same thing again and again " * 4 + str(counts[client])
            body = json.dumps({"prompt": text, "max_tokens": 8, "temperature": 0})
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"the engine answers {answer.status}: {said[:200]!r}")
            counts[client] += 1

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(ask, range(CLIENTS)))
    return sum(counts) / seconds


def compared(url: str, port: str, receiver: Receiver, rounds: int) -> dict[str, list[float]]:
    """Requests a second with the probe and without, by round."""
    found: dict[str, list[float]] = {"without": [], "with": []}
    requests(url, 2.0)
    for number in range(rounds):
        for way in ("without", "with") if number % 2 else ("with", "without"):
            if way == "without":
                found[way].append(requests(url, ROUND_S))
                continue
            with probe(receiver.address, "--port", port):
                found[way].append(requests(url, ROUND_S))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    receiver, rows = Receiver(), list[Taken]()
    for threads in THREADS:
        with beside(threads) as pid, probe(receiver.address, "--pid", str(pid)) as probing:
            rows.append(taken(f"a process of {threads} threads", probing, receiver, options.seconds))
    with (
        tempfile.TemporaryDirectory() as folder,
        engine(Path(folder) / "log", []) as serving,
    ):
        port = str(urlsplit(serving.url).port)
        with probe(receiver.address, "--port", port) as probing, ThreadPoolExecutor(1) as load:
            running = load.submit(requests, serving.url, options.seconds)
            rows.append(taken("the reference engine under load", probing, receiver, options.seconds))
            running.result()
        rates = compared(serving.url, port, receiver, options.rounds)
    receiver.close()
    changes = [100 * (one / other - 1) for one, other in zip(rates["with"], rates["without"], strict=True)]
    low, middle, high = statistics.quantiles(changes, n=4) if len(changes) > 1 else changes * 3
    told = {
        "daemon": [row._asdict() for row in rows],
        "requests_per_s": rates,
        "change_percent": {"median": middle, "quartiles": [low, high]},
        "cpus": os.cpu_count(),
    }
    if options.json:
        print(json.dumps(told))
        return
    print(f"{'hitmap probe at 10 Hz, beside':34} {'% of a core':>11} {'MB':>6} {'points/s':>9}")
    for row in rows:
        print(f"{row.beside:34} {row.core_percent:11.2f} {row.rss_mb:6.0f} {row.points:9.0f}")
    medians = {way: statistics.median(rate) for way, rate in rates.items()}
    print(
        f"requests a second of the engine: {medians['without']:.1f} without, {medians['with']:.1f} with the probe; "
        f"change {middle:+.1f} % (quartiles {low:+.1f}, {high:+.1f})"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--busy"]:
        busy(int(sys.argv[2]))
    else:
        main()
