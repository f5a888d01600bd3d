"""Which servers could have served each other's prompts: those of one model, together a fleet.

Contents name tokens, and models share tokenizers: what is compared over servers is compared within a fleet only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at, hours
from analysis.misses.model import Hashes, Ints
from analysis.misses.standing import standing

_AROUND_US = 300_000_000  # of the requests in question: what else a server was asked for then
_APART = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Fleets:
    """servers: those in question and all that could have served their prompts, sorted. fleet: of each, by index."""

    servers: tuple[str, ...]
    fleet: Ints

    def apart(self, hashes: Hashes, server: Ints) -> Hashes:
        """Hashes under which those of different fleets never meet. server: (n,) of each, index of `servers`."""
        if not self.fleet.any():
            return hashes
        keys = np.array(
            [number * _APART % (1 << 64) for number in range(int(self.fleet.max()) + 1)], np.uint64
        )
        return hashes ^ keys[self.fleet[server]]


def fleets(
    client: Client,
    servers: Iterable[str],
    begin: int,
    end: int,
    attached: Mapping[str, set[str]] | None = None,
) -> Fleets:
    """The fleets of some servers, from the models that they were attached with; where one was not attached, from those
    that all were asked for around those times, in microseconds since 1970. attached: as in `Standing.models`, where it
    has been read."""
    asked = sorted(set(servers))
    told = standing(client).models if attached is None else attached
    models = {server: set(names) for server, names in told.items()}
    if not all(models.get(server) for server in asked):
        rows = client.query(
            f"""
            SELECT server, model FROM requests
            WHERE time >= {at("begin")} AND time <= {at("end")} AND {hours(begin - _AROUND_US, end + _AROUND_US)}
            GROUP BY server, model
            """,
            parameters={"begin": begin - _AROUND_US, "end": end + _AROUND_US},
        ).result_rows
        for server, name in rows:
            if name:
                models.setdefault(str(server), set()).add(str(name))
    return grouped(asked, models)


def grouped(asked: Sequence[str], models: dict[str, set[str]]) -> Fleets:
    """Fleets of the asked servers, given the models of all there are; a server of no known model is one alone."""
    fleet_of: dict[str, int] = {}
    number = 0
    for first in asked:
        if first in fleet_of:
            continue
        found, known = {first}, set(models.get(first, ()))
        while joined := {s for s, names in models.items() if s not in found and names & known}:
            found |= joined
            known |= {name for server in joined for name in models[server]}
        fleet_of |= dict.fromkeys(found, number)
        number += 1
    names = tuple(sorted(fleet_of))
    return Fleets(names, np.array([fleet_of[name] for name in names], dtype=np.int64))
