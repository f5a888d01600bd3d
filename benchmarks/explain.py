"""How long `hitmap explain` takes for one request out of many.

    python -m benchmarks.explain [--requests 10000000] [--blocks 10000000] [--rounds 30] [--keep DIR]

fills a store of its own with requests over a day, the chains of one in a hundred of them (sessions of five turns that
grow by 100 blocks each) and what befell their blocks, lets merges end, and explains requests drawn from those with a
chain. Prints the median and spread of the whole call (queries and analysis, a warm store), and the sizes of the tables.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from benchmarks.running import cpu_of, settle
from store.client import connect
from store.embedded import ensure
from store.migrate import migrate

TURNS, NEW_BLOCKS, BLOCK = 5, 100, 16
DAY = "toDateTime64('2026-11-29 00:00:00', 6, 'UTC')"
SERVERS = 4
WITH_CHAIN = 100  # one request in so many


def main() -> None:
    options = _options()
    with _folder(options.keep) as folder, ensure(folder) as store:
        client = connect(store.dsn, timeout_s=3600)
        migrate(client)
        sessions = options.blocks // (TURNS * NEW_BLOCKS)
        if not client.query("SELECT count() FROM kv_block_events").result_rows[0][0]:
            begun = time.monotonic()
            _fill(client, options.requests, sessions)
            settle(store.pid)
            print(f"filled in {time.monotonic() - begun:.0f} s")
        for table in (
            "requests",
            "request_keys",
            "request_chains",
            "chain_blocks",
            "kv_events",
            "kv_block_events",
        ):
            print(f"  {table}: {client.query(f'SELECT count() FROM {table}').result_rows[0][0]:,}")
        _measure(connect(store.reader_dsn), store.pid, sessions, options.rounds)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The store's folder: one of its own that goes in the end, or one that stays and is filled once."""
    if keep:
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _measure(client: Client, store_pid: int, sessions: int, rounds: int) -> None:
    rng = np.random.default_rng(1)
    explain(client, _request_id(0))  # imports, and the first look into each file
    took, cpu, tokens = [], [], []
    for session in rng.integers(0, sessions, rounds).tolist():
        turn = int(rng.integers(0, TURNS))
        begun, used = time.perf_counter(), cpu_of(store_pid) + time.process_time()
        found = explain(client, _request_id(session * TURNS + turn))
        took.append(1000 * (time.perf_counter() - begun))
        cpu.append(1000 * (cpu_of(store_pid) + time.process_time() - used))
        tokens.append(found.prompt)
        assert sum(run.end - run.start for run in found.runs) == found.prompt
    low, _, high = statistics.quantiles(took, n=4)
    print(
        f"explained {rounds} requests of {min(tokens):,} to {max(tokens):,} tokens:"
        f" median {statistics.median(took):.0f} ms, quartiles {low:.0f} to {high:.0f},"
        f" least {min(took):.0f}, most {max(took):.0f};"
        f" CPU of both processes {statistics.median(cpu):.0f} ms in the middle;"
        f" load average {os.getloadavg()[0]:.1f}"
    )


def _fill(client: Client, requests: int, sessions: int) -> None:
    """Requests come evenly over the day; each session stays on one server, its turns a minute apart."""
    settings = {"max_partitions_per_insert_block": 1000, "max_insert_threads": 1, "max_threads": 2}
    microseconds = f"toIntervalMicrosecond(intDiv(number * 86400000000, {requests}))"
    client.command(
        f"""
        INSERT INTO requests (time, server, model, dialect, request_id, span_id, ttft_us, e2e_us, queue_us, prefill_us,
                              decode_us, frontend_us, other_us, prompt_tokens, cached_tokens, completion_tokens, run)
        SELECT {DAY} + {microseconds}, concat('vllm-', toString(number % {SERVERS})), 'llama', 'vllm',
               concat('chatcmpl-other-', hex(sipHash64(number))), sipHash64(number), 30000, 900000, 1000, 25000, 870000,
               4000, 0, 800 + number % 4000, intDiv((800 + number % 4000) % 3500, 16) * 16, 100, 1
        FROM numbers({requests - sessions * TURNS})""",
        settings=settings,
    )
    ours = f"""
        SELECT number AS n, intDiv(number, {TURNS}) AS session, number % {TURNS} AS turn,
               {DAY} + toIntervalMicrosecond(intDiv(session * 80000000000, {sessions}) + turn * 60000000) AS time,
               concat('vllm-', toString(session % {SERVERS})) AS server, (turn + 1) * {NEW_BLOCKS} AS depth,
               concat('chatcmpl-', toString(number)) AS request_id
        FROM numbers({sessions * TURNS})"""
    client.command(
        f"""
        INSERT INTO requests (time, server, model, dialect, request_id, span_id, ttft_us, e2e_us, queue_us, prefill_us,
                              decode_us, frontend_us, other_us, prompt_tokens, cached_tokens, completion_tokens, run)
        SELECT time, server, 'llama', 'vllm', request_id, n + 1, 30000, 900000, 1000, 25000, 870000, 4000, 0,
               depth * {BLOCK} + 5, if(turn > 0 AND session % 2, turn * {NEW_BLOCKS * BLOCK}, 0), 100, 1
        FROM ({ours})""",
        settings=settings,
    )
    client.command(
        f"INSERT INTO servers (time, server, kind, models) SELECT {DAY}, concat('vllm-', toString(number)), 'vllm',"
        f" ['llama'] FROM numbers({SERVERS})"
    )
    client.command("INSERT INTO request_keys SELECT sipHash64(request_id), toDateTime(time) FROM requests")
    client.command(
        f"""
        INSERT INTO request_chains (time, server, model, request_id, told_by, prompt_tokens, block_size, isolation,
            template, reads_off, blocks, split_depth, split_tokens, pieces_from, pieces, piece_tokens)
        SELECT time, server, 'llama', request_id, 'tokenizer', depth * {BLOCK} + 5, {BLOCK}, 0, 1, '',
               arrayMap(i -> sipHash64(session, i), range(depth)), turn * {NEW_BLOCKS}, 3,
               turn * {NEW_BLOCKS * BLOCK}, arrayMap(i -> sipHash64(session, turn, i, 'p'), range(200)),
               arrayMap(i -> 8, range(200))
        FROM ({ours})""",
        settings={**settings, "max_block_size": 4096, "min_insert_block_size_rows": 16384},
    )
    # sessions with an even number lost their blocks after the turn that stored them
    client.command(
        f"""
        INSERT INTO kv_events (time, server, source, rank, epoch, seq, pos, action, block, parent, depth, content,
                               isolation, local, block_size, medium, tier, token_count)
        SELECT time + toIntervalMicrosecond(action_number * 20000000 + 20000), server, 'kv', 0, {DAY},
               n * 2 + action_number, i + 1, if(action_number = 0, 'stored', 'removed'), sipHash64(session, depth_of),
               NULL, depth_of, sipHash64(session, depth_of), 0, sipHash64(session, depth_of, 'l'), {BLOCK}, 'GPU',
               'device', {BLOCK}
        FROM
        (
            SELECT *, i + turn * {NEW_BLOCKS} AS depth_of FROM
            (
                SELECT *, arrayJoin(if(session % 2, [0], [0, 1])) AS action_number,
                       arrayJoin(range({NEW_BLOCKS})) AS i
                FROM ({ours})
            )
        )""",
        settings=settings,
    )


def _request_id(number: int) -> str:
    return f"chatcmpl-{number}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--blocks", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--keep", type=Path, help="a folder for the store that stays: it is filled once (2 GB)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
