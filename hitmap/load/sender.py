"""Sends a plan: each request when it is due, whatever became of those before (no coordinated omission).

In flight are at most `max_in_flight` requests: one that is due beyond that is not sent, and counted. Within a session
a turn waits for the answer before it; where that is late, its end is when the turn is due: nobody asks on before. A
session ends at its first failure, as a caller would give up; its other turns count as SESSION_OVER.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from cachemodel.errors import UserError
from hitmap.load.client import INTERRUPTED, Answer, Client, now_ns
from hitmap.load.plan import Body, Plan, Planned
from hitmap.load.record import Log, line
from hitmap.load.summary import Tally

OVER_LIMIT, SESSION_OVER = "over --max-in-flight", "session over"
TICK_S = 0.1

Progress = Callable[[float, Tally], None]


@dataclass(slots=True)
class _Session:
    """answers: of its turns so far. last: its latest turn. ready_ns: when the answer to that came, 0 before."""

    answers: list[str] = field(default_factory=list)
    last: asyncio.Task[None] | None = None
    ready_ns: int = 0
    over: bool = False


@dataclass(slots=True, kw_only=True)
class Sender:
    """One run of a plan.

    models: what the server serves; model: asked for where a body names none of them. labels: added to the plan's own.
    progress: told the seconds since the start and the counts, some times a second. stopping: ends the load early; what
    is in flight counts as INTERRUPTED.
    """

    client: Client
    log: Log
    model: str
    models: frozenset[str]
    labels: Mapping[str, str]
    max_in_flight: int
    traceparent: bool
    progress: Progress | None
    stopping: threading.Event
    tally: Tally = field(default_factory=Tally)
    _sessions: dict[str, _Session] = field(default_factory=dict)
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _run_id: str = field(default_factory=lambda: secrets.token_hex(4))
    _start_ns: int = field(default_factory=now_ns)

    async def send(self, plan: Plan) -> float:
        """Send everything and wait for the answers; returns the seconds it took. Raises UserError."""
        watch = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as group:
                await self._schedule(plan, group)
        except* UserError as failed:
            raise _first(failed) from None
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        return self._elapsed_s()

    async def _watch(self) -> None:
        """Tell how it goes, and end what runs when told to."""
        while True:
            if self.progress:
                self.progress(self._elapsed_s(), self.tally)
            if self.stopping.is_set():
                for task in self._running:
                    task.cancel()
            await asyncio.sleep(TICK_S)

    async def _schedule(self, plan: Plan, group: asyncio.TaskGroup) -> None:
        for planned in plan:
            while (left_s := planned.due_s - self._elapsed_s()) > 0 and not self.stopping.is_set():
                await asyncio.sleep(min(left_s, TICK_S))
            if self.stopping.is_set():
                return
            self._start(planned, group)
            await asyncio.sleep(0)  # a crowd that is due at once must not keep answers from being timed

    def _start(self, planned: Planned, group: asyncio.TaskGroup) -> None:
        self.tally.planned += 1
        session = self._sessions.setdefault(planned.session, _Session()) if planned.session else _Session()
        number = self.tally.planned
        session.last = group.create_task(self._turn(planned, number, session, session.last))
        self._running.add(session.last)
        session.last.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():  # before it was sent: sending does not let itself be cancelled
            self.tally.not_sent[INTERRUPTED] += 1

    async def _turn(
        self, planned: Planned, number: int, session: _Session, former: asyncio.Task[None] | None
    ) -> None:
        if former:
            await asyncio.wait((former,))
        if session.over or self.tally.in_flight >= self.max_in_flight:
            self.tally.not_sent[SESSION_OVER if session.over else OVER_LIMIT] += 1
            session.over = True
            return
        answer = await self._request(planned, f"{self._run_id}-{number:05d}", session)
        session.answers.append(answer.text)
        session.ready_ns, session.over = answer.done_ns, bool(answer.failure)

    async def _request(self, planned: Planned, request_id: str, session: _Session) -> Answer:
        due_ns = self._start_ns + int(planned.due_s * 1e9)
        body = self._completed(planned.body(session.answers))
        headers, trace = {"X-Request-Id": request_id}, ("", "")
        if self.traceparent:
            trace = (secrets.token_hex(16), secrets.token_hex(8))
            headers["traceparent"] = f"00-{trace[0]}-{trace[1]}-01"
        self.tally.sent += 1
        self.tally.in_flight += 1
        answer = await self.client.send(body, headers)
        self.tally.in_flight -= 1
        self.tally.answered(answer, max(due_ns, session.ready_ns))
        labels = {**planned.labels, **self.labels}
        self.log.write(line(request_id, body, due_ns, answer, labels, planned.session, trace))
        return answer

    def _completed(self, body: Body) -> Body:
        """The body with a model that is served, streamed and with usage unless it says otherwise."""
        model = body.get("model")
        served = isinstance(model, str) and model in self.models
        whole = body | {"model": model if served else self.model}
        if whole.setdefault("stream", True):
            whole.setdefault("stream_options", {"include_usage": True})
        return whole

    def _elapsed_s(self) -> float:
        return (now_ns() - self._start_ns) / 1e9


def _first(failed: BaseExceptionGroup[UserError]) -> UserError:
    error = failed.exceptions[0]
    return error if isinstance(error, UserError) else _first(error)
