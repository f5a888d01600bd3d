"""How long advice takes where a store has hashes of prompts and no text, and whether it finds where they part.

    python -m benchmarks.advise_hashes [--requests 50000] [--rounds 3]

The log of benchmarks/advise.py, stored as `hitmap attach --capture hashes` stores it: keyed hashes of blocks and pieces
and nothing else. Timed is what `hitmap advise --in SET` does then, from its SQL to its sentences, in seconds of the
clock: the store works beside it on a core of its own. Median of the rounds (least to most).
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

from clickhouse_connect.driver.client import Client

from analysis.advisor.stored.prompts import read_prompts
from benchmarks.advise import requests
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from collector.chains.settings import Capture
from store.client import connect
from store.embedded import ensure
from store.migrate import migrate
from tests.analysis.advisor.stored_world import put

DAY = "2026-11-03/2026-11-05"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ensure(Path(scratch)) as store:
        with connect(store.dsn) as client:
            migrate(client)
            began = time.perf_counter()
            put(client, _prompts(options.requests), Capture.HASHES)
            print(f"{options.requests:,} requests hashed and stored in {time.perf_counter() - began:.0f} s")
        with connect(store.reader_dsn) as client:
            _look(client, options)


def _prompts(count: int) -> list[Prompt]:
    return [
        one
        for at, record in enumerate(requests(count))
        for one in read(record, f"log:{at}")
        if isinstance(one, Prompt)
    ]


def _look(client: Client, options: argparse.Namespace) -> None:
    ((tokens, blocks),) = client.query(
        "SELECT sum(prompt_tokens), sum(length(blocks)) FROM request_chains"
    ).result_rows
    print(f"{tokens:,} tokens in {blocks:,} blocks")
    taken = []
    for _ in range(options.rounds):
        began = time.perf_counter()
        found = read_prompts(client, DAY)
        taken.append(time.perf_counter() - began)
    rates = sorted(options.requests / one for one in taken)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{statistics.median(rates):,.0f} requests a second ({rates[0]:,.0f} to {rates[-1]:,.0f}), peak {peak:,.0f} MB"
        " beside the store (with the making of the log)"
    )
    for one in found.partings:
        print(f"  {one}")


if __name__ == "__main__":
    main()
