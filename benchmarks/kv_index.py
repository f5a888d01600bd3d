"""What the ingest of KV events costs: decoding, the block index, the rows; and what the index takes and leaves.

    python -m benchmarks.kv_index [BLOCKS]

Messages are made first, as vLLM publishes them: blocks of 16 tokens in chains of up to 64, a removal for each block
stored once 8,192 are held. CPU time is that of this thread, of rounds over fresh streams. Then one cache of BLOCKS
blocks (a million): its memory, by resident size of the process, and its file.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory

from cachemodel.content import ContentHasher
from cachemodel.kv_events import BlockRemoved, BlockStored, Event, KVEventBatch, encode_batch
from collector.kv.index import BlockIndex
from collector.kv.snapshot import SavedStream, load, save
from collector.kv.stream import KvStream, Message

BLOCK_TOKENS, HELD, ROUNDS = 16, 8192, 7
HASHER = ContentHasher(bytes(32))
START = 1.7e9


def stream_of(blocks: int, a_message: int, seed: int) -> list[tuple[int, float, bytes]]:
    """(number, time, payload) of messages that store so many blocks, `a_message` in each."""
    rnd = random.Random(seed)
    held: deque[int] = deque()
    chain: list[int] = []
    made = []
    for seq in range(blocks // a_message):
        if len(chain) >= 64:
            chain = chain[: rnd.choice((0, 0, 8, 32))]
        hashes = [rnd.getrandbits(64) for _ in range(a_message)]
        tokens = [rnd.randrange(128_000) for _ in range(BLOCK_TOKENS * a_message)]
        events: list[Event] = []
        if len(held) >= HELD:
            events.append(BlockRemoved([held.popleft() for _ in hashes], "GPU", 0))
        parent = chain[-1] if chain else None
        keys = [None] * a_message
        events.append(
            BlockStored(hashes, parent, tokens, BLOCK_TOKENS, medium="GPU", extra_keys=keys, group_idx=0)
        )
        chain += hashes
        held += hashes
        ts = START + seq / 100
        made.append((seq, ts, encode_batch(KVEventBatch(ts, events, 0))))
    return made


def round_of(messages: list[tuple[int, float, bytes]]) -> tuple[float, int]:
    """CPU seconds of taking all messages, and the rows that came of it."""
    stream = KvStream("bench", "kv", 0, hasher=HASHER)
    began = time.thread_time()
    rows = sum(e.rows for seq, ts, payload in messages for e in stream.take(Message.read(seq, payload, ts)))
    return time.thread_time() - began, rows


def main() -> None:
    for a_message in (1, 4, 64):
        messages = stream_of(32_768, a_message, a_message)
        taken = [round_of(messages) for _ in range(ROUNDS)]
        blocks = len(messages) * a_message
        rates = sorted(blocks / cpu_s for cpu_s, _ in taken)
        median = statistics.median(rates)
        print(
            f"{a_message:3} blocks a message: {median:8,.0f} blocks stored per CPU-second"
            f" ({rates[0]:,.0f} to {rates[-1]:,.0f}, {ROUNDS} rounds, {taken[0][1] / blocks:.2f} rows a block);"
            f" 3,000 a second take {300_000 / median:.1f} % of a core"
        )
    large(int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20)


def large(blocks: int) -> None:
    """One cache of many blocks: its memory and its file."""
    rnd = random.Random(0)
    before = _resident_mb()
    index = BlockIndex(HASHER)
    place, key = index.place("GPU", ""), 0
    began = time.thread_time()
    for number in range(blocks):
        parent, key = key, rnd.getrandbits(64)
        index.learn(index.hold(key, place), parent, (number % 4096, key, 0))
    took = time.thread_time() - began
    print(f"{blocks:,} blocks of one cache: {_resident_mb() - before:.0f} MB, {took:.1f} s of CPU to fill")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        began = time.perf_counter()
        save(path, "bench", HASHER, {"kv": SavedStream(START, 1, START, 1, {0: index})})
        saved = time.perf_counter()
        load(path, "bench", HASHER)
        loaded = time.perf_counter()
        size = path.stat().st_size / 1e6
        print(f"its file: {size:.0f} MB, written in {saved - began:.2f} s, read in {loaded - saved:.2f} s")


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


if __name__ == "__main__":
    main()
