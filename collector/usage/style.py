"""The form in which every response's usage comes out, and how a style is written down: as the rows of one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cachemodel.prompts.fields import field as at

MAX_TOKENS = 2**32 - 1
MAX_SECONDS = 1e6
Record = Mapping[str, Any]
Found = dict[str, int]  # field of Usage -> value


@dataclass(frozen=True, slots=True)
class Usage:
    """What a response says of itself; None is what it does not say. Times are the server's, in microseconds."""

    prompt_tokens: int | None = None  # all of them, cached ones included
    cached_tokens: int | None = None  # served by any tier
    created_tokens: int | None = None  # computed, and kept in a cache that is billed or counted
    device_tokens: int | None = None
    host_tokens: int | None = None
    remote_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_us: int | None = None
    e2e_us: int | None = None
    queue_us: int | None = None
    prefill_us: int | None = None
    decode_us: int | None = None


def number(value: object) -> float | None:
    """A JSON number as a float; None for what is none, or is beyond the range of one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def tokens(value: object) -> int | None:
    """A believable count of tokens."""
    count = number(value)
    return int(count) if count is not None and 0 <= count <= MAX_TOKENS else None


def seconds(value: object) -> int | None:
    """A believable duration in seconds, as whole microseconds."""
    told = number(value)
    return round(told * 1e6) if told is not None and 0 <= told <= MAX_SECONDS else None


def milliseconds(value: object) -> int | None:
    """A believable duration in milliseconds, as whole microseconds."""
    told = number(value)
    return None if told is None else seconds(told / 1e3)


@dataclass(frozen=True)
class Row:
    """Where a style says one field of Usage: the sum of some places in the response.

    A place is names joined by dots; `=field` is what was found for a field before. Every place of `needed` has to be
    there; those of `also` count where they are there; nothing at all says nothing. trap: what is easily got wrong.
    """

    field: str
    needed: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    read: Callable[[object], int | None] = tokens
    trap: str = ""

    def value(self, response: Record, found: Found) -> int | None:
        """What the response says in these places."""
        told = []
        for place in self.needed:
            if (part := self._part(place, response, found)) is None:
                return None
            told.append(part)
        told += [part for place in self.also if (part := self._part(place, response, found)) is not None]
        if len(told) < 2:
            return told[0] if told else None
        return tokens(sum(told))

    def _part(self, place: str, response: Record, found: Found) -> int | None:
        return found.get(place[1:]) if place[0] == "=" else self.read(at(response, place))


@dataclass(frozen=True)
class Style:
    """How one API or server words it.

    It applies to a response with a value in any of the places `marks`, and in the place `within` if there is one. Of
    several rows for one field the first that says something counts. settle: a last look at what was found, where the
    parts show what the whole leaves out.
    """

    name: str
    marks: tuple[str, ...]
    rows: tuple[Row, ...]
    within: str = ""
    settle: Callable[[Found, Record], None] | None = None

    def applies(self, response: Record) -> bool:
        """Whether the response is worded in this style."""
        for place in self.marks:
            if at(response, place) is not None:
                return not self.within or at(response, self.within) is not None
        return False

    def fill(self, found: Found, response: Record) -> None:
        """Add what the response says of fields for which nothing was found before."""
        for row in self.rows:
            if row.field not in found and (value := row.value(response, found)) is not None:
                found[row.field] = value
        if self.settle:
            self.settle(found, response)
