"""A batch: what the spool seals, the writer carries and the store's rows are marked with."""

from __future__ import annotations

from typing import NamedTuple


class Batch(NamedTuple):
    """A sealed run of entries of one kind. `name` is what the store's rows carry, `token` one try to insert it."""

    id: int
    kind: str
    first: int
    last: int
    entries: int
    rows: int
    attempt: int
    name: str

    @property
    def token(self) -> str:
        return f"{self.name}-{self.attempt}"
