"""How long a heatmap takes over many block rows, and what keeping its counts costs when prompts are stored.

    python -m benchmarks.heatmap --blocks 20000000

Prompts are made inside a store of its own and inserted 5,000 at a time, as collectors do: conversations of five turns
that run beside each other, 40 templates with a system prompt of 30 blocks, 8 variants of the next 30, and every fifth
template with a clock behind its system prompt. `blocks` are rows of (prompt, position). Each figure is the median, with
the least and the most, of so many rounds of the whole heatmap: all layers, from the SQL to the cells.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clickhouse_connect.driver.client import Client

from analysis.heatmap.build import build
from store.client import connect
from store.embedded import ensure
from store.migrate import migrate

BATCH = 5_000
_BLOCKS = 102  # of a prompt, in the mean
_BEGIN = 1_795_953_600  # 2026-11-29T12:00
_PROMPTS = """
    SELECT toUInt64(number + {base:UInt64}) AS n, intDiv(n, 5000) * 1000 + n % 1000 AS session,
           intDiv(n % 5000, 1000) AS turn, toUInt64(pow((session * 7919) % 1000 / 1000, 2) * 40) AS kind,
           sipHash64('template', kind) AS template, session % 8 AS variant, toUInt32(60 + 14 * (turn + 1)) AS depth,
           concat('server-', toString(session % 4)) AS server, concat('chatcmpl-', hex(sipHash64(n))) AS request_id,
           fromUnixTimestamp64Micro(toInt64({begin:UInt64} * 1000000 + n * {apart:UInt64}), 'UTC') AS time
    FROM numbers({batch:UInt64})"""
_CHAINS = f"""
    INSERT INTO request_chains (time, server, model, request_id, told_by, prompt_tokens, block_size, template,
                                split_depth, blocks)
    SELECT time, server, 'm', request_id, 'tokenizer', depth * 16 + 5, 16, template,
           if(kind % 5 = 4, 30, 60 + 14 * turn),
           arrayMap(p -> sipHash64(server, template, p,
                                   multiIf(p < 30, 0, kind % 5 = 4, n + 10000, p < 60, variant + 1, session + 10000)),
                    range(depth))
    FROM ({_PROMPTS})"""
_REQUESTS = f"""
    INSERT INTO requests (time, server, model, dialect, request_id, span_id, prompt_tokens, cached_tokens, labels)
    SELECT time, server, 'm', 'vllm', request_id, n + 1, depth * 16 + 5,
           if(kind % 5 = 4, 30, 60 + 14 * turn) * 16, map('phase', if(n % 2 = 0, 'even', 'odd'))
    FROM ({_PROMPTS})"""


def fill(client: Client, prompts: int, base: int = 0, requests: bool = True) -> float:
    """Insert that many prompts over a day; seconds that the chains took."""
    taken = 0.0
    for begin in range(base, base + prompts, BATCH):
        parameters = {
            "base": begin,
            "batch": BATCH,
            "begin": _BEGIN,
            "apart": 86_400_000_000 // max(prompts, 1),
        }
        began = time.perf_counter()
        client.command(_CHAINS, parameters=parameters)
        taken += time.perf_counter() - began
        if requests:
            client.command(_REQUESTS, parameters=parameters)
    return taken


def timed(what: str, rounds: int, work: Callable[[], object]) -> None:
    """Print how long it takes."""
    work()  # files that are read for the first time are another matter
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    print(f"{what:<44} {statistics.median(taken):6.2f} s ({min(taken):.2f} to {max(taken):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="of the store, kept; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ensure(options.directory or Path(scratch)) as store:
        with connect(store.dsn) as client:
            migrate(client)
            prompts = -(-options.blocks // _BLOCKS // BATCH) * BATCH
            if not client.query("SELECT count() FROM chain_depths").result_rows[0][0]:
                taken = fill(client, prompts)
                print(
                    f"{prompts:,} prompts stored, {prompts * _BLOCKS / taken:,.0f} blocks/s with their depths"
                )
                _without(client, prompts)
        with connect(store.reader_dsn) as client:
            _look(client, options.rounds)


def _without(client: Client, prompts: int) -> None:
    """The same without the view, of another day, taken out again."""
    view = client.query("SHOW CREATE TABLE chain_bounds_feed").result_rows[0][0]
    some = min(prompts, 20 * BATCH)
    rates = {}
    for name in ("with", "without"):
        if name == "without":
            client.command("DROP TABLE chain_bounds_feed SYNC")
        taken = fill(client, some, base=prompts * (10 if name == "with" else 20), requests=False)
        rates[name] = some * _BLOCKS / taken
    client.command(str(view))
    for table in ("request_chains", "chain_depths", "chain_sample"):
        client.command(
            f"ALTER TABLE {table} DELETE WHERE time >= '2026-11-30 12:00:00' SETTINGS mutations_sync = 2"
        )
    print(f"into this store: {rates['with']:,.0f} blocks/s, without the view {rates['without']:,.0f}")


def _look(client: Client, rounds: int) -> None:
    blocks = client.query("SELECT sum(depth) FROM chain_depths").result_rows[0][0]
    distinct = client.query("SELECT count() FROM chain_blocks").result_rows[0][0]
    print(f"{blocks:,} block rows, {distinct:,} rows of contents")
    day = "2026-11-29T12:00/2026-11-30T12:00"
    for what, asked, by in (
        ("a day, by template", day, "template"),
        ("a day, by time", day, "time"),
        ("a day, one server of four", f"{day},server=server-1", "template"),
        ("a day, label phase=even", f"{day},phase=even", "template"),
    ):
        timed(what, rounds, lambda asked=asked, by=by: build(client, asked, by=by))  # type: ignore[misc]


if __name__ == "__main__":
    main()
