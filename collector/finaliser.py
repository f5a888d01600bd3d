"""Builds `requests` from what arrived: spans through the SQL of their dialect, usage by request id.

A run stages the rows that a batch brings, adds the rows of the same requests that stand in `requests` already, picks
those that are to stand, and publishes them: the new rows in, then exactly the rows that were read out. Which rows stand
depends on what is known of a request and not on the order in which it came:

* of two spans with one identity (a second replay of a capture) the later in time stands;
* a span replaces the row of a request that only a log told of;
* what a server says of a request replaces what a client says of it: two dialects, one request id, one row;
* of the spans of clients and gateways that lie within each other and have one request id the innermost stands.

Usage belongs to the span of the same server with the same request id. It fills in what the span does not say.

A run can be repeated, after a crash anywhere too: what it reads is deleted only after its replacement is visible. For
the moment in between two versions of a row can be seen together. A batch none of whose requests was seen before, the
common case, skips all of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from clickhouse_connect.driver.client import Client

from collector import finaliser_sql as sql
from collector.dialects import SPAN_DIALECTS

_LEFTOVER_US = 3_600_000_000
_Parameters = dict[str, Any]


class Finaliser:
    """Keeps `requests` in step with the batches that reach the store.

    grace_s: how long usage waits for the span of its request before it becomes a row of its own. Calls may come from
    several threads and run one after the other. Errors of the store pass through; the failed call can be repeated.
    """

    def __init__(self, client: Client, grace_s: float = 10.0) -> None:
        self._client = client
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, str]] = []  # (when the grace period ends, usage batch)
        self._recover_at: float | None = time.monotonic() + grace_s

    def finalise(self, kind: str, batch_id: str) -> None:
        """Bring `requests` up to date with one batch of `traces` or `usage`; other kinds do not concern it."""
        with self._lock:
            if kind == "traces":
                self._add_spans({"batch": batch_id})
            elif kind == "usage":
                self._add_usage({"batches": [batch_id]})
                self._waiting.append((time.monotonic() + self._grace_s, batch_id))

    def sweep(self, *, last: bool = False) -> int:
        """Make rows of their own for usage that has waited out the grace period; returns how many. Call it often.

        Once the first grace period is over it also looks at usage that a process before this one left waiting. last:
        nobody will call again, so that nothing waits any longer; a span that comes later replaces such a row.
        """
        with self._lock:
            now, made = time.monotonic(), 0
            if self._recover_at is not None and now >= self._recover_at:
                self._drop_leftovers()
                made += self._add_logged(sql.USAGE_LEFT, {"grace_ms": int(self._grace_s * 1000)})
                self._recover_at = None
            if due := [batch for ends, batch in self._waiting if last or ends <= now]:
                made += self._add_logged(sql.USAGE_OF_BATCHES, {"batches": due})
                self._waiting = [] if last else [(ends, batch) for ends, batch in self._waiting if ends > now]
            return made

    def _add_spans(self, batch: _Parameters) -> None:
        """Give each request that a batch of spans tells of its row."""
        run = _new_run()
        counts, aliases = self._row(sql.SURVEY, batch)
        names = _names(aliases)
        for dialect, spans in zip(SPAN_DIALECTS, counts, strict=True):
            if spans:
                self._do(sql.stage_spans(dialect), run, batch, names)
        self._publish_staged(run)

    def _add_usage(self, batch: _Parameters) -> None:
        """Give the requests of a usage batch that have a row already what the batch says of them."""
        keys, lo, hi = self._row(sql.probe_usage(sql.USAGE_OF_BATCHES), batch)[0]
        if keys:
            run = _new_run()
            self._do(sql.stage_known_of(sql.USAGE_OF_BATCHES), run, batch, {"lo": lo, "hi": hi})
            self._publish_standing(run)
            self._do(sql.DROP_STAGE, run)

    def _add_logged(self, usage: str, parameters: _Parameters) -> int:
        """Give the requests of some usage that have no row one that the log alone backs."""
        _, lo, hi = self._row(sql.probe_usage(usage), parameters)[0]
        run = _new_run()
        self._do(sql.stage_logged(usage), run, parameters, {"lo": lo, "hi": hi})
        return self._publish_staged(run)

    def _publish_staged(self, run: _Parameters) -> int:
        rows, distinct, (keys, lo, hi), usage = self._row(sql.PROBE_STAGED, run)
        if not rows:
            return 0
        self._do(sql.ADD_KEYS, run)
        if distinct and not keys:
            self._do(sql.PUBLISH_STAGED_WITH_USAGE if usage else sql.PUBLISH_STAGED, run)
        else:
            self._do(sql.STAGE_KNOWN_OF_STAGED, run, {"lo": lo, "hi": hi})
            self._publish_standing(run)
        self._do(sql.DROP_STAGE, run)
        return int(rows)

    def _publish_standing(self, run: _Parameters) -> None:
        self._do(sql.PUBLISH_STANDING, run)
        for day, lo, hi in self._client.query(sql.REPLACED_DAYS, parameters=run).result_rows:
            self._do(sql.DELETE_REPLACED, run, {"day": day, "lo": lo, "hi": hi})

    def _drop_leftovers(self) -> None:
        """Drop what runs that never came to their end had staged."""
        before = {"run": _new_run()["run"] - _LEFTOVER_US}
        for (stage,) in self._client.query(sql.LEFTOVER_STAGES, parameters=before).result_rows:
            self._do(sql.DROP_STAGE, {"run": stage})

    def _do(self, statement: str, *parameters: _Parameters) -> None:
        merged: _Parameters = {}
        for some in parameters:
            merged |= some
        self._client.command(statement, parameters=merged)

    def _row(self, query: str, parameters: _Parameters) -> tuple[Any, ...]:
        return tuple(self._client.query(query, parameters=parameters).result_rows[0])


def _new_run() -> _Parameters:
    """A run's id: the time in microseconds, so that ids are distinct and leftovers tell their age."""
    return {"run": time.time_ns() // 1000}


def _names(aliases: Iterable[tuple[str, str, str]]) -> _Parameters:
    """What instances and services are called, as the parameters of `stage_spans`."""
    instances = {alias: server for kind, alias, server in aliases if kind == "service.instance.id"}
    services = {alias: server for kind, alias, server in aliases if kind == "service.name"}
    return {
        "instances": list(instances),
        "instance_servers": list(instances.values()),
        "services": list(services),
        "service_servers": list(services.values()),
    }
