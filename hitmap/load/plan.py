"""What is to be sent and when: a plan is made before the first request leaves, and does not heed the server."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cachemodel.errors import UsageError

Body = dict[str, Any]
MOST_REQUESTS = 10_000_000


@dataclass(frozen=True, slots=True)
class Planned:
    """One request of a plan.

    due_s: seconds after the load begins. body: makes the OpenAI request body from the texts that its session was
    answered so far, oldest first; made when it is needed, because the bodies of a long trace fill no small memory.
    session: requests of one session follow each other, each after the answer of the one before; empty: on its own.
    """

    due_s: float
    body: Callable[[Sequence[str]], Body]
    labels: Mapping[str, str]
    session: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Requests in the order in which they are due. Going through it again gives the same ones, byte for byte.

    open-loop across sessions: a request is due at its time whatever became of those before. Closed within a session:
    nobody asks on before there is an answer. times: when they are due, where that is told sooner than what they are.
    own_times: they are the workload's own, no arrival process made them. duration_s, count: its limits.
    """

    name: str
    requests: Callable[[], Iterator[Planned]]
    times: Callable[[], Iterator[float]] | None = None
    own_times: bool = False
    duration_s: float = math.inf
    count: int | None = None

    def __iter__(self) -> Iterator[Planned]:
        due = itertools.takewhile(lambda planned: planned.due_s < self.duration_s, self.requests())
        return itertools.islice(due, self.count)

    def limited(self, duration_s: float | None = None, count: int | None = None) -> Plan:
        """The part that is due before `duration_s`, and of that the first `count` requests."""
        return replace(self, duration_s=math.inf if duration_s is None else duration_s, count=count)

    def schedule(self) -> Schedule:
        """Go through the times of a limited plan once. Raises UsageError where there is no end of them."""
        times = self.times() if self.times else (planned.due_s for planned in self.requests())
        number, first_s, last_s = 0, 0.0, 0.0
        for due_s in times:
            if due_s >= self.duration_s:
                return Schedule(number, last_s, self.duration_s, cut=True)
            if number == MOST_REQUESTS:
                raise UsageError(
                    f"more than {MOST_REQUESTS:,} requests would be due: give a shorter --duration"
                )
            number, first_s, last_s = number + 1, first_s if number else due_s, due_s
            if number == self.count:
                break
        gap_s = (last_s - first_s) / (number - 1) if number > 1 else 0.0
        return Schedule(number, last_s, number * gap_s)


class Schedule(NamedTuple):
    """When the requests of a plan are due.

    last_due_s: seconds after the load begins. window_s: what they are spread over: the duration where that cut the plan
    off, else their number times the mean gap between them; 0 where nobody can tell. cut: more would have been due.
    """

    requests: int
    last_due_s: float
    window_s: float
    cut: bool = False

    @property
    def per_s(self) -> float | None:
        """Requests a second; None where nobody can tell."""
        return self.requests / self.window_s if self.window_s else None


@dataclass(frozen=True, slots=True)
class Outline:
    """A plan in figures. last_due_s, window_s, offered_per_s: as of its Schedule. prompt_chars, prompt_ids: size of all
    prompts, as text in characters and as token ids, without answers that only a server can give; max_tokens: what they
    ask for."""

    name: str
    requests: int
    sessions: int
    last_due_s: float
    window_s: float
    offered_per_s: float | None
    by_template: dict[str, int]
    prompt_chars: int
    prompt_ids: int
    max_tokens: int


def outline(plan: Plan) -> Outline:
    """Go through the plan once and count."""
    schedule = plan.schedule()
    chars, ids, tokens = 0, 0, 0
    templates: Counter[str] = Counter()
    sessions = set()
    for planned in plan:
        templates[planned.labels.get("template", "")] += 1
        sessions.add(planned.session)
        body = planned.body(())
        prompt = body.get("prompt", "")
        if isinstance(prompt, list):
            ids += len(prompt)
        else:
            chars += len(str(prompt)) + sum(len(str(said.get("content") or "")) for said in messages(body))
        tokens += asked if isinstance(asked := body.get("max_tokens"), int) else 0
    return Outline(
        name=plan.name,
        requests=schedule.requests,
        sessions=len(sessions - {""}),
        last_due_s=schedule.last_due_s,
        window_s=schedule.window_s,
        offered_per_s=schedule.per_s,
        by_template=dict(templates),
        prompt_chars=chars,
        prompt_ids=ids,
        max_tokens=tokens,
    )


def messages(body: Body) -> list[Body]:
    """The messages of a chat request; none in a completion request."""
    said = body.get("messages")
    return [message for message in said if isinstance(message, dict)] if isinstance(said, list) else []
