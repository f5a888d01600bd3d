"""A database that the tests of a module share, empty at the beginning of each: making one takes a second."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from store.client import connect
from store.embedded import Embedded
from store.migrate import migrate
from tests.analysis.misses.captured import database

_TABLES = (
    *("requests", "request_keys", "request_chains", "chain_blocks", "chain_pieces", "chain_sizes"),
    *("prompts", "segments"),
    *("kv_events", "kv_block_events", "kv_marks", "kv_lives", "kv_orphans", "servers", "findings"),
)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(store_server: Embedded) -> Iterator[Client]:
    """A client of the module's database."""
    with database(store_server, f"misses{next(_numbers)}") as dsn:
        client = connect(dsn)
        migrate(client)
        yield client
        client.close()


@pytest.fixture
def store(shared: Client) -> Client:
    """The same, its tables emptied."""
    filled = shared.query(
        "SELECT DISTINCT table FROM system.parts WHERE active AND database = {name:String}",
        parameters={"name": shared.database},
    ).result_rows
    for (table,) in filled:
        if table in _TABLES:
            shared.command(f"TRUNCATE TABLE {table}")
    return shared
