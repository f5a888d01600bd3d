"""A seeded mix of what people send to LLM servers: chats, questions on documents, agents with tools.

chat: one of a few long system prompts that many callers share, and up to four turns, each with the answers before it.
rag: one question on some documents of a shared pool, in varying order, so that often only a part is a known prefix.
agent: the same tools in every request; calls and results are the plan's own, so that a session grows as an agent's
does whatever the model says.

Arrivals are those of requests, not of sessions: a request goes on with a session of its kind that has had THINK_S
seconds since its last turn was due, or else begins one. So the stated process holds for all requests taken together.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from cachemodel.errors import UsageError
from hitmap.load import english
from hitmap.load.arrivals import arrivals
from hitmap.load.plan import Body, Plan, Planned

DEFAULT = {"chat": 0.5, "rag": 0.3, "agent": 0.2}
CLOCKS = ("none", "first", "last")
THINK_S = 4.0
DOCUMENTS, DOCUMENTS_A_PROMPT = 12, 4
_CLOCK_START = datetime(2026, 1, 1, 9)


@dataclass(slots=True)
class Conversation:
    """What one session will say. asks: the message of each turn. replies: what the plan puts in the assistant's mouth
    after a turn; None: what the server answered. clocks: a clock line for each turn that was due so far."""

    system: str
    asks: list[Body]
    replies: list[Body | None]
    tools: Sequence[Body] = ()
    clocks: list[str] = field(default_factory=list)

    def messages(self, turn: int, clock: str, answers: Sequence[str]) -> list[Body]:
        """The whole conversation up to and with the ask of `turn`, a clock line at the top of it, at the end of each
        ask, or nowhere."""
        system = f"{self.clocks[turn]}\n{self.system}" if clock == "first" else self.system
        said: list[Body] = [{"role": "system", "content": system}]
        for number, ask in enumerate(self.asks[: turn + 1]):
            if clock == "last":
                ask = ask | {"content": f"{ask['content']}\n{self.clocks[number]}"}
            said.append(ask)
            if number < turn:
                answer = answers[number] if number < len(answers) else ""
                said.append(self.replies[number] or {"role": "assistant", "content": answer})
        return said


def plan(
    shares: Mapping[str, float], *, rate: float, arrival: str = "poisson", seed: int = 0, clock: str = "none"
) -> Plan:
    """A plan without end: limit it.

    shares: weight of each kind (DEFAULT names them all). rate: requests a second. clock: where the time of day stands
    in every prompt: "first" in the system prompt, "last" in the last message, "none".
    """
    drawn = {kind: share for kind, share in shares.items() if share}

    def requests() -> Iterator[Planned]:
        random = Random(f"{seed}/mix")  # noqa: S311 - it is to be repeatable
        documents = english.documents(DOCUMENTS, seed)
        waiting: dict[str, deque[tuple[float, str, Conversation]]] = {kind: deque() for kind in drawn}
        begun = 0
        for due_s in arrivals(arrival, rate, seed):
            kind = random.choices(list(drawn), list(drawn.values()))[0]
            if waiting[kind] and waiting[kind][0][0] + THINK_S <= due_s:
                _, session, talk = waiting[kind].popleft()
            else:
                begun += 1
                session, talk = f"{kind}-{begun}", _begin(kind, random, documents)
            turn = len(talk.clocks)
            talk.clocks.append(f"Current time: {(_CLOCK_START + timedelta(seconds=due_s)).isoformat()}")
            yield _planned(due_s, kind, session, talk, turn, clock, random.randrange(8, 33))
            if turn + 1 < len(talk.asks):
                waiting[kind].append((due_s, session, talk))

    name = ",".join(f"{kind}={share:g}" for kind, share in drawn.items())
    return Plan(f"mix {name}", requests, lambda: arrivals(arrival, rate, seed))


def parse(spec: str) -> dict[str, float]:
    """Read `chat=.5,rag=.3`. Raises UsageError."""
    shares: dict[str, float] = {}
    for part in spec.split(","):
        kind, _, share = part.partition("=")
        try:
            shares[kind.strip()] = float(share)
        except ValueError:
            raise UsageError(f"--mix {spec}: write shares, as in chat=.5,rag=.3,agent=.2") from None
    if unknown := sorted(shares.keys() - DEFAULT.keys()):
        raise UsageError(f"--mix {spec}: there is no {unknown[0]!r}; there is {', '.join(DEFAULT)}")
    if not (all(0 <= share < 1e9 for share in shares.values()) and any(shares.values())):
        raise UsageError(f"--mix {spec}: shares are 0 or more, and not all 0")
    return shares


def _planned(
    due_s: float, kind: str, session: str, talk: Conversation, turn: int, clock: str, max_tokens: int
) -> Planned:
    def body(answers: Sequence[str]) -> Body:
        made: Body = {"messages": talk.messages(turn, clock, answers)}
        if talk.tools:
            made["tools"] = list(talk.tools)
        return made | {"max_tokens": max_tokens, "temperature": 0.0}

    return Planned(due_s, body, {"template": kind}, session)


def _begin(kind: str, random: Random, documents: Sequence[str]) -> Conversation:
    match kind:
        case "chat":
            return _chat(random)
        case "rag":
            return _rag(random, documents)
        case _:
            return _agent(random)


def _user(text: str) -> Body:
    return {"role": "user", "content": text}


def _chat(random: Random) -> Conversation:
    turns = random.randrange(1, 5)
    first = f"{random.choice(english.OPENINGS)} I am {random.choice(english.NAMES)}. "
    asks = [_user(question) for question in random.sample(english.QUESTIONS, turns)]
    asks[0] = _user(first + asks[0]["content"])
    return Conversation(random.choice(english.SYSTEMS), asks, [None] * turns)


def _rag(random: Random, documents: Sequence[str]) -> Conversation:
    text = "\n\n".join(random.sample(documents, DOCUMENTS_A_PROMPT))
    question = random.choice(english.RAG_QUESTIONS).format(random.choice(english.SUBJECTS).lower())
    return Conversation(english.RAG_SYSTEM, [_user(f"{text}\n\nQuestion: {question}")], [None])


def _agent(random: Random) -> Conversation:
    part = random.choice(english.PARTS)
    stock, wanted = random.randrange(4), random.randrange(5, 20)
    supplier = f"{random.choice(english.NAMES)} Parts"
    steps = [
        ("count_stock", {"part": part}, f"{stock} on the shelf"),
        ("list_suppliers", {"part": part}, f"{supplier}, {random.randrange(2, 30)} euros, 3 days"),
        ("place_order", {"part": part, "supplier": supplier, "pieces": wanted - stock}, "ordered"),
        ("write_note", {"text": f"{part}: {wanted - stock} ordered from {supplier}"}, "noted"),
    ]
    asks = [_user(f"{random.choice(english.NAMES)} asks for {wanted} of: {part}. See to it.")]
    replies: list[Body | None] = []
    for number, (name, arguments, result) in enumerate(steps):
        call = {"name": name, "arguments": json.dumps(arguments)}
        asked = {"id": f"call_{number}", "type": "function", "function": call}
        replies.append({"role": "assistant", "content": None, "tool_calls": [asked]})
        asks.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
    return Conversation(english.AGENT_SYSTEM, asks, [*replies, None], english.TOOLS)
