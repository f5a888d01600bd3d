"""How the values of a slot behave over the requests, and which cause behaves so. There is no list of forms: a clock is
what goes up as time does, an id what nobody sends twice."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.advisor.learning.cause import Cause

_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_DECIMAL = re.compile(r"(?<![^\W_])[-+±~≈−]?\d+(?:[.,]\d+)?(?!\d)")
_UNIT = r"\s?(?:[%‰°℃℉][^\W\d_]{0,3}|[^\W\d_]{1,4})(?:[/*·][^\W\d_]{1,4})?[²³]?"
_WHOLE = re.compile(r"\W{0,2}\d+\W{0,2}")
FEW = 12  # variants that somebody may have written one by one
CONSTANT = 0.95  # share of neighbours that behave so, for it to be how a value behaves
UNIQUE = 0.9
MOSTLY = 0.8  # of steps go up where a day or an hour begins anew within the log
MANY = 6  # values from which on an order is none by chance
EPOCH_S = (1.0e9, 4.0e9)  # numbers that are times since 1970: 2001 to 2096, in seconds


@dataclass(frozen=True, slots=True)
class Seen:
    """A value of a slot. time: Unix seconds or None; session, user: empty where not told."""

    request: int
    value: str
    time: float | None = None
    session: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """n values, `distinct` of them different; shares of 0 to 1, None where nothing could show them.

    rising: of neighbours that differ, those whose numbers go up. in_order, with_time: rank correlation of the numbers
    with the order and the time of sending. step: by which one number goes up each time, if it does. in_session,
    in_user: share of a session's (a user's) neighbouring requests that have one value, where different sessions have
    different ones. numeric: values that are a number with or without a unit. words: mean number of words of letters.
    characters: mean length. alike: share of the values of the commonest shape (runs of digits, runs of letters, signs).
    """

    n: int
    distinct: int
    rising: float | None
    in_order: float | None
    step: float | None
    with_time: float | None
    in_session: float | None
    in_user: float | None
    numeric: float
    words: float
    characters: float
    alike: float


def behaviour(seen: Sequence[Seen]) -> Behaviour:
    """How these values behave, in the order in which they were sent."""
    values = [one.value for one in seen]
    n, numbers = len(values), [_numbers(value) for value in values]
    return Behaviour(
        n=n,
        distinct=len(set(values)),
        rising=_rising(numbers),
        in_order=_in_order(numbers),
        step=_step(numbers),
        with_time=_with_time(seen, numbers),
        in_session=_constant([(one.session, one.value) for one in seen]),
        in_user=_constant([(one.user, one.value) for one in seen]),
        numeric=sum(_is_number(value) for value in values) / n,
        words=sum(len(_WORD.findall(value)) for value in values) / n,
        characters=sum(map(len, values)) / n,
        alike=Counter(map(_shape, values)).most_common(1)[0][1] / n,
    )


def cause(seen: Sequence[Seen], found: Behaviour) -> Cause:
    """The cause whose values behave so."""
    unique = found.distinct >= UNIQUE * found.n
    if found.step is not None:
        return Cause.COUNTER
    if _is_clock(seen, found):
        return Cause.CLOCK
    if _counts_on(seen, found):
        return Cause.COUNTER
    if (found.in_session or 0) >= CONSTANT and not unique:
        return Cause.USER_VALUE if (found.in_user or 0) >= CONSTANT else Cause.SESSION_VALUE
    if (found.in_user or 0) >= CONSTANT and not unique:
        return Cause.USER_VALUE
    if found.numeric >= CONSTANT:
        return Cause.MEASUREMENT if _near(seen) else Cause.NONCE
    if _are_readings(seen) and _near(seen):
        return Cause.MEASUREMENT
    if _is_token(found) and unique:
        return Cause.NONCE
    if found.distinct <= max(2, min(FEW, found.n // 2)):
        return Cause.VARIANT
    if found.words > 12:
        return Cause.MEMORY
    if found.words >= 1 and found.distinct < UNIQUE * found.n:
        return Cause.USER_VALUE
    return Cause.NONCE if _is_token(found) else Cause.UNKNOWN


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(int(run[:18]) for run in _NUMBER.findall(value))


def _is_number(value: str) -> bool:
    """A number, with a sign, a fraction and a unit at most."""
    return bool(re.fullmatch(r"[-+±~≈]?\s*[\d.,  ]*\d\s*[^\W\d]{0,4}[%°℃℉/²³]*[^\W\d]{0,4}", value))


def _pairs(numbers: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Neighbours that differ and have as many numbers."""
    found = pairwise(numbers)
    return [(a, b) for a, b in found if a != b and len(a) == len(b) > 0]


def _rising(numbers: Sequence[tuple[int, ...]]) -> float | None:
    """How often the numbers go up, read as one from left to right, or as day, month and year."""
    pairs = _pairs(numbers)
    if len(pairs) < 2 or len(pairs) < len(set(numbers)) / 2:
        return None
    return max(sum(read(b) > read(a) for a, b in pairs) / len(pairs) for read in _READINGS)


def _in_order(numbers: Sequence[tuple[int, ...]]) -> float | None:
    """Rank correlation of the numbers with the order in which they were sent, in the reading that fits best."""
    told = [own for own in numbers if own]
    if len(set(told)) < MANY:
        return None
    return max(_correlation(range(len(told)), [read(own) for own in told]) for read in _READINGS)


def _correlation(first: Iterable[float], second: Sequence[tuple[int, ...]]) -> float:
    """Spearman's; 0 where one side is constant."""
    rank = {own: at for at, own in enumerate(sorted(set(second)))}
    a, b = (
        np.argsort(np.argsort(list(first))).astype(float),
        np.array([rank[own] for own in second], dtype=float),
    )
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _day_first(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers[2:3], *numbers[1:2], *numbers[:1], *numbers[3:])


def _month_first(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers[2:3], *numbers[:2], *numbers[3:])


def _as_written(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers


_READINGS = (_as_written, _day_first, _month_first)


def _step(numbers: Sequence[tuple[int, ...]]) -> float | None:
    """The step of a counter: one of the numbers goes up by as much each time, the others stay."""
    pairs = [(a, b) for a, b in pairwise(numbers) if len(a) == len(b) > 0]
    if len(pairs) < 3 or len(pairs) < len(numbers) - 1 or any(len(a) > 2 for a, _ in pairs):
        return None
    steps = [b[-1] - a[-1] for a, b in pairs]
    if any(a[:-1] != b[:-1] for a, b in pairs) or any(EPOCH_S[0] <= a[-1] for a, _ in pairs):
        return None
    (step, often), *_ = Counter(steps).most_common(1)
    return float(step) if step > 0 and often >= CONSTANT * len(steps) else None


def _with_time(seen: Sequence[Seen], numbers: Sequence[tuple[int, ...]]) -> float | None:
    """Rank correlation of the numbers with the time of their request, in the reading that fits best."""
    told = [(one.time, own) for one, own in zip(seen, numbers, strict=True) if one.time is not None and own]
    if len({own for _, own in told}) < MANY:
        return None
    times = [time for time, _ in told]
    return max(_correlation(times, [read(own) for _, own in told]) for read in _READINGS)


def _constant(of: Sequence[tuple[Hashable, str]]) -> float | None:
    """How many neighbours in a group have one value; None where all groups have the same, or none has two."""
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for group, value in of:
        if group:
            groups[group].append(value)
    several = [values for values in groups.values() if len(values) > 1]
    if len(groups) < 2 or not several or len({values[0] for values in groups.values()}) < 2:
        return None
    neighbours = [a == b for values in several for a, b in pairwise(values)]
    return sum(neighbours) / len(neighbours)


def _shape(value: str) -> str:
    return re.sub(r"[^\W\d_]+", "a", _NUMBER.sub("9", value))


def _is_clock(seen: Sequence[Seen], found: Behaviour) -> bool:
    """Goes up with time, and is more than one number, or one that counts from 1970."""
    if found.rising is None or found.alike < 0.5:
        return False
    orders = [order for order in (found.in_order, found.with_time) if order is not None]
    if found.rising < (MOSTLY if found.n >= MANY else CONSTANT) and max(orders, default=0.0) < UNIQUE:
        return False
    fields = Counter(len(_numbers(one.value)) for one in seen).most_common(1)[0][0]
    return fields > 1 or _counts_from_1970(seen)


def _counts_from_1970(seen: Sequence[Seen]) -> bool:
    told = [_numbers(one.value)[0] for one in seen if _numbers(one.value)]
    return any(all(EPOCH_S[0] * unit <= t <= EPOCH_S[1] * unit for t in told) for unit in (1, 1e3, 1e6, 1e9))


def _counts_on(seen: Sequence[Seen], found: Behaviour) -> bool:
    """Whole numbers that go up each time, by as much or not: of a counter that others use, too, or of a sample. Those
    that are a time since 1970 are a clock's."""
    if found.n < MANY or found.distinct < CONSTANT * found.n or (found.rising or 0) < CONSTANT:
        return False
    whole = sum(bool(_WHOLE.fullmatch(one.value)) for one in seen)
    return whole >= CONSTANT * found.n and not _counts_from_1970(seen)


def _are_readings(seen: Sequence[Seen]) -> bool:
    """Several numbers each, in the same words, and behind all but the last of them a unit: `3.1 °C, wind 2.0`."""
    (words, often), *_ = Counter(_DECIMAL.sub("9", one.value) for one in seen).most_common(1)
    units = len(re.findall(rf"(?<!\w)9{_UNIT}(?!\w)", words))
    return words.count("9") > 1 and units >= words.count("9") - 1 and often >= CONSTANT * len(seen)


def _near(seen: Sequence[Seen]) -> bool:
    """Whether numbers are readings of something: of about one size, not drawn from all that have so many digits."""
    sizes = [math.log10(float(numbers[0]) + 1) for one in seen if (numbers := _numbers(one.value))]
    return max(
        map(len, (_NUMBER.findall(one.value)[0] for one in seen if _numbers(one.value))), default=0
    ) < 7 and (not sizes or max(sizes) < 6)


def _is_token(found: Behaviour) -> bool:
    """One word of letters, digits and signs that says nothing."""
    return found.characters >= 4 and found.words <= 3 and found.characters / max(1.0, found.words) >= 3
