"""A database that the tests of a module share, empty at the beginning of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client

from tests.databases import Databases


@pytest.fixture(scope="module")
def shared(databases: Databases) -> Iterator[Client]:
    """A client of the module's database."""
    with databases.migrated() as database:
        yield database.client


@pytest.fixture
def store(shared: Client, databases: Databases) -> Client:
    """The same, its tables emptied."""
    databases.empty(str(shared.database))
    return shared
