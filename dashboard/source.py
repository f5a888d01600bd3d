"""Where pages read: whoever serves them says once how a client of the store is opened, and what else they may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from clickhouse_connect.driver.client import Client
from numpy.typing import NDArray

from cachemodel.prompts.model import Part

Opener = Callable[[], AbstractContextManager[Client]]
"""A client that can look and not touch. It raises UserError where there is none, and on what ClickHouse complains of
while it is open."""


class Tokens(Protocol):
    """The prompt tokens of a request's body. name: of who tells them; untold: requests that have none, by reason;
    picture_tokens: that an image counts as."""

    name: str
    untold: dict[str, int]
    picture_tokens: int

    def __call__(self, body: Mapping[str, Any]) -> NDArray[np.uint32]:
        """Of one request; none where it has none, which is counted."""

    def ends(self, body: Mapping[str, Any], parts: Sequence[Part]) -> Sequence[int]:
        """Tokens of a request before the end of each of its parts."""

    def notes(self) -> Sequence[str]:
        """What to know of the tokens that were told, one sentence each."""


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
