"""The page faults that a request's own threads counted are the most that it has of those of its process.

Readings of a process come some times a second, and requests may be shorter: by time alone a request would get what its
neighbour in the same reading did. Of CPU time, switches and caches the thread's own are no bound: libraries compute in
threads of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.numbers import digits
from analysis.observed.model import Observed

_FAULTS = "process.paging.faults"
_BY_ACCESS = "hitmap.page_faults"  # the same faults, told apart by who touched the page and how
_KINDS = 2  # minor and major: both are told, or their sum is not known
_SAME = 0.01  # a part that is off by less is what its thread counted


def bounded(own: Sequence[Observed], meanwhile: Sequence[Observed]) -> list[Observed]:
    """What the one process that worked for a request counted, with shares of page faults that its threads' counts
    allow."""
    return [_bounded(one, limit) if (limit := _limit(one, own)) is not None else one for one in meanwhile]


def _bounded(one: Observed, limit: float) -> Observed:
    estimate = one.estimate
    if estimate is None or estimate <= limit:
        return one
    return replace(one, share=limit / one.value)


def _limit(one: Observed, own: Sequence[Observed]) -> float | None:
    """The faults that its threads counted of the same kind; None where they do not count that."""
    faults = [mine for mine in own if mine.metric == _FAULTS]
    if one.metric == _FAULTS:
        faults = [mine for mine in faults if mine.attributes == one.attributes]
        return faults[0].value if faults else None
    return sum(mine.value for mine in faults) if one.metric == _BY_ACCESS and len(faults) == _KINDS else None


def notes(before: Sequence[Observed], after: Sequence[Observed], length_us: float) -> Iterator[str]:
    """What to know of the parts. before, after: the counters without and with the bound, row by row; length_us: of the
    request."""
    if any(
        (was.estimate or 0) > (1 + _SAME) * (now.estimate or 0)
        for was, now in zip(before, after, strict=True)
    ):
        yield "page faults of its process beyond those of its own threads are taken for others'"
    free = [one for was, one in zip(before, after, strict=True) if one.estimate and was.share == one.share]
    longest = max((till - since for one in free for since, till, _ in one.series), default=0.0)
    if longest > length_us:
        yield (
            f"readings of its process are {digits(longest / 1000)} ms apart and it took {digits(length_us / 1000)} ms:"
            " what happened just before or after it may be among these (hitmap probe --hz 100 reads more often)"
        )
