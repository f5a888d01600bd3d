"""Databases with hitmap's tables: making one takes a second of ClickHouse's time, emptying one some milliseconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from clickhouse_connect.driver.client import Client

from store.client import connect
from store.migrate import migrate

_TABLES = "SELECT name, create_table_query FROM system.tables WHERE database = {name:String} ORDER BY name"
_MIGRATIONS = "SELECT number, checksum FROM {name:Identifier}.hitmap_migrations ORDER BY number"
_AT_WORK = "SELECT count() FROM system.processes WHERE current_database = {name:String}"
_FILLED = """
SELECT DISTINCT table FROM system.parts
WHERE database = {name:String} AND active AND rows > 0 AND table != 'hitmap_migrations'
"""


@dataclass
class Database:
    """A database of its own and a stock client on it."""

    dsn: str
    client: Client


@dataclass
class Databases:
    """Those of one store. root: a client that is in none of them. dsn: of the store, without a database."""

    root: Client
    dsn: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _spare: list[tuple[str, Any]] = field(default_factory=list)

    @contextmanager
    def fresh(self) -> Iterator[Database]:
        """A new one, without tables."""
        name = f"t{next(self._numbers)}"
        self.root.command(f"CREATE DATABASE {name}")
        with connect(f"{self.dsn}/{name}") as client:
            yield Database(f"{self.dsn}/{name}", client)
        self.root.command(f"DROP DATABASE {name}")

    @contextmanager
    def migrated(self) -> Iterator[Database]:
        """One whose tables are as the schema files say, and empty. It may be the one of an earlier test, if that left
        tables and migrations as they were and nobody works on it any more."""
        name, made_of = self._spare.pop() if self._spare else self._new()
        with connect(f"{self.dsn}/{name}") as client:
            yield Database(f"{self.dsn}/{name}", client)
        if self._ask(_AT_WORK, name) == [(0,)] and self._made_of(name) == made_of:
            self.empty(name)
            self._spare.append((name, made_of))
        else:
            self.root.command(f"DROP DATABASE {name}")

    def empty(self, name: str) -> None:
        """Take all rows out of that database. Its tables forget what they were given before: a batch may come again."""
        for (table,) in self._ask(_FILLED, name):
            self.root.command(f"TRUNCATE TABLE {name}.{table}")

    def _new(self) -> tuple[str, Any]:
        name = f"t{next(self._numbers)}"
        self.root.command(f"CREATE DATABASE {name}")
        with connect(f"{self.dsn}/{name}") as client:
            migrate(client)
        return name, self._made_of(name)

    def _made_of(self, name: str) -> tuple[Any, Any]:
        """Its tables with their definitions, and the migrations it remembers."""
        tables = self._ask(_TABLES, name)
        known = any(table == "hitmap_migrations" for table, _ in tables)
        return tables, self._ask(_MIGRATIONS, name) if known else []

    def _ask(self, sql: str, name: str) -> Any:
        return self.root.query(sql, parameters={"name": name}).result_rows
