"""The `--store` option, the same on every command that needs a store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from cachemodel.errors import UserError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from clickhouse_connect.driver.exceptions import ClickHouseError

Decorated = Callable[..., Any]


def store_option(function: Decorated) -> Decorated:
    """Adds `--store DSN` as the argument `store`, None for the embedded store."""
    return click.option(
        "--store",
        envvar="HITMAP_STORE",
        metavar="DSN",
        help="A ClickHouse server, http://user:password@host:8123/database (or $HITMAP_STORE). "
        "Default: the embedded store in $HITMAP_HOME or ~/.local/share/hitmap, started when needed.",
    )(function)


@contextmanager
def open_store(dsn: str | None) -> Iterator[str]:
    """The DSN to use; the embedded store runs at least as long as the context."""
    from store.embedded import ensure

    with _store_words():
        if dsn:
            yield dsn
            return
        with ensure() as embedded:
            yield embedded.dsn


@contextmanager
def open_reader(dsn: str | None) -> Iterator[Client]:
    """A client that can look and not touch, of a migrated embedded store; of a server, whatever its DSN may do."""
    from store.client import connect
    from store.embedded import ensure
    from store.migrate import migrate

    with _store_words(), ExitStack() as stack:
        if not dsn:
            embedded = stack.enter_context(ensure())
            with connect(embedded.dsn) as writer:
                migrate(writer)
            dsn = embedded.reader_dsn
        yield stack.enter_context(connect(dsn))


@contextmanager
def open_client(dsn: str | None) -> Iterator[Client]:
    """A client of a migrated store."""
    from store.client import connect
    from store.migrate import migrate

    with open_store(dsn) as address:
        client = connect(address)
        migrate(client)
        try:
            yield client
        finally:
            client.close()


@contextmanager
def _store_words() -> Iterator[None]:
    """What ClickHouse complains of becomes one line: its own words, without its list of grammar."""
    from clickhouse_connect.driver.exceptions import ClickHouseError

    try:
        yield
    except ClickHouseError as error:
        raise UserError(f"the store says: {store_said(error)}") from None


def store_said(error: ClickHouseError) -> str:
    """A complaint of ClickHouse in its own words, or that nobody answered; on one line."""
    message = str(error)
    if "ConnectionPool" in message:
        return "it does not answer any more"
    said = (message.partition("server response: ")[2] or message).partition(" (for url")[0]
    said = re.sub(r"Expected one of: .*?(?=\(|$)", "", said, flags=re.DOTALL)
    return " ".join(said.split())
