"""Coding-agent sessions: one session a line, its requests with times, lengths and ids of 64-token blocks.

Source: callanjfox/kv-cache-tester. Ids are local to the session and shared with its subagents, which run beside it and
count their time from their own begin. A session's requests follow each other; a subagent is a session of its own.
"""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from cachemodel.errors import UserError
from hitmap.load.blocks import Prompts, scaled, split
from hitmap.load.files import decoded
from hitmap.load.plan import Plan, Planned
from hitmap.load.trace import Count, completion

SESSION_GAP_S = 600.0
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Call(msgspec.Struct, rename={"input": "in", "output": "out"}):
    """One request, or a subagent with requests of its own."""

    t: Seconds
    type: str
    input: Count = 0
    output: Count = 0
    hash_ids: list[Count] = []
    requests: list[Call] = []


class Session(msgspec.Struct):
    """One line."""

    id: str
    block_size: Annotated[int, msgspec.Meta(ge=1)]
    requests: list[Call]


class _Due(msgspec.Struct, order=True, frozen=True):
    """What is kept of a request until it is due: of long sessions there is much."""

    time_s: float
    number: int
    session: str
    stream: str
    block_size: int
    input: int
    output: int
    hash_ids: array[int]


def plan(
    path: Path, prompts: Prompts, *, gap_s: float = SESSION_GAP_S, speed: float = 1.0, scale: float = 1.0
) -> Plan:
    """The sessions, one started every `gap_s` seconds of trace time. speed and scale as in mooncake.plan.

    Sessions are read as their start comes near, so that a faulty line is a UserError when it is reached.
    """

    def requests() -> Iterator[Planned]:
        for due in _merged(path, gap_s):
            size = scaled(due.block_size, scale)
            parts = partial(split, due.session, due.hash_ids, due.block_size, size, due.input, due.number)
            template = "agent" if due.stream == due.session else "subagent"
            yield completion(
                due.time_s / speed, parts, prompts, due.output * scale, template, session=due.stream
            )

    return Plan(f"agent sessions {path.name}", requests)


def _merged(path: Path, gap_s: float) -> Iterator[_Due]:
    """All requests in order of time; read are the sessions that have started and the one after them."""
    running: list[_Due] = []
    numbers = itertools.count()
    for index, session in enumerate(decoded(path, Session)):
        start_s = index * gap_s
        while running and running[0].time_s < start_s:
            yield heapq.heappop(running)
        for call in session.requests:
            _add(running, session, session.id, call, start_s, numbers)
    while running:
        yield heapq.heappop(running)


def _add(
    running: list[_Due], session: Session, stream: str, call: Call, start_s: float, numbers: Iterator[int]
) -> None:
    if call.type == "subagent":
        own = f"{session.id}/{next(numbers)}"
        for inner in call.requests:
            if inner.type == "subagent":
                raise UserError(f"session {session.id}: a subagent of a subagent is not in this form")
            _add(running, session, own, inner, start_s + call.t, numbers)
        return
    due = _Due(
        start_s + call.t,
        next(numbers),
        session.id,
        stream,
        session.block_size,
        call.input,
        call.output,
        array("Q", call.hash_ids),
    )
    heapq.heappush(running, due)
