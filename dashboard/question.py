"""What the page Attribution compares, as one value that lives in the address."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from analysis.over_time import Marker
from analysis.report.metrics import METRICS
from analysis.selection import parse_set, parse_time
from cachemodel.errors import UserError
from dashboard.filters import LONGEST, literal

# As links write them; `quantile_of` reads other spellings, too.
QUANTILES: dict[str, float | None] = {"mean": None, "P50": 0.5, "P90": 0.9, "P95": 0.95, "P99": 0.99}


@dataclass(frozen=True, slots=True)
class Question:
    """a, b: sets in the language of analysis.selection, empty while not chosen. metric: of METRICS; quantile: of
    QUANTILES."""

    a: str = ""
    b: str = ""
    metric: str = "ttft"
    quantile: str = "P50"

    @property
    def complete(self) -> bool:
        """Whether both sets are chosen."""
        return bool(self.a and self.b)

    def query(self) -> dict[str, list[str]]:
        """The part of an address after `?`: what is not the default."""
        values = dataclasses.asdict(self)
        return {name: [value] for name, value in values.items() if value != getattr(Question(), name)}


def from_query(query: Mapping[str, Sequence[str]]) -> tuple[Question, list[str]]:
    """The question of an address, and what is wrong with it, a line each; a wrong value is replaced by the default."""
    names = [field.name for field in dataclasses.fields(Question)]
    values: dict[str, str] = {}
    problems = [
        f"the address has {name}=, which means nothing here: left out" for name in query if name not in names
    ]
    for name in (name for name in names if query.get(name)):
        value = query[name][-1]
        if len(value) > LONGEST:
            problems.append(f"{name}= in the address is too long: left out")
        elif name == "metric" and value not in METRICS:
            problems.append(f"metric={value} in the address: it is one of {', '.join(METRICS)}")
        elif name == "quantile" and quantile_of(value) is None:
            problems.append(f"quantile={value} in the address: it is one of {', '.join(QUANTILES)}")
        else:
            values[name] = (quantile_of(value) or value) if name == "quantile" else value
    return Question(**values), problems


def quantile_of(text: str) -> str | None:
    """The name in QUANTILES of `P50`, `p50`, `50`, `0.5` (as on a terminal) or `mean`; None where there is none."""
    word = text.strip().casefold()
    if word == "mean":
        return word
    try:
        number = float(word.removeprefix("p"))
    except ValueError:
        return None
    q = number / 100 if number >= 1 or word.startswith("p") else number
    return next((name for name, value in QUANTILES.items() if value == q), None)


def problem_of(text: str, labels: Sequence[str], now: datetime) -> str:
    """What is wrong with a set as somebody wrote it, empty when nothing is."""
    try:
        parse_set(text, now=now, labels=labels, prefix="p")
    except UserError as error:
        return str(error)
    return ""


def with_window(text: str, begin: datetime, end: datetime) -> str:
    """The set at another time: its windows give way to this one."""
    kept = [term for term in text.split(",") if term.strip() and not _is_window(term)]
    return ",".join([window(begin, end), *kept])


def around(marker: Marker, length: timedelta) -> tuple[str, str]:
    """The sets before and after a deployment."""
    server = f",server={literal(marker.server)}" if marker.server else ""
    before, after = marker.time - length, marker.time + length
    return window(before, marker.time) + server, window(marker.time, after) + server


def window(begin: datetime, end: datetime) -> str:
    """A time window as a term of a set, to the millisecond, UTC."""
    return "/".join(time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] for time in (begin, end))


def window_in(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    """The first window of a set, to be drawn; None where it has none."""
    for term in text.split(","):
        if _is_window(term):
            begin, end = (parse_time(t, now) for t in term.split("/"))
            return begin, end
    return None


def _is_window(term: str) -> bool:
    begin, slash, end = term.partition("/")
    if not slash:
        return False
    try:
        return parse_time(begin, datetime.now(UTC)) < parse_time(end, datetime.now(UTC))
    except UserError:
        return False
