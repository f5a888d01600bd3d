"""Where the pages read: whoever serves them says once how a client of the store is opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from clickhouse_connect.driver.client import Client

Opener = Callable[[], AbstractContextManager[Client]]
"""A client that can look and not touch. It raises UserError where there is none, and on what ClickHouse complains of
while it is open."""

_opener: list[Opener] = []


def use(opener: Opener) -> None:
    """Pages of this process read through `opener` from now on."""
    _opener[:] = [opener]


def reader() -> AbstractContextManager[Client]:
    """A client for one look at the store."""
    return _opener[0]()
