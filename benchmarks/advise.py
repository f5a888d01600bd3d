"""How long advice on a large log takes, and what it finds: twelve applications, four of them with a planted fault.

    python -m benchmarks.advise [--requests 50000] [--kvlint PATH]

A seeded log (24 million tokens at 50,000 requests): a clock at the top, an id in the middle, ten lines shuffled, a
clock in 6 % of the requests, and eight applications without a fault. kvlint, where its command is given, reads the same
log with the same tokenizer. CPU seconds and peak memory are of the child process.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

WORDS = (
    *("policy", "order", "returns", "shipping", "answer", "customer", "never", "always"),
    *("branch", "window", "member", "invoice", "support", "ticket"),
)
APPLICATIONS, LINES, LINE_WORDS = 12, 22, 14
MODEL = Path(__file__).parents[1] / "tests/data/vllm-0.32/model"


def requests(count: int, seed: int = 1) -> Iterator[dict[str, object]]:
    """Lines of the log."""
    chance, at = random.Random(seed), datetime(2026, 11, 3, 9, 30, tzinfo=UTC)
    heads = [_lines(random.Random(f"{seed} {number}")) for number in range(APPLICATIONS)]
    for number in range(count):
        at += timedelta(seconds=chance.expovariate(20))
        application = chance.randrange(APPLICATIONS)
        lines = _faulty(heads[application], application, at, chance)
        asked = " ".join(chance.choices(WORDS, k=40)) + f" {chance.random():.9f}?"
        yield {
            "request_id": f"r{number}",
            "time": at.timestamp(),
            "session_id": f"s{chance.randrange(4000)}",
            "messages": [
                {"role": "system", "content": "\n".join(lines)},
                {"role": "user", "content": asked},
            ],
        }


def _lines(chance: random.Random) -> list[str]:
    return [" ".join(chance.choices(WORDS, k=LINE_WORDS)) + "." for _ in range(LINES)]


def _faulty(head: Sequence[str], application: int, at: datetime, chance: random.Random) -> list[str]:
    lines = list(head)
    if application == 0:
        lines.insert(0, f"Now: {at.isoformat()}")
    elif application == 1:
        lines.insert(3, f"Request {uuid.UUID(int=chance.getrandbits(128))}")
    elif application == 2:
        moved = lines[5:15]
        chance.shuffle(moved)
        lines[5:15] = moved
    elif application == 3 and chance.random() < 0.06:
        lines.insert(0, f"It is {at:%H:%M:%S}")
    return lines


def timed(command: Sequence[str]) -> tuple[str, float, float, float]:
    """Its output, seconds by the clock and of CPU, and MB at its peak (of the largest child so far)."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return out, time.perf_counter() - began, cpu, after.ru_maxrss / 1024


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--kvlint", help="its command, to read the same log")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        with log.open("w") as file:
            for one in requests(given.requests):
                file.write(json.dumps(one) + "\n")
        for tokens in ("approximate", str(MODEL)):
            words = [sys.executable, "-m", "hitmap", "advise", str(log), "--json", "--tokenizer", tokens]
            out, clock, cpu, peak = timed(words)
            told = json.loads(out)
            found = [f"{one['cause']} {one['share']:.0%}" for one in told["suggestions"]]
            print(
                f"hitmap advise, tokens by {Path(tokens).name}: {clock:.1f} s by the clock, {cpu:.1f} s of CPU"
                f" ({given.requests / cpu:,.0f} requests a CPU second), {peak:,.0f} MB; {', '.join(found)}",
                flush=True,
            )
        if given.kvlint:
            out, clock, cpu, peak = timed([given.kvlint, "lint", str(log), "--model", str(MODEL)])
            print(
                f"kvlint lint: {clock:.1f} s by the clock, {cpu:.1f} s of CPU"
                f" ({given.requests / cpu:,.0f} requests a CPU second), {peak:,.0f} MB\n{out[-1500:]}"
            )


if __name__ == "__main__":
    main()
