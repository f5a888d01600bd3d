"""How the values of a slot behave over the requests, and which cause behaves so. There is no list of forms: a clock is
what goes up as time does, an id what nobody sends twice."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.opaque import opaque

_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_DECIMAL = re.compile(r"(?<![^\W_])[-+±~≈−]?\d+(?:[.,]\d+)?(?!\d)")
_UNIT = r"\s?(?:[%‰°℃℉][^\W\d_]{0,3}|[^\W\d_]{1,4})(?:[/*·][^\W\d_]{1,4})?[²³]?"
_NAME = re.compile(r"[^\W\d_]+(?:\.?[ '’·-][^\W\d_]+){0,5}\.?")
_FRACTION = re.compile(r"(?<!\d)\d+[.,]\d+(?!\d)")
_READINGS_OF = re.compile(rf"(?<!\w)9{_UNIT}(?!\w)|(?<!\w)9(?!\w)[^9]*[^\W\d_][^9]*(?<!\w)9(?!\w)")
_WHOLE = re.compile(r"\W{0,2}\d+\W{0,2}")
FEW = 12  # variants that somebody may have written one by one
CONSTANT = 0.95  # share of neighbours that behave so, for it to be how a value behaves
UNIQUE = 0.9
MOSTLY = 0.8  # of steps go up where a day or an hour begins anew within the log
MANY = 6  # values from which on an order is none by chance
OPAQUE = 0.6  # of the values say nothing: of eight random hexadecimal digits some have one letter, or none
MOST_WORDS = 12  # of a value: more are a text
KINDS = 0.25  # of the different values: more kinds of words around numbers are no few
DIGITS = 19  # of a number: as many as nanoseconds since 1970 have
SPEED = 2.0  # by which numbers since 1970 go faster or slower than the time of their requests
SLACK_S = 2.0  # seconds between a clock's reading and the sending of its request
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
    with the order and the time of sending. step: by which one number goes up each time, if it does, in all or in each
    session. in_session, in_user: share of a session's (a user's) neighbouring requests that have one value, where
    different sessions have different ones. numeric: values that are a number with or without a unit. words: mean number
    of words of letters. alike: share of the values of the commonest shape (runs of digits, runs of letters, signs).
    opaque: share of the values that say nothing, such as random ids.
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
    alike: float
    opaque: float


def behaviour(seen: Sequence[Seen]) -> Behaviour:
    """How these values behave, in the order in which they were sent."""
    values = [one.value for one in seen]
    n, numbers = len(values), [_numbers(value) for value in values]
    return Behaviour(
        n=n,
        distinct=len(set(values)),
        rising=_rising(numbers),
        in_order=_in_order(numbers),
        step=_step([numbers]) or _step(_by_session(seen, numbers), MOSTLY),
        with_time=_with_time(seen, numbers),
        in_session=_constant([(one.session, one.value) for one in seen]),
        in_user=_constant([(one.user, one.value) for one in seen]),
        numeric=sum(_is_number(value) for value in values) / n,
        words=sum(len(_WORD.findall(value)) for value in values) / n,
        alike=Counter(map(_shape, values)).most_common(1)[0][1] / n,
        opaque=opaque(values),
    )


def cause(seen: Sequence[Seen], found: Behaviour) -> Cause:
    """The cause whose values behave so. Whose a value is takes evidence: one that comes again is somebody's only where
    it comes again with the same user or in the same session, or where no user is told and it reads as names do."""
    unique = found.distinct >= UNIQUE * found.n
    says_nothing = unique and found.opaque >= OPAQUE
    of_user = _lasts(found.in_user, [one.user for one in seen], seen, found)
    if _lasts(found.in_session, [one.session for one in seen], seen, found):
        return Cause.USER_VALUE if of_user else Cause.SESSION_VALUE
    if of_user:
        return Cause.USER_VALUE
    if says_nothing and not _counts_from_1970(seen):
        return Cause.NONCE
    if found.step is not None:
        return Cause.COUNTER
    if _is_clock(seen, found):
        return Cause.CLOCK
    if _counts_on(seen, found):
        return Cause.COUNTER
    if found.numeric >= CONSTANT and _near(seen):
        return Cause.MEASUREMENT
    if found.distinct <= max(2, min(FEW, found.n // 2)):
        return Cause.VARIANT
    if found.words > MOST_WORDS:
        return Cause.MEMORY
    if not unique and found.in_user is None and _are_names(seen):
        return Cause.USER_VALUE
    return Cause.MEASUREMENT if _are_readings(seen, found) and _near(seen) else Cause.UNKNOWN


def _numbers(value: str) -> tuple[int, ...]:
    return tuple(int(run[:DIGITS]) for run in _NUMBER.findall(value))


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


def _step(groups: Sequence[Sequence[tuple[int, ...]]], share: float = CONSTANT) -> float | None:
    """The step of a counter: of one or two numbers one goes up by as much each time, the other stays. groups: the
    numbers of each session; share: of the steps that are so."""
    pairs = [(a, b) for numbers in groups for a, b in pairwise(numbers)]
    if len(pairs) < 3 or any(len(a) != len(b) or not 1 <= len(a) <= 2 for a, b in pairs):
        return None
    moved = {at for a, b in pairs for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y}
    if len(moved) != 1 or any(EPOCH_S[0] <= number for a, _ in pairs for number in a):
        return None
    at = moved.pop()
    (step, often), *_ = Counter(b[at] - a[at] for a, b in pairs).most_common(1)
    return float(step) if step > 0 and often >= share * len(pairs) else None


def _by_session(seen: Sequence[Seen], numbers: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """The numbers of each session, in order; none for requests that tell no session."""
    sessions = defaultdict[str, list[tuple[int, ...]]](list)
    for one, own in zip(seen, numbers, strict=True):
        if one.session:
            sessions[one.session].append(own)
    return list(sessions.values())


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


def _lasts(share: float | None, of: Sequence[str], seen: Sequence[Seen], found: Behaviour) -> bool:
    """Lasts as long as a session, or is always the same for a user. A clock of hours or days does so, too, and a
    version that is deployed; but these give way to the next one for all who ask. share: in_session or in_user."""
    if (share or 0) < CONSTANT or found.distinct >= UNIQUE * found.n:
        return False
    changes = sum(a.value != b.value for a, b in pairwise(seen))
    for_all = changes < 2 * found.distinct - 1 or (found.rising or 0) >= MOSTLY
    return not for_all or found.distinct >= UNIQUE * len(set(of))


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
    """Numbers that are a time since 1970, and go as fast as the time of their requests where that is told."""
    told = [(one.time, numbers[0]) for one in seen if (numbers := _numbers(one.value))]
    return bool(told) and any(
        all(EPOCH_S[0] * unit <= number <= EPOCH_S[1] * unit for _, number in told)
        and _keeps_time(told, unit)
        for unit in (1, 1e3, 1e6, 1e9)
    )


def _keeps_time(told: Sequence[tuple[float | None, int]], unit: float) -> bool:
    timed = [(time, number / unit) for time, number in told if time is not None]
    if len(timed) < 2:
        return True
    passed, counted = timed[-1][0] - timed[0][0], timed[-1][1] - timed[0][1]
    return passed / SPEED - SLACK_S <= counted <= passed * SPEED + SLACK_S


def _counts_on(seen: Sequence[Seen], found: Behaviour) -> bool:
    """Whole numbers that go up each time, by as much or not: of a counter that others use, too, or of a sample. Those
    that are a time since 1970 are a clock's."""
    if found.n < MANY or found.distinct < CONSTANT * found.n or (found.rising or 0) < CONSTANT:
        return False
    whole = sum(bool(_WHOLE.fullmatch(one.value)) for one in seen)
    return whole >= CONSTANT * found.n and not _counts_from_1970(seen)


def _are_readings(seen: Sequence[Seen], found: Behaviour) -> bool:
    """Numbers in the same few words, whichever they are, with a unit, a name or a fraction: `3.1 °C, wind 2.0`,
    `34, "shelf B": 60`."""
    kinds = Counter(_DECIMAL.sub("9", one.value) for one in seen)
    fractions = sum(bool(_FRACTION.search(one.value)) for one in seen)
    told = sum(often for words, often in kinds.items() if "9" in words and _READINGS_OF.search(words))
    few = len(kinds) <= min(FEW, KINDS * found.distinct)
    return few and max(told, fractions) >= CONSTANT * found.n


def _are_names(seen: Sequence[Seen]) -> bool:
    """A few words of letters alone, and no numbers in words of one sign, more of them than somebody writes one by one:
    of a person, a place, a plan."""
    names = (one for one in seen if _NAME.fullmatch(one.value) and not any(map(_is_numeral, one.value)))
    return sum(1 for _ in names) >= CONSTANT * len(seen)


def _is_numeral(sign: str) -> bool:
    return unicodedata.numeric(sign, None) is not None


def _near(seen: Sequence[Seen]) -> bool:
    """Whether numbers are readings of something: of about one size, not drawn from all that have so many digits."""
    sizes = [math.log10(float(numbers[0]) + 1) for one in seen if (numbers := _numbers(one.value))]
    return max(
        map(len, (_NUMBER.findall(one.value)[0] for one in seen if _numbers(one.value))), default=0
    ) < 7 and (not sizes or max(sizes) < 6)
