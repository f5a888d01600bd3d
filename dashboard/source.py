"""Where pages read: whoever serves them says once how a client of the store is opened, and what else they may use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clickhouse_connect.driver.client import Client

if TYPE_CHECKING:
    from analysis.advisor.consult import Tokens


Opener = Callable[[], AbstractContextManager[Client]]
"""A client that can look and not touch. It raises UserError where there is none, and on what ClickHouse complains of
while it is open."""


@dataclass(frozen=True)
class Source:
    """reader: as above. writer: a client that may write decisions about advice, None where nobody may. tokens: makes
    what tells tokens, None where nothing does."""

    reader: Opener
    writer: Opener | None = None
    tokens: Callable[[], Tokens] | None = None


_source: list[Source] = []


def use(reader: Opener, writer: Opener | None = None, tokens: Callable[[], Tokens] | None = None) -> None:
    """Pages of this process read through `reader` from now on."""
    _source[:] = [Source(reader, writer, tokens)]


def reader() -> AbstractContextManager[Client]:
    """A client for one look at the store."""
    return _source[0].reader()


def writer() -> AbstractContextManager[Client] | None:
    """A client for one decision, None where this dashboard writes nothing."""
    opener = _source[0].writer
    return opener() if opener else None


def may_write() -> bool:
    """Whether there is a writer."""
    return _source[0].writer is not None


def tokens() -> Tokens | None:
    """What tells tokens, new each time; None where nothing does."""
    make = _source[0].tokens
    return make() if make else None
