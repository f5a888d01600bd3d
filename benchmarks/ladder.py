"""Blocks a second that the ladder takes, on one core: real coding-agent sessions behind a cache that is too small.

    python -m benchmarks.ladder ../shared/traces/agent-sessions-80.jsonl.xz

The trace (callanjfox/kv-cache-tester, Apache-2.0) is not part of the project. Sessions start 600 s apart; the cache is
LRU, gives up leaves first, and is simulated before the clock starts. The ladder is told no usage: all hits are its
estimate, and `off` says how many blocks that differs from the cache's own count. The rate is blocks per second of CPU
time, of all threads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import resource
import statistics
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Sent
from cachemodel.causes import LADDER, Eviction

APART_US = 600_000_000
PREFILL_US = 50_000
BLOCK = 64


def sessions(path: Path) -> list[tuple[int, int, list[int]]]:
    """(arrival in us, prompt tokens, chained block hashes) of each request, in order of arrival."""
    requests = []
    with lzma.open(path, "rt") as lines:
        for number, line in enumerate(lines):
            session = json.loads(line)
            begin = number * APART_US
            chain: list[int] = []
            ids: list[int] = []
            for request in _flat(session["requests"]):
                now = request["hash_ids"]
                same = next(
                    (at for at, (a, b) in enumerate(zip(now, ids, strict=False)) if a != b),
                    min(len(now), len(ids)),
                )
                del chain[same:]
                for block in now[same:]:
                    parent = chain[-1] if chain else number + 1
                    digest = hashlib.blake2b(b"%d %d" % (parent, block), digest_size=8).digest()
                    chain.append(int.from_bytes(digest, "little") or 1)
                ids = now
                prompt = max(request.get("in", 0), len(chain) * BLOCK)
                requests.append((begin + int(request["t"] * 1e6), prompt, chain.copy()))
    return sorted(requests, key=lambda request: request[0])


def _flat(requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those of agents within an agent among the others; their times are taken as they stand."""
    for request in requests:
        if request["type"] == "subagent":
            yield from _flat(request["requests"])
        else:
            yield request


class Cache:
    """LRU over blocks, leaves first: the leaf goes that was used longest ago. Tells its events as a server would."""

    def __init__(self, blocks: int) -> None:
        self._room = blocks
        self._parent: dict[int, int] = {}
        self._children: Counter[int] = Counter()
        self._used: dict[int, int] = {}
        self._leaves: list[tuple[int, int]] = []  # a heap; what is stale in it is passed over
        self._clock = 0
        self.events: list[tuple[int, int, int]] = []

    def serve(self, chain: list[int], now: int) -> int:
        """Look a prompt up, store the rest of it; returns blocks found."""
        hits = next((at for at, block in enumerate(chain) if block not in self._parent), len(chain))
        self._clock += 1
        for block in chain[:hits]:
            self._used[block] = self._clock
        if hits:
            heappush(self._leaves, (self._clock, chain[hits - 1]))
        for at in range(hits, min(len(chain), self._room)):
            if len(self._parent) >= self._room:
                self._drop(now)
            parent = chain[at - 1] if at else 0
            self._parent[chain[at]] = parent
            self._used[chain[at]] = self._clock
            self._children[parent] += 1
            self.events.append((now, Action.STORED, chain[at]))
        heappush(self._leaves, (self._clock, chain[min(len(chain), self._room) - 1]))
        return hits

    def _drop(self, now: int) -> None:
        while True:
            used, block = heappop(self._leaves)
            if self._used.get(block) == used and not self._children[block]:
                break
        parent = self._parent.pop(block)
        del self._used[block]
        self.events.append((now, Action.REMOVED, block))
        self._children[parent] -= 1
        if parent and not self._children[parent]:
            heappush(self._leaves, (self._used[parent], parent))


def columns(requests: list[tuple[int, int, list[int]]], caches: list[Cache]) -> tuple[Chains, Events]:
    """The trace as the ladder takes it, requests dealt to the caches in turn."""
    n, zero = len(requests), np.zeros(len(requests), np.int64)
    servers = tuple(f"server-{number}" for number in range(len(caches)))
    turn = np.arange(n) % len(caches)
    arrived = np.array([request[0] for request in requests])
    chains = Chains(
        servers=servers,
        server=turn,
        holder=turn,
        arrived=arrived,
        began=arrived,
        first_token=arrived + PREFILL_US,
        isolation=np.zeros(n, np.uint64),
        prompt=np.array([request[1] for request in requests]),
        cached=np.full(n, NOT_TOLD),
        recomputed=np.full(n, NOT_TOLD),
        block_size=np.full(n, BLOCK),
        reads_off=np.zeros(n, np.bool_),
        known=np.ones(n, np.bool_),
        offsets=np.cumsum([0, *(len(request[2]) for request in requests)]),
        blocks=np.concatenate([np.array(request[2], np.uint64) for request in requests]),
        split_depth=zero,
        split_tokens=zero,
        pieces_from=zero,
        piece_offsets=np.zeros(n + 1, np.int64),
        pieces=np.zeros(0, np.uint64),
        piece_tokens=np.zeros(0, np.int64),
    )
    rows = [(*event, number) for number, cache in enumerate(caches) for event in cache.events]
    rows.sort(key=lambda row: row[0])
    time_, action, content, holder = (list(column) for column in zip(*rows, strict=True))
    events = Events(
        holders=tuple((name, 0) for name in servers),
        time=np.array(time_, np.int64),
        holder=np.array(holder, np.int64),
        tier=np.zeros(len(rows), np.int64),
        action=np.array(action, np.int64),
        content=np.array(content, np.uint64),
        isolation=np.zeros(len(rows), np.uint64),
        joined=np.zeros(len(servers), np.int64),
    )
    return chains, events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--blocks", type=int, default=10_000, help="room of the cache")
    parser.add_argument("--replicas", type=int, default=1, help="caches, to which requests go in turn")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not options.trace.exists():
        sys.exit(f"there is no {options.trace}: the trace of agent sessions is not part of the project")
    requests = sessions(options.trace)
    caches = [Cache(options.blocks) for _ in range(options.replicas)]
    hits = np.array(
        [
            caches[number % len(caches)].serve(chain, at + PREFILL_US // 2)
            for number, (at, _, chain) in enumerate(requests)
        ]
    )
    chains, events = columns(requests, caches)
    blocks = len(chains.blocks)
    none = Sent(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))
    print(
        f"{chains.n:,} requests, {blocks:,} blocks, {len(events.time):,} events, {hits.sum() / blocks:.4f} hit"
    )
    del requests, caches

    rates = []
    for _ in range(options.rounds):
        began = time.process_time()
        climb(chains, events, none, none, {})
        rates.append(blocks / (time.process_time() - began))
    told = ", ".join(f"{rate / 1e6:.2f}" for rate in rates)
    print(f"million blocks/s: median {statistics.median(rates) / 1e6:.2f} of {told} (CPU time)")
    tracemalloc.start()
    ladder = climb(chains, events, none, none, {})
    print(
        f"arrays of the ladder at their peak: {tracemalloc.get_traced_memory()[1] / 1e9:.2f} GB beside the trace's own"
    )
    tracemalloc.stop()
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB, simulation included")
    usable = np.minimum(hits * BLOCK, (chains.prompt - 1) // BLOCK * BLOCK)
    print(f"off: {np.abs(ladder.served[:, 0] - usable).sum() // BLOCK:,} blocks")
    steps = np.diff(ladder.served, axis=1) - ladder.unknown[:, 1:]
    total = int(chains.prompt.sum())
    print(f"{'hits':12}{ladder.served[:, 0].sum() / total:8.4f}")
    for rung, tokens in zip(LADDER, steps.sum(axis=0).tolist(), strict=True):
        print(f"{rung.cause:12}{tokens / total:8.4f}")
    print(f"{'unknown':12}{ladder.unknown.sum() / total:8.4f}")
    for name, tokens in zip(Eviction, ladder.evicted.sum(axis=0).tolist(), strict=True):
        print(f"evicted by {name}: {tokens / total:.4f}")


if __name__ == "__main__":
    main()
