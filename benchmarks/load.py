"""Everything at once for a while: is what was acknowledged there exactly once, and did every queue stay bounded?

    python -m benchmarks.load [--seconds 120] [--connections 200] [--servers 200] [--publishers 50]
                             [--stall 10]

OTLP connections (gRPC and HTTP, protobuf and JSON), scraped stub servers and publishers of KV events, each group a
process of its own, against what `hitmap attach` runs and a fresh embedded store. Prints the highest mark of every
queue beside its bound, what was refused, and the verdict of the store. With --stall the store stands still for a while
and the spool is small: senders are refused, and nothing may be lost by that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.load_verdict import Verdict, judge
from store.client import connect
from store.embedded import ensure

SPOOL_MB, STALLED_SPOOL_MB = 1024, 16  # the second fills within seconds
LEAST_CONNECTIONS = 10  # so that each signal has one


@contextmanager
def child(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of ours that is told and tells by lines; its end is ours."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.stdin and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tell(process: subprocess.Popen[str], line: object = "") -> None:
    assert process.stdin
    process.stdin.write((json.dumps(line) if line else "") + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended without a word")
    return json.loads(line)


def run(
    home: Path,
    *,
    seconds: float,
    connections: int,
    servers: int,
    publishers: int,
    every_s: float = 1.0,
    interval_s: float = 5.0,
    stall_s: float = 0.0,
    spool_mb: int = SPOOL_MB,
) -> Verdict:
    """The whole load with a fresh store below `home`.

    every_s: between two requests of a connection; interval_s: of scrapes; stall_s: for so long in the middle the store
    stands still, 0 for never; spool_mb: limit of the spool.
    """
    home.mkdir(parents=True, exist_ok=True)
    published = home / "published"
    with (
        ensure(home / "store") as store,
        child("load_servers", servers, publishers, published) as stubs,
        child("load_pipeline", store.dsn, home / "spool", spool_mb, interval_s, published) as pipeline,
        child("load_senders") as senders,
    ):
        tell(pipeline, hear(stubs) | {"connections": connections})
        plan = hear(pipeline) | {"connections": connections, "seconds": seconds, "every_s": every_s}
        tell(senders, plan)
        if stall_s:
            time.sleep((seconds - stall_s) / 2)
            stall(store.pid, stall_s)
        sent = hear(senders)
        tell(stubs)
        served = hear(stubs)
        tell(pipeline)
        verdict = Verdict(hear(pipeline), sent, served)
        client = connect(store.dsn)
        judge(verdict, client, stalled=stall_s > 0)
        client.close()
    return verdict


def stall(pid: int, seconds: float) -> None:
    """Make a process stand still for so long: it neither answers nor hangs up."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def show(verdict: Verdict) -> None:
    """Print what was seen."""
    report = verdict.report
    print("highest marks (bound)")
    for name, value in sorted(report["highest"].items()):
        bound = report["bounds"].get(name)
        print(f"  {name:<32} {value:>15,.0f}" + (f"  ({bound:,.0f})" if bound is not None else ""))
    print("senders were refused, to be tried again: ", verdict.sent["refused"] or "never")
    for name in ("accepted", "duplicates", "rejected", "retries", "sources"):
        print(f"{name}: {report[name] or 'none'}")
    print(f"in the store: {verdict.found}")
    for promise in verdict.broken:
        print(f"BROKEN: {promise}")
    if not verdict.broken:
        print("everything acknowledged is there exactly once, and every queue stayed bounded")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=positive, default=120)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--publishers", type=int, default=50)
    parser.add_argument(
        "--every", type=positive, default=1.0, help="seconds between two requests of a connection"
    )
    parser.add_argument("--stall", type=positive, default=0, help="seconds that the store stands still")
    parser.add_argument(
        "--spool-limit",
        type=int,
        help=f"in MB; {SPOOL_MB}, with --stall {STALLED_SPOOL_MB}, so that it fills and senders are refused",
    )
    return parser


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process where it asks for a load that would prove nothing."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.spool_limit is None:
        asked.spool_limit = STALLED_SPOOL_MB if asked.stall else SPOOL_MB
    if asked.connections < LEAST_CONNECTIONS:
        parser.error(f"--connections must be {LEAST_CONNECTIONS} or more, so that each signal has one")
    if min(asked.servers, asked.publishers, asked.spool_limit) < 1:
        parser.error("--servers, --publishers and --spool-limit must be 1 or more")
    if asked.publishers > asked.servers:
        parser.error("--publishers must not be more than --servers: each publishes for one of them")
    if asked.stall >= asked.seconds:
        parser.error("--stall must be shorter than --seconds")
    return asked


def positive(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def main() -> None:
    asked = parsed()
    with tempfile.TemporaryDirectory(prefix="hitmap-load-", ignore_cleanup_errors=True) as home:
        verdict = run(
            Path(home),
            seconds=asked.seconds,
            connections=asked.connections,
            servers=asked.servers,
            publishers=asked.publishers,
            every_s=asked.every,
            stall_s=asked.stall,
            spool_mb=asked.spool_limit,
        )
    show(verdict)
    sys.exit(bool(verdict.broken))


if __name__ == "__main__":
    main()
