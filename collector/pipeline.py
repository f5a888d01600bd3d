"""Spool, writer and finaliser put together: a sink in front, a store behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from clickhouse_connect.driver.client import Client

from collector.finaliser import Finaliser
from collector.sink import Sink
from collector.spool import Spool
from collector.tally import KindTally, Tally
from collector.writer import Finalises, Flush, Writer
from store.client import connect
from store.migrate import migrate

INSERT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Stats:
    """kinds: counters of each kind. pending: rows not yet in the store, by kind. spool_bytes of spool_limit_bytes."""

    kinds: dict[str, KindTally]
    pending: dict[str, int]
    spool_bytes: int
    spool_limit_bytes: int


class Pipeline:
    """Brings the store up to date, opens the spool and writes from it until closed.

    store: a DSN, or a function that gives one whenever a connection is made (an embedded store that died comes back
    on another port). spool: the folder of the spool. Raises UserError when one of them cannot be used.
    """

    def __init__(
        self,
        store: str | Callable[[], str],
        spool: Path,
        *,
        spool_limit_bytes: int = 1 << 30,
        fsync: bool = False,
        flush: Flush | None = None,
        finaliser: Callable[[Client], Finalises] = Finaliser,
    ) -> None:
        self._store = store
        client = self._open()
        migrate(client)
        client.close()
        self.tally = Tally()
        self.drained = False
        self._spool = Spool(spool, self.tally, limit_bytes=spool_limit_bytes, fsync=fsync)
        self._writer = Writer(self._spool, self._open, self.tally, finaliser=finaliser, flush=flush)
        self._writer.start()

    def _open(self) -> Client:
        dsn = self._store() if callable(self._store) else self._store
        return connect(dsn, timeout_s=INSERT_TIMEOUT_S)

    @property
    def sink(self) -> Sink:
        """Where sources hand in entries."""
        return self._spool

    def stats(self) -> Stats:
        """How things stand."""
        return Stats(self.tally.snapshot(), self._spool.pending(), self._spool.size, self._spool.limit_bytes)

    def close(self, drain_s: float = 10.0) -> bool:
        """Write what is waiting, for up to `drain_s` seconds; whether all of it went out (also in `drained`).

        The rest stays in the spool for the next start.
        """
        self.drained = self._writer.stop(drain_s)
        self._spool.close()
        return self.drained

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
