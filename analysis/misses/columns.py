"""The result of a query as numpy columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import numpy as np
import pyarrow
from clickhouse_connect.driver.client import Client
from numpy.typing import NDArray

from analysis.misses.model import Flags, Hashes, Ints

Texts = NDArray[np.object_]
_MOST_HOURS = 24
# SQL condition on rows that were looked up by a hash already: said of the sorting key, it makes the look-up slower, and
# before the hash (PREWHERE), it has every granule read that may hold it
OF_SERVERS = "indexOf({names:Array(String)}, server) > 0"


def at(parameter: str) -> str:
    """SQL of a point in time that is given as microseconds since 1970."""
    return f"fromUnixTimestamp64Micro({{{parameter}:Int64}}, 'UTC')"


def exact_second(seconds: int) -> str:
    """SQL of a point in time that is given as whole seconds since 1970.

    Not toDateTime: ClickHouse 26.9 takes `time < toDateTime(n)` for `time <= n - 1` where it leaves out parts, and with
    them rows of the last second of a DateTime64.
    """
    return f"toDateTime64({seconds}, 6)"


def hours(first: int, last: int) -> str:
    """SQL condition that a time is in one of the hours from `first` to `last`, microseconds since 1970: tables that are
    sorted by hour skip the rest sooner than by the time alone. Always true where these are many."""
    seconds = range(first // 3_600_000_000 * 3600, last // 1_000_000 + 1, 3600)
    if not 0 < len(seconds) <= _MOST_HOURS:
        return "1"
    # a time zone may be off by half an hour: the last moment counts too
    named = [*seconds, last // 1_000_000]
    return f"toStartOfHour(time) IN ({', '.join(f'toStartOfHour(toDateTime({s}))' for s in named)})"


def hours_of(moments: Iterable[int]) -> str:
    """The same for the hours of single moments, however far apart."""
    quarters = sorted({moment // 900_000_000 * 900 for moment in moments})  # a time zone may be off by that
    return f"toStartOfHour(time) IN ({', '.join(f'toStartOfHour(toDateTime({s}))' for s in quarters)})"


class Columns:
    """What a statement answers, n rows. Whole numbers that may be NULL are asked for with ifNull(x, -1)."""

    def __init__(self, client: Client, sql: str, parameters: Mapping[str, object]) -> None:
        self._table = client.query_arrow(sql, parameters=dict(parameters), use_strings=True)

    def followed_by(self, other: Columns) -> Columns:
        """These rows and then those of another, with the same columns."""
        longer = copy(self)
        longer._table = pyarrow.concat_tables([self._table, other._table], promote_options="permissive")
        return longer

    def reversed(self) -> Columns:
        """The same from the last row to the first."""
        turned = copy(self)
        turned._table = self._table.take(np.arange(self.n - 1, -1, -1))
        return turned

    @property
    def n(self) -> int:
        """How many rows."""
        return int(self._table.num_rows)

    def ints(self, name: str) -> Ints:
        """(n,) whole numbers."""
        return np.asarray(self._flat(name), dtype=np.int64)

    def hashes(self, name: str) -> Hashes:
        """(n,) of UInt64."""
        return np.asarray(self._flat(name), dtype=np.uint64)

    def flags(self, name: str) -> Flags:
        """(n,) of UInt8."""
        return np.asarray(self._flat(name)).astype(np.bool_)

    def texts(self, name: str) -> Texts:
        """(n,) texts."""
        return np.asarray(self._flat(name), dtype=np.object_)

    def arrays(self, name: str) -> tuple[Ints, NDArray[Any]]:
        """An array column as (n + 1,) offsets and the values of all rows, one after the other."""
        column = self._table.column(name).combine_chunks()
        if not self.n:
            return np.zeros(1, np.int64), column.values.to_numpy(zero_copy_only=False)
        offsets = column.offsets.to_numpy().astype(np.int64)
        return offsets - offsets[0], column.flatten().to_numpy(zero_copy_only=False)

    def _flat(self, name: str) -> NDArray[Any]:
        flat: NDArray[Any] = self._table.column(name).to_numpy()
        return flat


def gather(begins: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """An index into values that takes `lengths` of them from each of `begins` on, and the offsets of what it takes."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    index = np.arange(offsets[-1], dtype=np.int64) + np.repeat(begins - offsets[:-1], lengths)
    return offsets, index


def together(*questions: Callable[[], Any]) -> list[Any]:
    """The answers to questions to the store that do not wait for each other."""
    with ThreadPoolExecutor(len(questions)) as pool:
        return [answer.result() for answer in [pool.submit(question) for question in questions]]
