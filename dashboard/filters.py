"""What a page shows, as one value that lives in the address: a link shows somebody else the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from analysis.misses.choice import group_of
from analysis.selection import parse_set, parse_time
from cachemodel.errors import UserError
from dashboard.text import in_browser

LONGEST = 500  # characters of a value in an address
MOST_CONDITIONS = 20
UNITS = ("share", "tokens")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which requests, and how they are shown.

    begin, end: as analysis.selection writes times, `-1h`, `now`, ISO. server, model: empty for all. where: conditions
    of analysis.selection, all of which hold. by: what lines are grouped by. unit: of bars. request: the one that is
    explained, empty for none, and its server, empty where the id says enough.
    """

    begin: str = "-1h"
    end: str = "now"
    server: str = ""
    model: str = ""
    where: tuple[str, ...] = ()
    by: str = "server"
    unit: str = "share"
    request: str = ""
    request_server: str = ""

    @property
    def selection(self) -> str:
        """The requests in the language of analysis.selection, as `hitmap misses` takes them."""
        terms = [f"{self.begin}/{self.end}"]
        terms += [f"{n}={literal(v)}" for n, v in (("server", self.server), ("model", self.model)) if v]
        return ",".join([*terms, *self.where])

    @property
    def request_of(self) -> str:
        """The server whose request is looked at, empty where its id has to say enough; `*` in a name names none."""
        return self.request_server or ("" if "*" in self.server else self.server)

    def query(self) -> dict[str, list[str]]:
        """The part of an address after `?`. Times always stand in it, the rest where it is not the default."""
        found = {"from": [self.begin], "to": [self.end]}
        for field in dataclasses.fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                found[_NAME_OF.get(field.name, field.name)] = (
                    list(value) if field.name == "where" else [value]
                )
        return found


_NAME_OF = {"begin": "from", "end": "to"}
_FIELDS = {_NAME_OF.get(field.name, field.name): field for field in dataclasses.fields(Filters)}


def literal(value: str) -> str:
    """A value as a condition takes it: a comma would end the condition, so * stands for it."""
    return value.replace(",", "*")


def from_query(query: Mapping[str, Sequence[str]], now: datetime) -> tuple[Filters, list[str]]:
    """The filters of an address, and what is wrong with it, a line each; a wrong value is replaced by the default."""
    values: dict[str, str | tuple[str, ...]] = {}
    problems: list[str] = []
    for name, given in query.items():
        if name not in _FIELDS:
            problems.append(f"the address has {name}=, which means nothing here: left out")
        elif name == "where":
            values["where"] = tuple(dict.fromkeys(v for v in given if v.strip()))[:MOST_CONDITIONS]
        elif given:
            values[_FIELDS[name].name] = given[-1]
    for name, value in list(values.items()):
        if any(len(text) > LONGEST for text in ([value] if isinstance(value, str) else value)):
            problems.append(f"{_NAME_OF.get(name, name)}= in the address is too long: left out")
            del values[name]
    filters = dataclasses.replace(Filters(), **values)  # type: ignore[arg-type] # checked by name above
    if filters.unit not in UNITS:
        problems.append(f"unit={filters.unit} in the address: it is {' or '.join(UNITS)}; share is shown")
        filters = dataclasses.replace(filters, unit=Filters().unit)
    if problem := problem_of_times(filters.begin, filters.end, now):
        problems.append(f"from and to in the address: {problem}; the last hour is shown")
        filters = dataclasses.replace(filters, begin=Filters().begin, end=Filters().end)
    return filters, problems


def known(
    filters: Filters, servers: Sequence[str], models: Sequence[str], labels: Sequence[str], now: datetime
) -> tuple[Filters, list[str]]:
    """The filters without what the store does not have, and what that is, a line each. `*` in a name stands for any
    characters."""
    problems: list[str] = []
    for name, value, names in (("server", filters.server, servers), ("model", filters.model, models)):
        if value and value not in names and "*" not in value:
            problems.append(f"{name}={value} in the address: there is no such {name}; all are shown")
            filters = dataclasses.replace(filters, **{name: ""})  # type: ignore[arg-type] # both are text
    where = []
    for condition in filters.where:
        try:
            parse_set(condition, now=now, labels=labels, prefix="k")
            where.append(condition)
        except UserError as error:
            problems.append(f"where={condition} in the address: {error}; left out")
    try:
        group_of(filters.by, labels)
        by = filters.by
    except UserError as error:
        by = Filters().by
        problems.append(f"by={filters.by} in the address: {in_browser(str(error))}; {by} is shown")
    return dataclasses.replace(filters, where=tuple(where), by=by), problems


def problem_of_times(begin: str, end: str, now: datetime) -> str:
    """What is wrong with a time range, empty when nothing is."""
    try:
        first, last = parse_time(begin, now), parse_time(end, now)
    except UserError as error:
        return str(error)
    return "" if first < last else f"the range from {begin} to {end} ends before it begins"
