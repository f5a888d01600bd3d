"""How long advice on a large log takes, and what it finds: twelve applications, four of them with a planted fault.

    python -m benchmarks.advise [--requests 50000] [--rounds 3] [--replayed N] [--kvlint auto|COMMAND]

A seeded log (19 million tokens at 50,000 requests): a clock at the top, an id in the middle, ten lines shuffled, a
clock in 6 % of the requests, and eight applications without a fault. `hitmap advise` reads it in three forms, in turns:

* as the ids of its tokens, which nobody has to tokenise: what a cache hashes, and all that a chain of hashes knows;
* as messages, with approximate tokens;
* as messages, with a model's tokenizer and chat template.

All requests are replayed through the cache's rule, once for each set of rewrites that a gain is told of, unless
--replayed says how many of the last ones. kvlint reads the messages with the same tokenizer: with `auto` it is
installed from PyPI into an environment of its own, which takes minutes, and runs once. Requests a CPU second are the
median of the rounds (least to most); CPU seconds and peak memory are of the whole child process, its start included.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from hitmap.prompt_tokens import body_tokens

WORDS = (
    *("policy", "order", "returns", "shipping", "answer", "customer", "never", "always"),
    *("branch", "window", "member", "invoice", "support", "ticket"),
)
APPLICATIONS, LINES, LINE_WORDS = 12, 16, 10
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


class Run(NamedTuple):
    """A child process: what it printed, seconds by the clock and of CPU, and MB at its peak."""

    out: str
    clock: float
    cpu: float
    peak: float


def timed(command: Sequence[str]) -> Run:
    """Raises SystemExit where it fails."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        clock = time.perf_counter() - began
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{errors.read()[-2000:]}")
        return Run(out.read(), clock, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def as_ids(lines: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, object]]:
    """The same requests by the ids of their tokens."""
    tokens = body_tokens(str(MODEL))
    for one in lines:
        kept = {name: one[name] for name in ("request_id", "time", "session_id")}
        yield kept | {"prompt_token_ids": tokens(one).tolist()}


def written(file: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """The lines as a log."""
    with file.open("w") as log:
        log.writelines(json.dumps(one) + "\n" for one in lines)
    return file


def advise(log: Path, tokens: str, replayed: int) -> Run:
    """`hitmap advise`, which replays so many of the last requests."""
    code = (
        f"import analysis.advisor.advice as advice; advice.MOST_REPLAYED = {replayed}\n"
        "from hitmap.cli import cli; cli()"
    )
    return timed([sys.executable, "-c", code, "advise", str(log), "--json", "--tokenizer", tokens])


def line(name: str, requests: int, runs: Sequence[Run]) -> str:
    """The figures of some runs of the same."""
    a_second = [requests / run.cpu for run in runs]
    spread = f" ({min(a_second):,.0f} to {max(a_second):,.0f})" if len(runs) > 1 else ""
    return (
        f"{name:28} {statistics.median(a_second):6,.0f} requests a CPU second{spread},"
        f" {statistics.median(run.cpu for run in runs):.1f} s of CPU,"
        f" {statistics.median(run.clock for run in runs):.1f} s by the clock,"
        f" {max(run.peak for run in runs):,.0f} MB"
    )


def found(run: Run) -> str:
    """What it told."""
    told = json.loads(run.out)
    causes = (f"{one['cause']} {one['share']:.0%}" for one in told["suggestions"])
    tokens = told["prompt_tokens"] / 1e6
    return f"{told['replayed']:,} of {told['prompts']:,} replayed, {tokens:.1f} M tokens; {', '.join(causes)}"


def kvlint_at(folder: Path) -> str:
    """Its command, installed in this folder. Raises SystemExit with the reason where it cannot be."""
    venv.create(folder, with_pip=True)
    timed([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "kvlint"])
    return str(folder / "bin/kvlint")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replayed", type=int, help="the last ones; all by default")
    parser.add_argument("--kvlint", help="its command, or `auto` to install it")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        messages = written(Path(folder) / "messages.jsonl", requests(given.requests))
        ids = written(Path(folder) / "ids.jsonl", as_ids(requests(given.requests)))
        forms = {
            "token ids": (ids, "approximate"),
            "messages, approximate tokens": (messages, "approximate"),
            "messages, a model's tokens": (messages, str(MODEL)),
        }
        runs: dict[str, list[Run]] = {name: [] for name in forms}
        for _ in range(given.rounds):
            for name, form in forms.items():
                runs[name].append(advise(*form, given.replayed or given.requests))
        for name, own in runs.items():
            print(f"{line(name, given.requests, own)}\n    {found(own[-1])}", flush=True)
        if given.kvlint:
            try:
                lint = kvlint_at(Path(folder) / "kvlint") if given.kvlint == "auto" else given.kvlint
                own = [timed([lint, "lint", str(messages), "--model", str(MODEL)])]
            except (SystemExit, OSError) as error:
                print(f"kvlint: not run: {error}")
            else:
                print(line("kvlint lint", given.requests, own), own[0].out[-1500:], sep="\n")


if __name__ == "__main__":
    main()
