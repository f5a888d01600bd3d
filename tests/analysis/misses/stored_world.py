"""A small world (build.py) as rows of a store, told by clients whose clock is behind that of the servers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from clickhouse_connect.driver.client import Client

from analysis.misses.model import NOT_TOLD, Action
from tests.analysis.misses.build import BLOCK, Asked, World, contents, piece

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
CLIENT_BEHIND = timedelta(milliseconds=5)
Row = dict[str, Any]


Clock = Callable[[datetime], datetime]


def behind(at: datetime) -> datetime:
    """What the clock of a client shows, that of the server showing `at`."""
    return at - CLIENT_BEHIND


def whole_second(at: datetime) -> datetime:
    """What a log tells that keeps whole seconds only."""
    return at.replace(microsecond=0)


def put(
    client: Client, world: World, *, model: str = "m", prefix: str = "", clock: Clock = behind, **labels: str
) -> None:
    """Insert the requests r0, r1, ... with their chains, and the events. prefix: of the servers' names."""
    put_all(client, [(world, model, prefix)], clock=clock, **labels)


def put_all(
    client: Client, worlds: list[tuple[World, str, str]], *, clock: Clock = behind, **labels: str
) -> None:
    """Insert several worlds, each with its model and the prefix of its servers' names."""
    tables: dict[str, list[Row]] = {"requests": [], "request_chains": [], "kv_events": []}
    for world, model, prefix in worlds:
        for table, those in rows_of(world, model=model, clock=clock, **labels).items():
            tables[table] += [{**row, "server": prefix + row["server"]} for row in those]
    insert_all(client, tables)


def rows_of(world: World, *, model: str = "m", clock: Clock = behind, **labels: str) -> dict[str, list[Row]]:
    """A world as rows by table."""
    asked = sorted(world.asked, key=lambda one: one.at)
    chains = [_chain(f"r{n}", one, model, clock) for n, one in enumerate(asked) if one.known]
    chains += [
        {**_chain(f"s{n}", Asked("", at, server, salt=salt), model, clock), "blocks": [content]}
        for n, (content, at, server, salt) in enumerate(world.sent_rows)
    ]
    return {
        "requests": [_request(n, one, model, labels) for n, one in enumerate(asked)],
        "request_chains": chains,
        "kv_events": events_of(world),
    }


def insert_all(client: Client, tables: dict[str, list[Row]]) -> None:
    """Rows by table."""
    for table, those in tables.items():
        insert(client, table, those)


def insert(client: Client, table: str, rows: list[Row]) -> None:
    """Rows of which each has the same columns."""
    if rows:
        names = list(rows[0])
        client.insert(table, [[row[name] for name in names] for row in rows], column_names=names)


def keyed(client: Client) -> None:
    """Make the requests be found by their ids, as the collector does."""
    client.command("INSERT INTO request_keys SELECT sipHash64(request_id), toDateTime(time) FROM requests")


def moment(at: int) -> datetime:
    """A time of the world, milliseconds."""
    return START + timedelta(milliseconds=at)


def _request(number: int, one: Asked, model: str, labels: dict[str, str]) -> Row:
    first = one.at + 20 if one.first is None else one.first
    began = one.at if one.began is None else one.began
    return {
        "time": moment(one.at),
        "server": one.server,
        "model": model,
        "dialect": "vllm",
        "request_id": f"r{number}",
        "span_id": number + 1,
        "ttft_us": None if first == NOT_TOLD else (first - one.at) * 1000,
        "queue_us": (began - one.at) * 1000,
        "prompt_tokens": len(one.word) * BLOCK + one.more,
        "cached_tokens": None if one.cached == NOT_TOLD else one.cached,
        "recomputed_tokens": None if one.recomputed == NOT_TOLD else one.recomputed,
        "labels": {**labels, "word": one.word},
    }


def _chain(request_id: str, one: Asked, model: str, clock: Clock = behind) -> Row:
    return {
        "time": clock(moment(one.at)),
        "server": one.server,
        "model": model,
        "request_id": request_id,
        "told_by": "tokenizer",
        "prompt_tokens": len(one.word) * BLOCK + one.more,
        "block_size": BLOCK,
        "isolation": one.salt,
        "template": 7,
        "reads_off": "an option" if one.reads_off else "",
        "blocks": contents(one.word),
        "split_depth": one.split[0] if one.split else len(one.word) + 1,
        "split_tokens": one.split[1] if one.split else 0,
        "pieces_from": one.pieces_from,
        "pieces": [piece(name) for name, _ in one.pieces],
        "piece_tokens": [tokens for _, tokens in one.pieces],
    }


def events_of(world: World) -> list[Row]:
    """A message each; a restart begins another life."""
    rows, lives = [], {}
    seqs: dict[tuple[str, int], int] = {}
    for at, server, rank, action, tier, content, salt in sorted(world.rows, key=lambda row: row[0]):
        holder = (server, rank)
        if action is Action.RESTART:
            lives.pop(holder, None)
            seqs.pop(holder, None)
        seqs[holder] = seqs.get(holder, -1) + 1
        of_block = content != 0
        rows.append(
            {
                "time": moment(at),
                "server": server,
                "source": "kv",
                "rank": rank,
                "epoch": lives.setdefault(holder, moment(at)),
                "seq": seqs[holder] + (1 if action is Action.GAP else 0),
                "pos": 1 if of_block or action is Action.CLEARED else 0,
                "action": action.name.lower(),
                "block": content if of_block else None,
                "content": content if of_block else None,
                "isolation": salt if of_block else None,
                "local": content % 1_000_003 if action is Action.STORED else None,
                "block_size": BLOCK if of_block else None,
                "token_count": BLOCK if action is Action.STORED else None,
                "tier": ("device", "host", "remote")[tier] if of_block else "",
            }
        )
        if action is Action.GAP:
            seqs[holder] += 1
    return rows
