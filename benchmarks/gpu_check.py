"""Runs every GPU probe on a real card and says whether what it tells can be true.

    python -m benchmarks.gpu_check [--json] [--seconds 3]

One table: what was read, in which phase, the range in which it must lie, and the verdict. Phases: idle; then, where
torch with CUDA is installed, a matmul on tensor cores, a kernel that streams through 2 GiB, one that stays within 8 MiB
(so its L2 hits must differ), and copies from the host. Takes less than five minutes; needs nothing but the standard
library and nvidia-ml-py, and torch for the loads. Exit codes: 0 all is plausible, 1 something is not, 2 something
that a phase must show was not told, 3 no GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cachemodel import observed
from probes.gpu.bursts import CuptiSensor
from probes.gpu.counters import SETS
from probes.gpu.cupti import CuptiCollector
from probes.gpu.nvml import Refused
from probes.gpu.sensor import GpuSensor
from probes.gpu.support import support
from probes.reading import Gap, Reading

LIMIT_S = 200.0
"""No phase is begun after this."""
GIB = float(1 << 30)
BIG, SMALL = 2 << 30, 8 << 20
"""Bytes of the buffers of the streaming and the resident kernel; L2 of a Hopper has 50 MiB, of a Blackwell 126."""


@dataclass(frozen=True, slots=True)
class Check:
    """verdict: yes, NO, or not told (then `why` says the reason)."""

    what: str
    phase: str
    seen: float | None
    low: float
    high: float
    why: str = ""

    @property
    def verdict(self) -> str:
        """Whether what was seen lies in the range."""
        if self.seen is None:
            return "not told"
        return "yes" if self.low <= self.seen <= self.high else "NO"


Values = dict[tuple[str, ...], list[float]]
"""By metric and the values of its attributes, what each read told."""


def general_range(metric: str, limit: float) -> tuple[float, float]:
    """In which every value of it must lie. limit: bytes of device memory."""
    if metric == "hitmap.gpu.clock":
        return 1e8, 1e10
    if metric.startswith("hw.gpu.memory") and observed.BY_NAME[metric].unit == "By":
        return 0.0, limit
    return (0.0, 1.0) if observed.BY_NAME[metric].unit == "1" else (0.0, math.inf)


def keyed(readings: Sequence[Reading], gpu: str) -> Iterator[tuple[tuple[str, ...], Reading]]:
    """Those of that GPU itself, by metric and attributes."""
    for one in readings:
        if one.pid is None and (observed.GPU_ID, gpu) in one.attributes:
            labels = [value for key, value in one.attributes if not key.startswith("hw.")]
            yield (one.metric, *labels), one


def sampled(sensor: GpuSensor, gpu: str, seconds: float) -> tuple[Values, list[float]]:
    """Values over so long, counters as what was added a second, and how long each read took."""
    values: Values = {}
    took: list[float] = []
    sensor.read()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(0.2)
        for key, one in keyed(sensor.read(), gpu):
            values.setdefault(key, []).append(one.value)
        took.append(sensor.read_s)
    for key, series in values.items():
        if observed.BY_NAME[key[0]].kind == "counter":
            values[key] = [(series[-1] - series[0]) / seconds]
    return values, took


@contextmanager
def running(step: Callable[[], None] | None) -> Iterator[None]:
    """Repeats the step on a thread until the block ends."""
    if step is None:
        yield
        return
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            step()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    time.sleep(0.5)  # until it is warm
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=30)


def loads() -> tuple[dict[str, Callable[[], None]], str]:
    """What each phase repeats, and why there is none."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # NVML's order
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return {}, "torch is not installed"
    if not torch.cuda.is_available():
        return {}, "torch sees no CUDA device"
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    big = torch.zeros(BIG, device="cuda", dtype=torch.uint8)
    small = torch.zeros(SMALL, device="cuda", dtype=torch.uint8)
    host = torch.zeros(1 << 28, dtype=torch.uint8).pin_memory()

    def repeat(times: int, step: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(times):
                step()
            torch.cuda.synchronize()

        return run

    return {
        "matmul": repeat(20, lambda: a @ a),
        "streaming": repeat(50, lambda: big.add_(1)),
        "resident": repeat(2000, lambda: small.add_(1)),
        "copies": repeat(8, lambda: big[: 1 << 28].copy_(host, non_blocking=True)),
    }, ""


MUST: tuple[tuple[str, tuple[str, ...], float, float], ...] = (
    # phase, metric with its attributes' values, and the range of the median; of a counter, a second
    ("idle", ("hitmap.gpu.tensor.active", "any"), 0.0, 0.05),
    ("matmul", ("hw.gpu.utilization",), 0.8, 1.0),
    ("matmul", ("hitmap.gpu.sm.active",), 0.7, 1.0),
    ("matmul", ("hitmap.gpu.tensor.active", "any"), 0.3, 1.0),
    ("matmul", ("hitmap.gpu.tensor.active", "hmma"), 0.3, 1.0),
    ("streaming", ("hitmap.gpu.dram.utilization",), 0.5, 1.0),
    ("streaming", ("hitmap.gpu.tensor.active", "any"), 0.0, 0.05),
    ("resident", ("hitmap.gpu.dram.utilization",), 0.0, 0.3),
    ("copies", ("hw.gpu.io", "receive"), 1 * GIB, 130 * GIB),
)
CUPTI_MUST: tuple[tuple[str, tuple[str, ...], float, float], ...] = (
    ("matmul", ("hitmap.gpu.tensor.active", "any"), 0.3, 1.0),
    ("streaming", ("hitmap.gpu.tensor.active", "any"), 0.0, 0.05),
    ("resident", ("hitmap.gpu.l2.hit_ratio",), 0.8, 1.0),
)


def checks_of(values: Values, gaps: Sequence[Gap], phase: str, limit: float, by: str = "") -> Iterator[Check]:
    """Every value in its general range, and the medians of what the phase must show. by: "cupti ", or nothing."""
    for key, series in sorted(values.items()):
        low, high = general_range(key[0], limit)
        worst = next((value for value in series if not low <= value <= high), statistics.median(series))
        yield Check(by + " ".join(key), phase, worst, low, high)
    for of, key, low, high in CUPTI_MUST if by else MUST:
        if of == phase:
            seen = statistics.median(values[key]) if key in values else None
            whys = [
                f"{gap.why} ({gap.needs})" if gap.needs else gap.why
                for gap in gaps
                if by or key[0] in gap.what
            ]
            yield Check(
                f"{by}{' '.join(key)} (must)", phase, seen, low, high, "; ".join(whys) or "no reading"
            )


def cupti_values(gpu: tuple[str, str]) -> tuple[Values, Sequence[Gap]]:
    """Some bursts of every set on CUDA's first device, enough for each of its forms."""
    ahead = 0.0  # of the clock: the pauses that spare a server are skipped here
    try:
        sensor = CuptiSensor(CuptiCollector(0), gpu, clock=lambda: time.monotonic() + ahead)
    except Refused as refusal:
        return {}, [Gap("cupti", refusal.why, refusal.needs)]
    found: Values = {}
    for _ in range(max(map(len, SETS)) * len(SETS)):
        ahead += sensor.due_in()
        sensor.once()
        for key, one in keyed(sensor.read(), gpu[0]):
            found.setdefault(key, []).append(one.value)
    sensor.close()
    return found, sensor.gaps()


def apart(
    what: str, values: dict[str, Values], key: tuple[str, ...], phases: tuple[str, str], least: float
) -> Check:
    """By how much the first phase's median is above the second's."""
    medians = [statistics.median(values[of][key]) for of in phases if key in values.get(of, {})]
    seen = medians[0] - medians[1] if len(medians) == 2 else None
    return Check(f"{what}: {' - '.join(phases)}", "both", seen, least, 1.0, "not told of both")


def own_memory(sensor: GpuSensor, expected: float, limit: float) -> Check:
    """What the driver says this process has; in a container it may know it by another pid."""
    own = [one.value for one in sensor.read() if one.pid == os.getpid()]
    why = "the driver knows this process by another pid (a container's), or not at all"
    return Check(
        "hw.gpu.memory.usage of this process", "loaded", own[0] if own else None, expected, limit, why
    )


def run(seconds: float) -> tuple[list[Check], dict[str, Any]] | None:
    """All checks and what was seen beside them; None where there is no GPU."""
    began = time.monotonic()
    sensor = GpuSensor()
    first = sensor.read()
    if not first:
        return None
    labels = dict(first[0].attributes)
    gpu = (labels[observed.GPU_ID], labels[observed.GPU_NAME])
    limit = next((one.value for one in first if one.metric == "hw.gpu.memory.limit"), math.inf)
    steps, why = loads()
    checks: list[Check] = []
    values: dict[str, Values] = {}
    found: dict[str, Values] = {}
    took: list[float] = []
    idle: dict[str, Callable[[], None] | None] = {"idle": None}
    for phase, step in {**idle, **steps}.items():
        if time.monotonic() - began > LIMIT_S:
            checks.append(Check("all", phase, None, 0, 0, f"{LIMIT_S:.0f} s are over"))
            continue
        with running(step):
            values[phase], reads = sampled(sensor, gpu[0], seconds)
            took += reads
            checks += checks_of(values[phase], sensor.gaps(), phase, limit)
            if step is not None:
                found[phase], gaps = cupti_values(gpu)
                checks += checks_of(found[phase], gaps, phase, limit, "cupti ")
    if steps:
        within, beyond = "resident", "streaming"
        checks.append(apart("cupti L2 hits", found, ("hitmap.gpu.l2.hit_ratio",), (within, beyond), 0.1))
        checks.append(apart("DRAM used", values, ("hitmap.gpu.dram.utilization",), (beyond, within), 0.2))
        checks.append(own_memory(sensor, BIG, limit))
    checks.append(Check("seconds of a read (median)", "all", statistics.median(took), 0.0, 0.05))
    about = {
        "gpu": gpu[1],
        "uuid": gpu[0],
        "no loads because": why,
        "read_s": {"median": statistics.median(took), "longest": max(took), "reads": len(took)},
        "gaps": [gap._asdict() for gap in sensor.gaps()],
        "support": [asdict(row) for row in support()],
        "seconds": time.monotonic() - began,
    }
    sensor.close()
    return checks, about


def table(checks: Sequence[Check], about: dict[str, Any]) -> Iterator[str]:
    """Lines for people."""
    yield f"{about['gpu']} {about['uuid']}"
    for row in about["support"]:
        yield f"  {row['name']}: {row['state']}: {row['how']}" + (
            f"; needs {row['needs']}" if row["needs"] else ""
        )
    wide = max(len(check.what) for check in checks)
    yield f"{'metric':{wide}}  {'phase':9}  {'seen':>12}  {'plausible':>25}  verdict"
    for check in checks:
        seen = "-" if check.seen is None else f"{check.seen:.5g}"
        span = f"{check.low:.4g} .. {check.high:.4g}"
        why = f": {check.why}" if check.seen is None else ""
        yield f"{check.what:{wide}}  {check.phase:9}  {seen:>12}  {span:>25}  {check.verdict}{why}"
    for gap in about["gaps"]:
        yield f"gap: {gap['what']}: {gap['why']}" + (f" (needs {gap['needs']})" if gap["needs"] else "")
    if about["no loads because"]:
        yield f"only idle: {about['no loads because']}"
    reads = about["read_s"]
    yield (
        f"a read took {reads['median'] * 1e3:.2f} ms (median of {reads['reads']}, "
        f"longest {reads['longest'] * 1e3:.2f} ms); all took {about['seconds']:.0f} s"
    )


def main() -> int:
    """Prints the table, or JSON; see the module for the exit codes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a phase (at most 20)")
    options = parser.parse_args()
    outcome = run(min(max(options.seconds, 0.5), 20.0))
    if outcome is None:
        without = [asdict(row) for row in support()]
        if options.json:
            print(json.dumps({"gpu": None, "support": without}))
        else:
            print("no GPU to check:")
            for row in without:
                print(f"  {row['name']}: {row['state']}: {row['how']}")
        return 3
    checks, about = outcome
    if options.json:
        print(
            json.dumps({**about, "checks": [{**asdict(check), "verdict": check.verdict} for check in checks]})
        )
    else:
        print("\n".join(table(checks, about)))
    verdicts = {check.verdict for check in checks}
    return 1 if "NO" in verdicts else 2 if "not told" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
