"""TensorRT-LLM's events over HTTP, from a server that forgets what it told. Made from its field names, not recorded."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from cachemodel.errors import UserError
from collector.kv.pull import SOURCE, KvPull
from collector.kv.stream import Position
from collector.spool import Spool
from collector.tally import Tally
from tests.collector.support import HASHER, take, wait_until
from tests.conftest import Database

Row = dict[str, Any]


class Engine:
    """A server with a buffer of events that a POST drains; `answer` replaces what it says next."""

    def __init__(self) -> None:
        self.pending: list[object] = []
        self.answers: deque[tuple[int, bytes]] = deque()
        self.requests: list[tuple[str, str, str]] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = (self.command, self.path, self.headers.get("Authorization", ""))
                engine.requests.append(asked)
                drained, engine.pending = engine.pending, []
                status, body = (
                    engine.answers.popleft() if engine.answers else (200, json.dumps(drained).encode())
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.sqlite", Tally())
    yield opened
    opened.close()


def item(event_id: int, kind: str, rank: int | None = None, **data: Any) -> dict[str, Any]:
    beside = {} if rank is None else {"attention_dp_rank": rank}
    return {"event_id": event_id, "data": {"type": kind, **data}, "window_size": 4096, **beside}


def stored(event_id: int, *blocks: int, parent: int | None = None, rank: int | None = None) -> dict[str, Any]:
    told = [
        {
            "block_hash": b,
            "tokens": [{"token_id": b, "token_extra_id": 0}] * 32,
            "cache_level": 0,
            "priority": 35,
        }
        for b in blocks
    ]
    return item(event_id, "stored", rank, parent_hash=parent, blocks=told)


def removed(event_id: int, *blocks: int, rank: int | None = None) -> dict[str, Any]:
    return item(event_id, "removed", rank, block_hashes=list(blocks))


def polled(pull: KvPull, engine: Engine, *items: object) -> None:
    engine.pending = list(items)
    pull.poll()


def brief(row: Row) -> tuple[Any, ...]:
    return row["seq"], row["action"], row.get("block"), row.get("depth"), row.get("tier")


def test_a_life_of_a_server(engine: Engine, spool: Spool) -> None:
    pull = KvPull("s", engine.url, spool, hasher=HASHER)
    down = {"type": "event_diff", "old_value": 0, "new_value": 1}
    polled(
        pull,
        engine,
        item(0, "created", num_blocks_per_cache_level=[1000, 250]),
        stored(1, 10, 11),
        stored(2, 12, parent=11),
        item(3, "updated", block_hash=11, cache_level=down, priority=None),
    )
    polled(pull, engine)
    polled(pull, engine, removed(4, 11, 12))
    rows = take(spool, "kv_events")
    assert [brief(row) for row in rows] == [
        (0, "created", None, None, None),
        (1, "stored", 10, 0, "device"),
        (1, "stored", 11, 1, "device"),
        (2, "stored", 12, 2, "device"),
        (3, "removed", 11, 1, "device"),
        (3, "stored", 11, 1, "host"),
        (4, "removed", 11, 1, "host"),
        (4, "removed", 12, 2, "device"),
    ]
    assert {(row["source"], row["rank"], row["server"]) for row in rows} == {(SOURCE, 0, "s")}
    assert {row["group_idx"] for row in rows} == {4096}
    assert json.loads(rows[1]["detail"]) == {"priority": 35}
    assert rows[0]["time"] < rows[-1]["time"], "the server tells no times: an event has that of its answer"
    assert "times are those of reading" in pull.status().detail
    assert [request[:2] for request in engine.requests] == [("POST", "/kv_cache_events")] * 3


def test_what_was_lost_shows_as_a_gap_and_ids_that_begin_again_as_a_restart(
    engine: Engine, spool: Spool
) -> None:
    pull = KvPull("s", engine.url, spool, hasher=HASHER)
    polled(pull, engine, stored(7, 1))
    polled(pull, engine, stored(8, 2, parent=1), stored(12, 3, parent=2))
    polled(pull, engine, item(0, "created", num_blocks_per_cache_level=[1000]), stored(1, 1))
    rows = take(spool, "kv_events")
    assert [(row["seq"], row["action"]) for row in rows] == [
        (0, "gap"),
        (7, "stored"),
        (8, "stored"),
        (9, "gap"),
        (12, "stored"),
        (0, "restart"),
        (0, "created"),
        (1, "stored"),
    ]
    assert [json.loads(r["detail"])["missing"]["count"] for r in rows if r["action"] == "gap"] == [7, 3]
    assert len({row["epoch"] for row in rows}) == 2
    counts = pull.status().counts
    assert (counts["gaps"], counts["missing"], counts["restarts"]) == (2, 10, 1)


def test_ranks_number_their_own_events(engine: Engine, spool: Spool) -> None:
    pull = KvPull("s", engine.url, spool, hasher=HASHER)
    polled(pull, engine, stored(0, 1, rank=0), stored(0, 1, rank=1), stored(1, 2, parent=1, rank=1))
    rows = take(spool, "kv_events")
    assert [(row["rank"], row["seq"], row["action"]) for row in rows] == [
        (0, 0, "stored"),
        (1, 0, "stored"),
        (1, 1, "stored"),
    ]


def test_bad_answers_are_told_and_survived(engine: Engine, spool: Spool) -> None:
    pull = KvPull("s", engine.url, spool, hasher=HASHER)
    for status, body, words in (
        (404, b"", "HTTP 404"),
        (401, b"", "pass --api-key"),
        (200, b"<html>", "not JSON"),
        (200, b'{"error": 1}', "not a list of events"),
        (302, b"", "HTTP 302"),
    ):
        engine.answers.append((status, body))
        pull.poll()
        assert (pull.status().state, words in pull.status().detail) == ("failing", True), pull.status()
    polled(pull, engine, "nonsense", item(0, "stored", blocks=[{"block_hash": None}]), stored(1, 5))
    rows = take(spool, "kv_events")
    assert [(row["seq"], row["action"]) for row in rows] == [(0, "gap"), (0, "unknown"), (1, "stored")]
    counts = pull.status().counts
    assert (counts["failed"], counts["malformed"], counts["unreadable"]) == (5, 1, 1)
    assert pull.status().state == "running"


def test_a_server_without_a_buffer_is_told_what_it_needs(engine: Engine, spool: Spool) -> None:
    pull = KvPull("s", engine.url, spool, hasher=HASHER)
    polled(pull, engine)
    assert pull.status().state == "waiting"
    assert "event_buffer_max_size" in pull.status().detail


def test_it_runs_until_stopped_and_sends_its_key(engine: Engine, spool: Spool) -> None:
    pull = KvPull("s", engine.url + "/", spool, hasher=HASHER, interval_s=0.01, token="k")
    pull.start()
    engine.pending = [stored(0, 1)]
    wait_until(lambda: pull.status().counts.get("rows"))
    wait_until(lambda: len(engine.requests) > 3)
    pull.stop()
    assert {request[2] for request in engine.requests} == {"Bearer k"}
    assert len(take(spool, "kv_events")) == 1


def test_nothing_is_drained_before_the_store_has_told_where_it_stood(engine: Engine, spool: Spool) -> None:
    def unreachable(rank: int) -> Mapping[str, Position]:
        raise ConnectionError(rank)

    with pytest.raises(ConnectionError):
        KvPull("s", engine.url, spool, hasher=HASHER, positions=unreachable).poll()
    assert engine.requests == []
    position = Position(1.7e9, 6, 1.7e9 + 5)
    pull = KvPull("s", engine.url, spool, hasher=HASHER, positions=lambda rank: {SOURCE: position})
    polled(pull, engine, item(7, "stored", parent_hash=1, blocks=[{"block_hash": 2, "tokens": []}]))
    (row,) = take(spool, "kv_events")
    assert (row["epoch"], row["seq"]) == (1.7e9, 7), "the life goes on, without a gap"


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://"])
def test_no_address(url: str, spool: Spool) -> None:
    with pytest.raises(UserError, match="is not the address of a server"):
        KvPull("s", url, spool, hasher=HASHER).start()


def test_its_rows_are_what_the_store_takes(engine: Engine, spool: Spool, db: Database) -> None:
    pull = KvPull("s", engine.url, spool, hasher=HASHER)
    polled(
        pull,
        engine,
        item(0, "created", num_blocks_per_cache_level=[1000, 250]),
        stored(1, 2**64 - 1, 11),
        item(2, "updated", block_hash=11, cache_level=None, priority={"old_value": 35, "new_value": 80}),
        stored(5, 12, parent=11),
    )
    sealed = spool.seal("kv_events", 1_000_000, 1 << 30)
    assert sealed is not None
    db.client.raw_insert("kv_events", insert_block=spool.payload(sealed), fmt="JSONEachRow")
    rows = db.client.query(
        "SELECT seq, action, block, tier, token_count FROM kv_events ORDER BY seq, pos"
    ).result_rows
    assert rows == [
        (0, "created", None, "", None),
        (1, "stored", 2**64 - 1, "device", 32),
        (1, "stored", 11, "device", 32),
        (2, "updated", 11, "", None),
        (3, "gap", None, "", None),
        (5, "stored", 12, "device", 32),
    ]
