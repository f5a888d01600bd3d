"""What a page fault costs more while it is counted: ours by thread, beside perf stat and bpftrace, in one run.

    python -m benchmarks.probes_kernel [--rounds 8] [--json]        (as root; about a minute)

A process reads pages for the first time (the zero page), writes them for the first time, and goes through memory it
has: that loop faults nowhere, and must not be slower. Every round measures each way once, in an order that turns, and
the same process with nothing attached. A measurement is the thread's own CPU time, the best of some repetitions, since
whatever else runs here only adds to it; told is the median of the differences within a round, and their quartiles.
Further: what one reading costs the process that reads (the mean, over three seconds), what it takes to start, and what
a reading of the calling thread costs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from probes.kernel.sensor import KernelSensor
from probes.kernel.thread import ThreadCounters

PAGES = 8192
REPEATS = 15
LOOPS = ("read", "write", "resident")
BPFTRACE = {
    "bpftrace count() by pid, tracepoint": "tracepoint:exceptions:page_fault_user",
    "bpftrace count() by pid, perf event": "software:page-faults:1",
}
SETTLE_S = 0.3


def loop() -> None:
    """The measured process: for each line of input nanoseconds a page, of each loop."""
    memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    data = bytes(PAGES)

    def once(what: str) -> float:
        if what != "resident":
            memory.madvise(mmap.MADV_DONTNEED)
        else:
            memory[:: mmap.PAGESIZE]
        started = time.thread_time_ns()
        if what == "write":
            memory[:: mmap.PAGESIZE] = data
        else:
            memory[:: mmap.PAGESIZE]
        return (time.thread_time_ns() - started) / PAGES

    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip():
            start_idle(int(line))
        print(json.dumps({what: min(once(what) for _ in range(REPEATS)) for what in LOOPS}), flush=True)


def start_idle(count: int) -> None:
    """So many threads that wait for ever, each after its first faults."""
    threading.stack_size(64 * 1024)
    forever = threading.Event()
    for _ in range(count):
        threading.Thread(target=forever.wait, daemon=True).start()


class Measured:
    """The process with the loops."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.probes_kernel", "--loop"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._out.readline()

    def once(self, idle: int | None = None) -> dict[str, float]:
        """Measures; before that, starts threads."""
        self._in.write("\n" if idle is None else f"{idle}\n")
        self._in.flush()
        answer: dict[str, float] = json.loads(self._out.readline())
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def attached(way: str, pid: int) -> Iterator[None]:
    """While that way counts the faults of `pid`."""
    if way == "ours by thread":
        sensor = KernelSensor([pid], threads=True)
        if sensor.gaps():
            sys.exit(f"eBPF does not work here: {sensor.gaps()[0].why}. Needs: {sensor.gaps()[0].needs}")
        sensor.read()
        yield
        sensor.close()
        return
    if way == "nothing":
        yield
        return
    command = (
        ["perf", "stat", "-e", "page-faults", "-p", str(pid)]
        if way == "perf stat"
        else [
            "bpftrace",
            "-e",
            f'{BPFTRACE[way]} {{ @[pid] = count(); }} interval:ms:100 {{ printf("on\\n"); }}',
        ]
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        if way in BPFTRACE:
            while process.stdout.readline().strip() not in (b"on", b""):
                pass
        time.sleep(SETTLE_S)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)
            process.kill()


def compare(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Nanoseconds a page of each loop, by way and round."""
    ways = ["nothing", "ours by thread"]
    ways += ["perf stat"] if shutil.which("perf") else []
    ways += list(BPFTRACE) if shutil.which("bpftrace") else []
    measured = Measured()
    found: dict[str, dict[str, list[float]]] = {way: {what: [] for what in LOOPS} for way in ways}
    measured.once()
    for number in range(rounds):
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            with attached(way, measured.pid):
                for what, nanoseconds in measured.once().items():
                    found[way][what].append(nanoseconds)
    measured.end()
    return found


def differences(found: dict[str, dict[str, list[float]]]) -> list[dict[str, object]]:
    """Of each way from nothing: median, quartiles, and percent of the median of nothing."""
    rows: list[dict[str, object]] = []
    for way, loops in found.items():
        for what, values in loops.items():
            base = found["nothing"][what]
            more = [value - nothing for value, nothing in zip(values, base, strict=True)]
            low, middle, high = statistics.quantiles(more, n=4) if len(more) > 1 else more * 3
            alone = statistics.median(base)
            rows.append(
                {
                    "way": way,
                    "loop": what,
                    "ns": statistics.median(values),
                    "added_ns": middle,
                    "quartiles": [low, high],
                    "added_percent": 100 * middle / alone,
                }
            )
    return rows


def reading(idle: int, hz: float = 10, seconds: float = 3.0) -> dict[str, float]:
    """Cost of `read` in the process that reads, of a server with so many idle threads, each of which had faults."""
    measured = Measured()
    started = time.perf_counter()
    sensor = KernelSensor([measured.pid], threads=True)
    up = time.perf_counter() - started
    measured.once(idle)
    for _ in range(3):
        sensor.read()
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        time.sleep(1 / hz)
        before = time.process_time()
        sensor.read()
        took.append(time.process_time() - before)
    sensor.close()
    measured.end()
    cpu = statistics.fmean(took)
    return {
        "threads": idle + 1,
        "cpu_ms": cpu * 1e3,
        "percent_of_a_core": 100 * cpu * hz,
        "start_ms": up * 1e3,
    }


def in_process() -> dict[str, float]:
    """Nanoseconds of one reading at the edge of a span, and of one difference."""
    counters = ThreadCounters()
    first, last = counters.read(), counters.read()
    calls = 50_000

    def each(call: Callable[[], object]) -> float:
        return statistics.median(timeit.repeat(call, number=calls, repeat=5)) / calls * 1e9

    return {"read_ns": each(counters.read), "delta_ns": each(lambda: counters.delta(first, last))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = differences(compare(options.rounds))
    reads = [reading(idle) for idle in (0, 60, 1000, 10_000)]
    edges = in_process()
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if options.json:
        print(
            json.dumps(
                {
                    "faults": rows,
                    "reads": reads,
                    "thread_counters": edges,
                    "rss_mb": megabytes,
                    "cpus": os.cpu_count(),
                }
            )
        )
        return
    print(f"{'':38} {'loop':9} {'ns a page':>9} {'added ns':>9} {'quartiles':>15} {'percent':>8}")
    for row in rows:
        low, high = row["quartiles"]  # type: ignore[misc]
        print(
            f"{row['way']:38} {row['loop']:9} {row['ns']:9.0f} {row['added_ns']:+9.0f} "
            f"{low:+7.0f}{high:+8.0f} {row['added_percent']:+7.1f}%"
        )
    for read in reads:
        print(
            f"one reading at 10 Hz of a process with {read['threads']:.0f} threads: {read['cpu_ms']:.2f} ms of CPU, "
            f"{read['percent_of_a_core']:.1f} % of a core; started in {read['start_ms']:.0f} ms"
        )
    print(f"ThreadCounters: read {edges['read_ns']:.0f} ns, delta {edges['delta_ns']:.0f} ns")
    print(f"memory of the process that reads: {megabytes:.0f} MB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loop"]:
        loop()
    else:
        main()
