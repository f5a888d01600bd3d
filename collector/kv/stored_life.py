"""One life of a publisher's rank as the store has it: what an index is made from again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clickhouse_connect.driver.client import Client

from cachemodel.residency import Mark
from collector.kv.history import StoredBlock, StoredRow
from collector.kv.index import MAX_BLOCKS

_OF_LIFE = """
FROM kv_events
WHERE server = {server:String} AND rank = {rank:UInt16} AND source = {source:String}
  AND time >= toDateTime64({epoch:Float64}, 6) AND toFloat64(epoch) = {epoch:Float64}
"""
# A resolved row has the place of an earlier row in the same medium. The newest come first: they are what is kept.
_BLOCKS = f"""
SELECT assumeNotNull(block), group_idx, any(parent), any(depth), any(content), any(isolation), medium, ownership,
       argMaxIf(action = 'stored', (seq, pos), action != 'resolved') AS held,
       maxIf((seq, pos), action != 'resolved') AS at
{_OF_LIFE} AND action IN ('stored', 'removed', 'resolved') AND block IS NOT NULL
GROUP BY block, group_idx, medium, ownership
ORDER BY at DESC
LIMIT {MAX_BLOCKS}
"""
_MARKS = f"""
SELECT seq, pos, action = 'gap', ownership
{_OF_LIFE} AND action IN ('gap', 'cleared')
ORDER BY seq, pos
"""
_AFTER = f"""
SELECT toString(action), block, group_idx, parent, depth, content, isolation, medium, ownership
{_OF_LIFE} AND seq > {{after:UInt64}}
  AND action IN ('stored', 'removed', 'updated', 'cleared', 'gap', 'resolved')
ORDER BY seq, pos
"""


class StoredLife:
    """connect: opens a client. The others name the life as its rows do."""

    def __init__(
        self, connect: Callable[[], Client], server: str, rank: int, source: str, epoch: float
    ) -> None:
        self._connect = connect
        self._life = {"server": server, "rank": rank, "source": source, "epoch": epoch}

    def blocks(self) -> Iterable[StoredBlock]:
        """The blocks it told of, once for each place they were in, the least recently told of first."""
        newest_first = self._rows(_BLOCKS)
        return (StoredBlock(*row) for row in reversed(newest_first))

    def marks(self) -> list[Mark]:
        """Gaps and clears, in order."""
        return [
            Mark((seq, pos), bool(is_gap), ownership) for seq, pos, is_gap, ownership in self._rows(_MARKS)
        ]

    def after(self, seq: int) -> Iterator[StoredRow]:
        """The rows of the messages after that one, in order."""
        parameters = {**self._life, "after": max(seq, 0)}
        with self._connect() as client, client.query_row_block_stream(_AFTER, parameters) as stream:
            for rows in stream:
                yield from (StoredRow(*row) for row in rows)

    def _rows(self, query: str) -> list[Any]:
        with self._connect() as client:
            return list(client.query(query, self._life).result_rows)
