"""How well a canary measures the engine: what it finds, over what the engine's own counters say of the same requests.

    python -m benchmarks.canary [--rounds 5] [--longest 3000] [ENGINE OPTIONS ...]

Starts `hitmap engine serve` (the demo model with a host and a disk tier) as a process of its own. After each request of
the canary the engine's `request_layer_seconds` are read: their growth is that request's time in each layer. A load is
the layer of its tier and what the lookup takes longer than on the device, since that is where room is made for it. The
same loads are compared, in the median of each length (of the longest it is `tier.load_ms`), and the line through them.
Prints a line a round and the spread; the aim is 10 % for prefill and 20 % for loads.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from collector.canary import Budget, HttpTransport, Options, Report, robust, run
from collector.canary.measures.loads import FIXED_NAME, MS_NAME, WHOLE_NAME, Loads
from collector.canary.measures.tiers import WARM
from collector.canary.wire import Answer
from collector.fetch import get

ENGINE = ("--device-blocks", "256", "--host-blocks", "768", "--disk-blocks", "4096", "--threads", "1")
LAYERS = ("prefill", "prefix", "host", "remote")
BUDGET = Budget(requests=5_000, tokens=2_000_000, seconds=600, rate=1000)
_SUM = re.compile(r'^hitmap_engine_request_layer_seconds_sum\{layer="(\w+)"\} (\S+)$', re.MULTILINE)
_ENDED = re.compile(r"^hitmap_engine_requests_finished_total\S* (\S+)$", re.MULTILINE)


class Watched(HttpTransport):
    """Keeps, for each generating request, what was told of its tokens and its milliseconds by layer."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._url = url
        self.seen: list[tuple[Mapping[str, int], dict[str, float]]] = []

    def send(self, path: str, body: Any, headers: Any, timeout_s: float, *, fresh: bool = False) -> Answer:
        if "completions" not in path:
            return super().send(path, body, headers, timeout_s, fresh=fresh)
        ended, before = self._look()
        answer = super().send(path, body, headers, timeout_s, fresh=fresh)
        while (now := self._look())[0] <= ended:
            time.sleep(0.002)
        self.seen.append((answer.told, {name: 1e3 * (now[1][name] - before[name]) for name in LAYERS}))
        return answer

    def _look(self) -> tuple[float, dict[str, float]]:
        text = get(f"{self._url}/metrics").body.decode()
        sums = dict.fromkeys(LAYERS, 0.0) | {name: float(value) for name, value in _SUM.findall(text)}
        return sum(map(float, _ENDED.findall(text))), sums


def prefill(url: str, longest: int) -> tuple[float, float]:
    """Found and true milliseconds a token."""
    transport = Watched(url)
    report = run(transport, url, ("prefill",), Options(longest=longest), BUDGET)
    cold = [(told["prompt_tokens"] - told["cached_tokens"], ms["prefill"]) for told, ms in transport.seen[2:]]
    truth = robust.slope(cold[first : first + 5] for first in range(0, len(cold), 5))
    transport.close()
    return _value(report, "prefill.ms_per_token", ""), truth.value if truth else float("nan")


def loads(url: str, longest: int) -> dict[str, tuple[float, float]]:
    """By tier and length, and the line through them: found and true milliseconds of a load."""
    transport = Watched(url)
    report = run(transport, url, ("tiers",), Options(longest=longest), BUDGET)
    transport.close()
    found = {}
    for tier in ("host", "remote"):
        told = next((f for f in report.findings if (f.name, f.subject) == (WHOLE_NAME, tier)), None)
        if told is None:
            continue
        measured = Loads(dict(enumerate(told.inputs["rounds"]))).by_tokens()
        truth = Loads({0: _loads_of(transport, tier)}).by_tokens()
        fixed, slope = _value(report, FIXED_NAME, tier), _value(report, MS_NAME, tier)
        for tokens, ms in measured.items():
            true = truth[tokens].value
            found[f"{tier} {tokens:,.0f}"] = ms.value, true
            found[f"{tier} line at {tokens:,.0f}"] = fixed + slope * tokens, true
    return found


def _loads_of(transport: Watched, tier: str) -> list[robust.Point]:
    """(tokens, ms) by the engine of what was loaded from this tier alone and asked for again at once."""
    points = []
    for at, (told, ms) in enumerate(transport.seen):
        again = transport.seen[at + 1 : at + 1 + WARM]
        same = all(_on_device(t) and t["cached_tokens"] == told["cached_tokens"] for t, _ in again)
        if told.get(f"{tier}_tokens") and len(again) == WARM and same:
            quick = statistics.median(warm["prefix"] for _, warm in again)
            points.append((float(told[f"{tier}_tokens"]), ms[tier] + ms["prefix"] - quick))
    return points


def _on_device(told: Mapping[str, int]) -> bool:
    return bool(told.get("device_tokens")) and not told["host_tokens"] and not told["remote_tokens"]


def _value(report: Report, name: str, subject: str) -> float:
    values = [
        f.value for f in report.findings if (f.name, f.subject) == (name, subject) and f.value is not None
    ]
    return values[0] if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--longest", type=int, default=3000)
    asked, engine = parser.parse_known_args()
    command = [
        sys.executable,
        "-m",
        "hitmap",
        "engine",
        "serve",
        "--port",
        "0",
        "--grpc-port",
        "0",
        *ENGINE,
        *engine,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        url = next(m[0] for line in process.stderr if (m := re.search(r"http://\S+?(?=[;\s])", line)))
        ratios: dict[str, list[float]] = {}
        for number in range(asked.rounds):
            got = {"prefill": prefill(url, asked.longest)} | loads(url, asked.longest)
            for name, (found, truth) in got.items():
                ratios.setdefault(name, []).append(found / truth)
                print(
                    f"round {number + 1}  {name:20} found {found:9.4f}  true {truth:9.4f}  ratio {found / truth:6.3f}"
                )
        for name, told in sorted(ratios.items()):
            spread = f"{min(told):.3f} to {max(told):.3f}"
            print(f"{name:20} median ratio {statistics.median(told):.3f} ({spread}, {len(told)} rounds)")
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
