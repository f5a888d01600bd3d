"""A log of 5,000 requests as a company's gateway sees them: services of many kinds, each of which does what it should.

Every service is asked for what it sent, in its own order of time, and a log is any of them side by side. What a
`Change` of `planted` does to the requests of one service is the one fault of such a log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from tests.analysis.advisor.planted import START, Change, Log, Request
from tests.analysis.advisor.prose import answer, code, instructions, paragraph, question, sentence, tool

HOURS = 12  # that the log spans
Message = dict[str, Any]
Service = Callable[[random.Random, int], Iterator[Request]]


class _Sender:
    """Makes the requests of a service: who asks, when, and what."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance, self.name, self.count = chance, name, 0

    def sent(
        self, talk: int, at: datetime, messages: Sequence[Message], tools: Sequence[Any] = (), **more: Any
    ) -> Request:
        """A request, whose messages and tools are its own."""
        self.count += 1
        session, user = f"{self.name}-{talk}", f"{self.name}-user-{talk % 11}"
        own = [dict(one) for one in messages]
        return Request(self.count, session, user, at, own, deepcopy(list(tools)), more)

    def some_time(self) -> datetime:
        """Within the log, while people are awake more often."""
        return START + timedelta(hours=HOURS * self.chance.betavariate(2, 2))

    def pause(self, seconds: float) -> timedelta:
        """Until the next request of a conversation."""
        return timedelta(seconds=self.chance.expovariate(1 / seconds))


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def agent(chance: random.Random, n: int) -> Iterator[Request]:
    """A coding agent: a list of tools, a history of calls and results that only grows, and now and then a retry."""
    send, head = _Sender(chance, "agent"), system(instructions(chance, 30))
    names = ("read_file", "search", "run", "edit", "list_files", "ask", "plan", "fetch")
    tools, talk = [tool(name) for name in names], 0
    while send.count < n:
        at, talk = send.some_time(), talk + 1
        said = [head, user(question(chance))]
        for turn in range(chance.randrange(5, 41)):
            at += send.pause(12)
            yield send.sent(talk, at, said, tools)
            if chance.random() < 0.02:  # the answer was lost on its way, and it is asked for again
                yield send.sent(talk, at + timedelta(seconds=30), said, tools)
                at += timedelta(seconds=30)
            said += _step(chance, f"call_{talk}_{turn}", names)
            if chance.random() < 0.08:
                said.append(user(question(chance)))


def _step(chance: random.Random, call: str, names: Sequence[str]) -> list[Message]:
    """One or two calls, what they return, and sometimes a word about it."""
    calls, results = [], []
    for number in range(1 + (chance.random() < 0.15)):
        given = json.dumps({"path": f"src/{chance.choice(names)}_{chance.randrange(99)}.py", "limit": 40})
        own = {"id": f"{call}_{number}", "type": "function"}
        calls.append({**own, "function": {"name": chance.choice(names), "arguments": given}})
        told = code(chance, 1) if chance.random() < 0.6 else paragraph(chance, chance.randrange(1, 5))
        results.append({"role": "tool", "tool_call_id": own["id"], "content": told})
    text = sentence(chance) if chance.random() < 0.4 else None
    return [{"role": "assistant", "content": text, "tool_calls": calls}, *results]


def rag(chance: random.Random, n: int) -> Iterator[Request]:
    """Questions about a library: the documents that were found stand behind the instructions, best first."""
    send, head = _Sender(chance, "rag"), system(instructions(chance, 25))
    library = [f"[{number}] {paragraph(chance, 5)}" for number in range(400)]
    for number in range(n):
        found = "\n\n".join(chance.sample(library, chance.randrange(3, 6)))
        yield send.sent(
            number, send.some_time(), [head, user(f"Documents:\n\n{found}\n\nQuestion: {question(chance)}")]
        )


def chat(language: str) -> Service:
    """Talks of many users, some of which go on hours later; some answers are stopped half way, or asked for anew."""

    def made(chance: random.Random, n: int) -> Iterator[Request]:
        send, head, talk = _Sender(chance, f"chat-{language}"), system(instructions(chance, 20, language)), 0
        while send.count < n:
            at, talk = send.some_time(), talk + 1
            said = [head, user(question(chance, language))]
            for _ in range(chance.randrange(1, 9)):
                at += send.pause(90) if chance.random() < 0.95 else timedelta(hours=chance.uniform(2, 6))
                yield send.sent(talk, at, said)
                told = answer(chance, language)
                if chance.random() < 0.05:  # stopped half way, and told to go on
                    said += [assistant(told[: len(told) // 2]), user("...")]
                elif chance.random() < 0.05:  # the question is put differently
                    said[-1] = user(question(chance, language))
                else:
                    said += [assistant(told), user(question(chance, language))]

    return made


def classify(chance: random.Random, n: int) -> Iterator[Request]:
    """One long prompt with forty examples, and a short text to be sorted."""
    send, kinds = _Sender(chance, "classify"), ("complaint", "question", "praise", "order", "other")
    shots = "\n\n".join(f"Text: {sentence(chance)}\nKind: {chance.choice(kinds)}" for _ in range(40))
    head = system(f"{instructions(chance, 6)}\n\nExamples:\n\n{shots}")
    for number in range(n):
        yield send.sent(number, send.some_time(), [head, user(f"Text: {sentence(chance)}\nKind:")])


def few_shot_turns(chance: random.Random, n: int) -> Iterator[Request]:
    """Examples as turns of a conversation, which all requests have in common."""
    send, head = _Sender(chance, "extract"), system(instructions(chance, 5))
    shots = [
        one
        for _ in range(8)
        for one in (user(question(chance)), assistant(f'{{"case": {chance.random():.3f}}}'))
    ]
    for number in range(n):
        yield send.sent(number, send.some_time(), [head, *shots, user(question(chance))])


def tenants(chance: random.Random, n: int) -> Iterator[Request]:
    """Forty customers of one platform: its own rules first, then those that the customer wrote."""
    send, own = _Sender(chance, "tenant"), instructions(chance, 8)
    heads = [system(f"{own}\n\n{instructions(chance, chance.randrange(4, 30))}") for _ in range(40)]
    for _ in range(n):
        number = min(39, int(chance.expovariate(1 / 10)))
        yield send.sent(number, send.some_time(), [heads[number], user(question(chance))])


def separate_tenants(chance: random.Random, n: int) -> Iterator[Request]:
    """Forty customers with a prompt and a language of their own each."""
    send = _Sender(chance, "own")
    heads = [
        system(instructions(chance, chance.randrange(8, 30), chance.choice(("en", "en", "fi", "ja"))))
        for _ in range(40)
    ]
    for _ in range(n):
        number = chance.randrange(40)
        yield send.sent(number, send.some_time(), [heads[number], user(question(chance))])


def own_tools(chance: random.Random, n: int) -> Iterator[Request]:
    """Departments of one company, each with those of its tools that it may use, and a word on it in some of them."""
    send, head = _Sender(chance, "office"), system(instructions(chance, 15))
    names = ("calendar", "mail", "payroll", "stock", "travel", "contracts", "wiki", "tickets", "fleet")
    own = [
        [tool(name, seed=number if name == "wiki" else 0) for name in names if chance.random() < 0.6]
        for number in range(6)
    ]
    for _ in range(n):
        number = chance.randrange(6)
        yield send.sent(number, send.some_time(), [head, user(question(chance))], own[number])


def completion(chance: random.Random, n: int) -> Iterator[Request]:
    """Code that is being written: the file up to the cursor, again after each few lines."""
    send, file = _Sender(chance, "code"), 0
    while send.count < n:
        at, file = send.some_time(), file + 1
        lines = code(chance, chance.randrange(6, 20)).split("\n")
        upto = chance.randrange(10, 30)
        while upto < len(lines) and send.count < n:
            at += send.pause(8)
            text = f"# file: src/module_{file}.py\n" + "\n".join(lines[:upto])
            yield send.sent(file, at, [], prompt=text)
            upto += chance.randrange(1, 9)


def summaries(chance: random.Random, n: int) -> Iterator[Request]:
    """A batch at night: a long document each, behind the instruction."""
    send, head, at = _Sender(chance, "batch"), system(instructions(chance, 5)), START + timedelta(hours=2)
    for number in range(n):
        at += timedelta(seconds=1.5)
        yield send.sent(
            number, at, [head, user(f"Summarise:\n\n{paragraph(chance, chance.randrange(30, 120))}")]
        )


def images(chance: random.Random, n: int) -> Iterator[Request]:
    """Photographs of damages, behind the question about them."""
    send, head, asked = _Sender(chance, "image"), system(instructions(chance, 12)), paragraph(chance, 4)
    for number in range(n):
        url = f"data:image/png;base64,{chance.getrandbits(512):0128x}"
        content = [{"type": "text", "text": asked}, {"type": "image_url", "image_url": {"url": url}}]
        yield send.sent(number, send.some_time(), [head, user(content)])


def deployed(chance: random.Random, n: int) -> Iterator[Request]:
    """A system prompt that was replaced by a better one at noon."""
    send, first = _Sender(chance, "deploy"), instructions(chance, 24).split("\n")
    second = list(first)
    for line in (1, 2, 9, 17):
        second[line] = f"- {sentence(chance)}"
    noon = START + timedelta(hours=HOURS / 2)
    for number in range(n):
        at = send.some_time()
        head = system("\n".join(first if at < noon else second))
        yield send.sent(number, at, [head, user(question(chance))])


def long_tail(chance: random.Random, n: int) -> Iterator[Request]:
    """Templates that are seen three times."""
    send = _Sender(chance, "tail")
    for number in range(n):
        if number % 3 == 0:
            head, tools = system(instructions(chance, chance.randrange(2, 20))), [tool("search", number)]
        yield send.sent(number // 3, send.some_time(), [head, user(question(chance))], tools)


SERVICES: Mapping[str, tuple[Service, int]] = {
    "agent": (agent, 1000),
    "rag": (rag, 500),
    "chat, English": (chat("en"), 500),
    "chat, Finnish": (chat("fi"), 300),
    "chat, Japanese": (chat("ja"), 300),
    "classification": (classify, 500),
    "extraction": (few_shot_turns, 200),
    "tenants of a platform": (tenants, 400),
    "separate tenants": (separate_tenants, 200),
    "tools of their own": (own_tools, 200),
    "code completion": (completion, 300),
    "summaries": (summaries, 120),
    "images": (images, 150),
    "deploy": (deployed, 240),
    "long tail": (long_tail, 90),
}
"""With how many requests of each make the log."""


def log(
    services: Sequence[str] = tuple(SERVICES),
    faults: Mapping[str, Sequence[Change]] | None = None,
    seed: int = 0,
    part: float = 1.0,
) -> list[Prompt]:
    """Requests of these services in order of time, this part of them; faults: what was changed in those of some."""
    made = [one for name in services for one in _requests(name, (faults or {}).get(name, ()), seed, part)]
    made.sort(key=lambda one: one.time)
    return [prompt(one, f"log:{line}") for line, one in enumerate(made, start=1)]


def _requests(name: str, changes: Sequence[Change], seed: int, part: float) -> list[Request]:
    service, whole = SERVICES[name]
    n = round(part * whole)
    sent = sorted(service(random.Random(f"{name} {seed}"), n), key=lambda one: one.time)[:n]
    made = Log(random.Random(f"fault {name} {seed}"), "en")
    for index, one in enumerate(sent):
        one.index = index
        made.requests.append(one)
        for change in changes:
            change(made, index)
    return sent


def record(request: Request) -> dict[str, Any]:
    """As a gateway logs it."""
    body: dict[str, Any] = {"model": "m", **request.more}
    if request.tools:
        body["tools"] = request.tools
    if request.messages:
        body["messages"] = request.messages
    own = f"{request.session}/{request.index}"
    told = {"request_id": own, "time": request.time.timestamp(), "session_id": request.session}
    return {**told, "user": request.user, "body": body}


def prompt(request: Request, line: str) -> Prompt:
    """As a reader of logs reads it."""
    told = read(record(request), line)
    assert not isinstance(told, str), told
    (one,) = told
    return one
