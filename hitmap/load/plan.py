"""What is to be sent and when: a plan is made before the first request leaves, and does not heed the server."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Body = dict[str, Any]


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
    nobody asks on before there is an answer.
    """

    name: str
    requests: Callable[[], Iterator[Planned]]

    def __iter__(self) -> Iterator[Planned]:
        return self.requests()

    def limited(self, duration_s: float | None = None, count: int | None = None) -> Plan:
        """The part that is due before `duration_s`, and of that the first `count` requests."""

        def part() -> Iterator[Planned]:
            due = self.requests()
            if duration_s is not None:
                due = itertools.takewhile(lambda planned: planned.due_s < duration_s, due)
            return itertools.islice(due, count)

        return replace(self, requests=part)


@dataclass(frozen=True, slots=True)
class Outline:
    """A plan in figures. last_due_s: when its last request is due. prompt_chars, prompt_ids: size of all prompts, as
    text in characters and as token ids, without answers that only a server can give; max_tokens: what they ask for."""

    name: str
    requests: int
    sessions: int
    last_due_s: float
    by_template: dict[str, int]
    prompt_chars: int
    prompt_ids: int
    max_tokens: int


def outline(plan: Plan) -> Outline:
    """Go through the plan once and count."""
    last_due_s, chars, ids, tokens = 0.0, 0, 0, 0
    templates: Counter[str] = Counter()
    sessions = set()
    for planned in plan:
        last_due_s = planned.due_s
        templates[planned.labels.get("template", "")] += 1
        sessions.add(planned.session)
        body = planned.body(())
        prompt = body.get("prompt", "")
        if isinstance(prompt, list):
            ids += len(prompt)
        else:
            chars += len(str(prompt)) + sum(len(str(said.get("content") or "")) for said in messages(body))
        tokens += asked if isinstance(asked := body.get("max_tokens"), int) else 0
    count = sum(templates.values())
    return Outline(plan.name, count, len(sessions - {""}), last_due_s, dict(templates), chars, ids, tokens)


def messages(body: Body) -> list[Body]:
    """The messages of a chat request; none in a completion request."""
    said = body.get("messages")
    return [message for message in said if isinstance(message, dict)] if isinstance(said, list) else []
