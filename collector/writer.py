"""The writer: takes batches from the spool to the store, each exactly once.

An INSERT whose answer is OK put its rows there. After anything else (an error, a timeout, a lost connection, a crash of
the store or of this process) nobody knows, so the store is asked how many rows carry the batch's id:

    all of them   the batch is done
    none          insert again under the same deduplication token, in case the first try is still under way; an OK
                  with no rows behind it means that the store remembers the token of a part it lost in a crash
                  (ClickHouse logs the token before the part is visible): a new token then
    some          wait once, in case the insert is still under way, then delete them and insert under a new token

A batch the store cannot read is halved until the entry at fault is alone. That one is written anew once, without what
no field of its kind is, and set aside if the store cannot read it even so. A batch that fails for a reason that nobody
knows is tried for ever; after some tries those behind it may pass.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from collector.batch import Batch
from collector.kinds import KINDS
from collector.landing import Landing, code_of
from collector.segments import PayloadLostError
from collector.spool import Spool
from collector.tally import Tally

log = logging.getLogger(__name__)

# ClickHouse error codes that say the data is at fault; with any other the batch waits and is tried again.
# 6, 26, 27, 38, 41, 69, 72: values that do not parse; 33, 32: data ends early; 53, 131, 190: sizes and types;
# 117, 434, 444: malformed JSON and protobuf; 349: NULL where there is none; 636, 676: columns and values unknown
DATA_CODES = frozenset(
    {6, 26, 27, 32, 33, 36, 38, 41, 53, 69, 72, 117, 128, 131, 190, 349, 434, 435, 436, 444, 636, 676}
)
MEMORY_CODE = 241
# Of one code are an insert that touches too many days, which the data is to blame for, and a store that is behind with
# its merges, which it is not.
PARTS_CODE, TOO_MANY_DAYS = 252, "Too many partitions"
# the embedded engine says this of errors it has no words for; with some patience it is the data as well
UNKNOWN_CODE, UNKNOWN_TRIES = 1002, 5
UNREADABLE = "the store cannot read it"
STUCK_TRIES = 8  # the store answers, and this often not with success: others need not wait for that
MOST_STUCK = 4  # of a kind: then the reason is not the batch's
SWEEP_S = 1.0
BACKOFF_S = (0.2, 30.0)  # first and longest pause after a failure; each is twice the one before


class UnsettledError(Exception):
    """What the store has of a batch may still change, or has to be sent under another token: look again later."""


@dataclass(frozen=True)
class Flush:
    """When a batch is made: `rows` are waiting or the oldest has waited `age_s`; it takes up to `max_rows` and
    `max_bytes`, so that a backlog goes out in few large parts."""

    rows: int = 20_000
    age_s: float = 1.0
    max_rows: int = 120_000
    max_bytes: int = 64 << 20


@dataclass
class _Delivery:
    """A batch on its way.

    unclear: rows of it may be in the store; partial: how many were seen there last; refused: how often in a row the
    store answered that it failed; rewrite: whether its payload is written anew.
    """

    batch: Batch
    unclear: bool
    failures: int = 0
    not_before: float = 0.0
    partial: int = 0
    refused: int = 0
    rewrite: bool = False


class Finalises(Protocol):
    """What builds `requests` (collector.finaliser): told of each batch in the store, and now and then of the time."""

    def finalise(self, kind: str, batch_id: str) -> None: ...

    def sweep(self, *, last: bool = False) -> int: ...


class Writer:
    """A thread that empties `spool` into the store that `connect` opens.

    A batch of a finalised kind leaves the spool after the finaliser was done with it. `connect` and `finaliser` are
    called again after every failure: the store may have moved or have been restarted.
    """

    def __init__(
        self,
        spool: Spool,
        connect: Callable[[], Client],
        tally: Tally,
        *,
        finaliser: Callable[[Client], Finalises],
        flush: Flush | None = None,
    ) -> None:
        self._spool, self._connect, self._tally = spool, connect, tally
        self._new_finaliser = finaliser
        self._flush = flush or Flush()
        self._client: Client | None = None
        self._finaliser: Finalises | None = None
        self._swept_at = 0.0
        # what an earlier process sealed may or may not have arrived
        self._deliveries = [_Delivery(batch, unclear=True) for batch in spool.batches()]
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, drain_s: float) -> bool:
        """Write what is waiting for up to `drain_s` seconds; whether all of it went out. The rest stays spooled."""
        self._stop_at = time.monotonic() + drain_s
        self._spool.wake()
        self._thread.join()
        return not self._spool.pending()

    # -- the loop --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._finished():
            try:
                self._step()
            except (
                Exception
            ) as error:  # a full disk, say: what is spooled stays spooled, and the next round may do
                log.warning("writer: %s", first_line(error))
                self._tally.failed("writer", first_line(error))
                time.sleep(BACKOFF_S[0])
        if self._finaliser and not self._spool.pending():
            self._sweep(self._finaliser, last=True)
        self._disconnect()

    def _step(self) -> None:
        self._seal()
        now = time.monotonic()
        due = next((d for d in self._deliveries if d.not_before <= now), None)
        if due:
            self._attempt(due)
        elif self._finaliser and now >= self._swept_at + SWEEP_S:
            self._sweep(self._finaliser)
        else:
            self._spool.wait(self._pause(now))

    def _finished(self) -> bool:
        if self._stop_at is None:
            return False
        return time.monotonic() >= self._stop_at or not self._spool.pending()

    def _seal(self) -> None:
        """Make at most one batch a kind that is under way: what comes meanwhile makes the next one larger."""
        busy = self._busy()
        now = time.monotonic()
        for kind, waiting in self._spool.backlog().items():
            ripe = waiting.rows >= self._flush.rows or now >= waiting.since + self._age_s(kind)
            if kind not in busy and (ripe or self._stop_at is not None):
                batch = self._spool.seal(kind, self._flush.max_rows, self._flush.max_bytes)
                if batch:
                    self._deliveries.append(_Delivery(batch, unclear=False))

    def _age_s(self, kind: str) -> float:
        return 0.0 if KINDS[kind].at_once else self._flush.age_s

    def _busy(self) -> set[str]:
        """Kinds of which no other batch is begun."""
        stuck = Counter(d.batch.kind for d in self._deliveries if d.refused >= STUCK_TRIES)
        moving = {d.batch.kind for d in self._deliveries if d.refused < STUCK_TRIES}
        return moving | {kind for kind, batches in stuck.items() if batches >= MOST_STUCK}

    def _pause(self, now: float) -> float:
        """Seconds until something is due: a batch after its backoff, or a kind that becomes old enough to seal."""
        busy = self._busy()
        due = [d.not_before for d in self._deliveries]
        due += [w.since + self._age_s(kind) for kind, w in self._spool.backlog().items() if kind not in busy]
        due += [self._stop_at] if self._stop_at is not None else []
        return max(0.001, min(due, default=now + self._flush.age_s) - now)

    def _attempt(self, delivery: _Delivery) -> None:
        try:
            if self._client is None or self._finaliser is None:
                self._client = self._connect()
                self._finaliser = self._new_finaliser(self._client)
            self._deliver(Landing(self._client, delivery.batch.kind), self._finaliser, delivery)
        except Exception as error:  # whatever it is, the batch is safe in the spool, and a later try may do
            self._back_off(delivery, error)
            self._disconnect()

    def _sweep(self, finaliser: Finalises, *, last: bool = False) -> None:
        self._swept_at = time.monotonic()
        try:
            finaliser.sweep(last=last)
        except Exception as error:
            log.warning("finaliser: %s", first_line(error))
            self._disconnect()

    def _disconnect(self) -> None:
        if self._client:
            self._client.close()
        self._client = self._finaliser = None

    # -- one batch -------------------------------------------------------------------------------------------------

    def _deliver(self, store: Landing, finaliser: Finalises, delivery: _Delivery) -> None:
        arrived = delivery.unclear and self._arrived(store, delivery)
        if not arrived and not self._insert(store, delivery):
            return
        batch = delivery.batch
        if store.kind.finalised:
            finaliser.finalise(batch.kind, batch.name)
        self._spool.done(batch)
        self._deliveries.remove(delivery)
        self._tally.written(batch.kind, batch.rows)

    def _arrived(self, store: Landing, delivery: _Delivery) -> bool:
        """Ask the store how much of an unclear batch it has; True when nothing is left to insert."""
        batch = delivery.batch
        stored = store.count(batch.name)
        if stored == batch.rows:
            store.repair(batch.name)
            return True
        if stored and stored != delivery.partial:
            delivery.partial = stored
            raise UnsettledError(f"{stored} of {batch.rows} rows of batch {batch.name} have arrived")
        if stored:
            store.erase(batch.name)
            delivery.batch = self._spool.renew(batch)
        return False

    def _insert(self, store: Landing, delivery: _Delivery) -> bool:
        """Insert a batch; False when the store cannot read it and it was taken apart."""
        retry, delivery.unclear = delivery.unclear, True
        try:
            store.insert(delivery.batch, self._payload(store, delivery))
        except PayloadLostError as error:
            self._isolate(store, delivery, str(error))
            return False
        except ClickHouseError as error:
            code = code_of(error)
            tried = delivery.failures >= UNKNOWN_TRIES
            # Too large for the store's memory: halves may fit, and what never does must not hold up the rest.
            too_large = code == MEMORY_CODE and (delivery.batch.entries > 1 or tried)
            if not is_of_data(error) and not too_large and (code != UNKNOWN_CODE or not tried):
                raise
            self._isolate(store, delivery, str(error))
            return False
        if retry and not store.kind.replacing and not store.count(delivery.batch.name):
            delivery.batch = self._spool.renew(delivery.batch)
            raise UnsettledError(
                f"the store took batch {delivery.batch.name} for a repetition without having it"
            )
        return True

    def _payload(self, store: Landing, delivery: _Delivery) -> bytes:
        payload = self._spool.payload(delivery.batch)
        return (store.kind.rewritten(payload) if delivery.rewrite else None) or payload

    def _isolate(self, store: Landing, delivery: _Delivery, error: str) -> None:
        """Halve a batch that the store cannot read; write its only entry anew, or set it aside."""
        batch = delivery.batch
        store.erase(batch.name)  # a long JSON body may have been stored up to the line at fault
        if batch.entries > 1:
            self._deliveries.remove(delivery)
            self._deliveries += [_Delivery(half, unclear=False) for half in self._spool.split(batch)]
            return
        if store.kind.message and not delivery.rewrite:
            delivery.rewrite, delivery.batch = True, self._spool.renew(batch)
            return
        log.warning("%s: %d rows set aside: %s", batch.kind, batch.rows, error)
        self._spool.reject(batch, error)
        self._deliveries.remove(delivery)
        self._tally.rejected(batch.kind, UNREADABLE, batch.rows)

    def _back_off(self, delivery: _Delivery, error: Exception) -> None:
        first, longest = BACKOFF_S
        delivery.not_before = time.monotonic() + min(longest, first * 2**delivery.failures)
        delivery.failures = min(delivery.failures + 1, 16)
        # An answer with a code says that the store is up: what fails is this batch, not the way to the store.
        delivery.refused = delivery.refused + 1 if code_of(error) else 0
        line = first_line(error)
        self._tally.failed(delivery.batch.kind, line)
        log.warning("%s: batch %s waits: %s", delivery.batch.kind, delivery.batch.name, line)


def is_of_data(error: Exception) -> bool:
    """Whether the store says that the data is at fault."""
    code = code_of(error)
    return code in DATA_CODES or (code == PARTS_CODE and TOO_MANY_DAYS in str(error))


def first_line(error: Exception) -> str:
    """What an error says, fit for a status line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
