"""Which requests? Turns what a person writes, `phase=tsend,server=vllm-a,-2h/-1h`, into a parameterised condition.

A set is a list of terms joined by commas, all of which must hold: a time window `FROM/TO`, or a comparison of a column
or label with a value. Names come from an allow-list and values travel as query parameters, so no text reaches the SQL.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from cachemodel.errors import UsageError
from cachemodel.layers import SERVING_LAYERS
from cachemodel.printable import printable

# The type of parameters that are points in time, whatever zone a server lives in.
TIME = "DateTime64(6, 'UTC')"
TEXT_COLUMNS = ("server", "model", "dialect", "request_id", "finish_reason")
NUMBER_COLUMNS = (
    "ttft_us",
    "e2e_us",
    "client_ttft_us",
    "client_e2e_us",
    *(layer.column for layer in SERVING_LAYERS),
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "device_tokens",
    "host_tokens",
    "remote_tokens",
    "created_tokens",
    "recomputed_tokens",
    "preemptions",
)
_COMPARISON = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*")
_LABEL = "label."  # before the name of a label that is called as a column is
_UNITS = ("days", "hours", "minutes", "seconds")  # in the order in which a duration has them
_NUMBER = r"\d+(?:\.\d+)?"
_AGO = re.compile("-(?=.)" + "".join(f"(?:(?P<{unit}>{_NUMBER}){unit[0]})?" for unit in _UNITS))
_LONGEST = timedelta(days=10_000)
_MOST_NAMED, _LONGEST_NAME = 12, 60  # labels in a message, and characters of each


@dataclass(frozen=True, slots=True)
class Selection:
    """A set of requests: its name for people, an SQL condition on `requests` and the condition's parameters.

    texts: the text columns and labels that the condition is about, by name; numbers: the columns of numbers.
    asked: the set as a person would write it to mean the same at any later time. lasting: the condition without its
    time windows, empty where it is nothing else.
    """

    name: str
    condition: str
    parameters: dict[str, object] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    asked: str = ""
    lasting: str = ""

    def at(self, begin: datetime, end: datetime, prefix: str) -> Selection:
        """The same requests of another time, [begin, end): its own windows are replaced. prefix: as in parse_set."""
        window, values = _between(prefix, begin, end)
        condition = " AND ".join(filter(None, [window, self.lasting]))
        return replace(self, condition=condition, parameters={**self.parameters, **values})


def parse_set(text: str, *, now: datetime, labels: Sequence[str], prefix: str, name: str = "") -> Selection:
    """Parse one set.

    now: what `now` and `-2h` count from. labels: label names the store knows. prefix: makes parameter names unique
    between sets. Raises UsageError naming the term that is wrong.
    """
    conditions: list[str] = []
    lasting: list[str] = []
    asked: list[str] = []
    parameters: dict[str, object] = {}
    texts: dict[str, None] = {}
    numbers: dict[str, None] = {}
    before = ""
    for number, term in enumerate(t.strip() for t in text.split(",") if t.strip()):
        key = f"{prefix}{number}"
        if comparison := _COMPARISON.fullmatch(term):
            subject, operator, value = comparison.groups()
            if _is_unknown(subject, labels):
                raise UsageError(_unknown(subject, labels) + _cut_short(before))
            condition, values = _comparison(key, subject, operator, value)
            (numbers if subject in NUMBER_COLUMNS else texts)[subject] = None
            lasting.append(condition)
        elif "/" in term:
            condition, values = _window(key, term, now)
            term = "/".join(str(values[f"{key}{end}"]).replace(" ", "T") for end in "se")
        else:
            what = f"{term!r} is neither a window like -2h/-1h nor a condition like phase=control"
            raise UsageError(what + _cut_short(before))
        conditions.append(condition)
        parameters |= values
        asked.append(term)
        before = term
    if not conditions:
        raise UsageError("a set of requests needs at least one term, such as -1h/now or phase=control")
    return Selection(
        name or text,
        " AND ".join(conditions),
        parameters,
        tuple(texts),
        tuple(numbers),
        ",".join(asked),
        " AND ".join(lasting),
    )


def around(moment: datetime, window: timedelta, name: str, server: str = "") -> tuple[Selection, Selection]:
    """The sets before and after a deployment, `window` long each; of one server, if it went to one only."""

    def half(side: str, start: datetime, end: datetime) -> Selection:
        condition, values = _between(side, start, end)
        asked, lasting = "/".join(_utc(time).replace(" ", "T") for time in (start, end)), ""
        if server:
            lasting, values = "server = {server:String}", {**values, "server": server}
            condition, asked = f"{condition} AND {lasting}", f"{asked},server={server.replace(',', '*')}"
        return Selection(f"{side} {name}", condition, values, asked=asked, lasting=lasting)

    return half("before", moment - window, moment), half("after", moment, moment + window)


def parse_duration(text: str) -> timedelta:
    """`90m`, `1h30m` or either with a minus before it; raises UsageError."""
    if not (found := _AGO.fullmatch(text if text.startswith("-") else f"-{text}")):
        raise UsageError(f"{text!r} is no duration; write 30s, 90m, 1h30m or 7d")
    try:
        duration = timedelta(**{unit: float(number) for unit, number in found.groupdict("0").items()})
    except OverflowError:
        duration = _LONGEST
    if duration >= _LONGEST:
        raise UsageError(f"{text!r} is longer than anything is kept; write 30s, 90m, 1h30m or 7d")
    return duration


def parse_time(text: str, now: datetime) -> datetime:
    """`now`, `-2h`, `-3m30s`, or an ISO time (UTC unless it says otherwise); raises UsageError."""
    text = text.strip()
    if text == "now":
        return now
    if _AGO.fullmatch(text):
        return now - parse_duration(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time; write now, -2h, -3m30s or 2026-11-29T10:00") from None
    if not 1971 <= time.year < 2200:
        raise UsageError(f"{text!r} is not a time that requests come from")
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _window(key: str, term: str, now: datetime) -> tuple[str, dict[str, object]]:
    start, _, end = term.partition("/")
    first, last = parse_time(start, now), parse_time(end, now)
    if first >= last:
        raise UsageError(f"the window {term!r} ends before it begins")
    return _between(key, first, last)


def _between(key: str, start: datetime, end: datetime) -> tuple[str, dict[str, object]]:
    condition = f"(time >= {{{key}s:{TIME}}} AND time < {{{key}e:{TIME}}})"
    return condition, {f"{key}s": _utc(start), f"{key}e": _utc(end)}


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _comparison(key: str, name: str, operator: str, value: str) -> tuple[str, dict[str, object]]:
    if name in NUMBER_COLUMNS:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{name} is compared with a number, not with {value!r}")
        return f"({name} {operator} {{{key}:Float64}})", {key: number}
    subject, values = text_of(name, f"{key}n")
    if operator not in ("=", "!="):
        raise UsageError(f"{name} is text: compare it with = or !=, and use * for any characters")
    negation = "NOT " if operator == "!=" else ""
    return f"({negation}{subject} LIKE {{{key}:String}})", {**values, key: _like(value)}


def text_of(name: str, key: str) -> tuple[str, dict[str, object]]:
    """The SQL of a text column or label of that name, and the parameters it takes, `key` at most."""
    if name in TEXT_COLUMNS:
        return name, {}
    return f"labels[{{{key}:String}}]", {key: name.removeprefix(_LABEL)}


def _like(glob: str) -> str:
    """A LIKE pattern in which only * stands for anything."""
    escaped = glob.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def _is_unknown(name: str, labels: Sequence[str]) -> bool:
    return name not in (*TEXT_COLUMNS, *NUMBER_COLUMNS) and name.removeprefix(_LABEL) not in labels


def _cut_short(before: str) -> str:
    """What to do where a value with a comma was taken apart: `fault=layer=host,delay_ms=5`."""
    if before.count("=") < 2:
        return ""
    return f"; a comma ends a condition: for a value that has one write {before.rstrip('*')}*"


def _unknown(name: str, labels: Sequence[str]) -> str:
    known = [*TEXT_COLUMNS, *NUMBER_COLUMNS, *labels]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"labels here: {some_of(labels, name)}"
    return f"requests have no column or label {shortened(name)!r}; {hint}"


def some_of(labels: Sequence[str], name: str) -> str:
    """Labels for a message about `name`: those that are like it first, of many only some."""
    close = difflib.get_close_matches(name, labels, n=_MOST_NAMED, cutoff=0.5)
    told = list(dict.fromkeys([*close, *sorted(labels)]))
    shown = ", ".join(shortened(label) for label in told[:_MOST_NAMED]) or "none"
    return shown if len(told) <= _MOST_NAMED else f"{shown} and {len(told) - _MOST_NAMED:,} more"


def shortened(name: str) -> str:
    """A name on one line of a message, not all of it where it is long."""
    shown = printable(name, lines=False)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}..."
