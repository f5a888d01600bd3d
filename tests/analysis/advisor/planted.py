"""Logs of prompts in which one thing or two break the cache, planted by what they do, not by how it is found."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cachemodel.prompts.model import Kind, Part, Prompt

RULES = {
    "en": (
        "You are the assistant of a bookshop with four branches.",
        "Greet the customer by the first name where it is known.",
        "Quote the range that the shipping tool gives and say that it is an estimate.",
        "Returns are accepted within thirty days with the receipt of the purchase.",
        "Never recommend a competitor, and decline questions about other customers.",
        "Answer in at most three short paragraphs without tables or headings.",
    ),
    "fi": (
        "Olet neljän myymälän kirjakaupan avustaja.",
        "Tervehdi asiakasta etunimellä silloin kun se on tiedossa.",
        "Kerro toimitusaika aina arviona äläkä lupaa tarkkaa päivää.",
        "Palautukset hyväksytään kolmenkymmenen päivän kuluessa kuittia vastaan.",
        "Älä koskaan suosittele kilpailijaa, äläkä kerro muista asiakkaista.",
        "Vastaa enintään kolmella lyhyellä kappaleella ilman taulukoita.",
    ),
    "ja": (
        "あなたは四つの支店を持つ書店の案内係です。",
        "お名前が分かる場合は必ずお名前でご挨拶してください。",
        "配送日は約束せず、配送ツールが示す範囲を見積もりとして伝えてください。",
        "返品は領収書があれば三十日以内に受け付けます。",
        "競合他社を勧めたり、他のお客様について話したりしないでください。",
        "回答は三段落以内の短い文章で、表や見出しは使わないでください。",
    ),
}
TOOLS = ("search", "hold", "shipping", "refund", "events")
START = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)

Change = Callable[["Log", int], None]


@dataclass
class Request:
    """A chat request while it is made."""

    index: int
    session: str
    user: str
    time: datetime
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Log:
    """What changes work on: the request that is made, with all that were before, and chance."""

    random: random.Random
    language: str
    requests: list[Request] = field(default_factory=list)

    @property
    def last(self) -> Request:
        """The request that is made."""
        return self.requests[-1]

    @property
    def system(self) -> str:
        """Its system message."""
        return str(self.last.messages[0]["content"])

    @system.setter
    def system(self, text: str) -> None:
        self.last.messages[0]["content"] = text


def log(
    changes: Sequence[Change], n: int = 60, *, language: str = "en", seed: int = 0, tools: bool = False
) -> list[Prompt]:
    """n requests of one template, in seven sessions of four users, each with a question of its own, changed by each of
    `changes` in turn."""
    made = Log(random.Random(seed), language)
    time = START
    rules = "\n".join(line for line in RULES[language] * 2)
    for index in range(n):
        time += timedelta(seconds=made.random.expovariate(1 / 40))
        number = made.random.randrange(7)
        system = {"role": "system", "content": rules}
        asked = {"role": "user", "content": question(made.random)}
        made.requests.append(Request(index, f"s{number}", f"u{number % 4}", time, [system, asked]))
        if tools:
            made.last.tools = [tool(name) for name in TOOLS]
        for change in changes:
            change(made, index)
    return [prompt(one) for one in made.requests]


def conversations(
    changes: Sequence[Change], talks: int = 6, turns: int = 8, *, language: str = "en", seed: int = 0
) -> list[Prompt]:
    """Conversations that grow by a question and an answer a turn, side by side; changes see each request in full."""
    made = Log(random.Random(seed), language)
    time, rules = START, "\n".join(RULES[language] * 2)
    said: dict[int, list[dict[str, Any]]] = {talk: [] for talk in range(talks)}
    for turn in range(turns):
        for talk in range(talks):
            time += timedelta(seconds=made.random.expovariate(1 / 5))
            said[talk].append({"role": "user", "content": question(made.random)})
            messages = [{"role": "system", "content": rules}, *(dict(one) for one in said[talk])]
            made.requests.append(Request(turn * talks + talk, f"s{talk}", f"u{talk % 4}", time, messages))
            for change in changes:
                change(made, turn)
            said[talk].append({"role": "assistant", "content": answer(made.random)})
    return [prompt(one) for one in made.requests]


def question(chance: random.Random) -> str:
    """What nobody asks twice."""
    words = (
        "novel",
        "atlas",
        "refund",
        "parcel",
        "author",
        "branch",
        "voucher",
        "signing",
        "poetry",
        "opening",
    )
    return " ".join(chance.choice(words) for _ in range(chance.randrange(8, 20))) + f" {chance.random():.6f}?"


def answer(chance: random.Random) -> str:
    """What an assistant said."""
    return "Certainly. " + question(chance) * 2


def tool(name: str) -> dict[str, Any]:
    """A tool's definition, a hundred tokens or so."""
    described = f"Does what the customer wants of {name}, with care and only after it was asked for. " * 2
    parameters = {"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
    return {
        "type": "function",
        "function": {"name": name, "description": described, "parameters": parameters},
    }


def prompt(request: Request) -> Prompt:
    """As a reader of request logs makes it."""
    parts = [
        Part(f"tools[{at}]", "tools", Kind.TOOL, json.dumps(one, ensure_ascii=False, separators=(",", ":")))
        for at, one in enumerate(request.tools)
    ]
    for at, message in enumerate(request.messages):
        path, role = f"messages[{at}]", str(message["role"])
        if thought := message.get("reasoning_content"):
            parts.append(Part(f"{path}.reasoning_content", role, Kind.REASONING, thought, at))
        parts.append(Part(f"{path}.content", role, Kind.TEXT, str(message["content"]), at))
    return Prompt(
        request_id=f"r{request.index}",
        parts=tuple(parts),
        session=request.session,
        user=request.user,
        time=request.time.timestamp(),
        body={"messages": request.messages, "tools": request.tools},
        **request.more,
    )


# What is planted.


def at_top(make: Callable[[Log], str]) -> Change:
    """A line of its own before the system message."""

    def change(made: Log, _: int) -> None:
        made.system = f"{make(made)}\n{made.system}"

    return change


def after_first_line(make: Callable[[Log], str]) -> Change:
    """A line of its own behind the first one of the system message."""

    def change(made: Log, _: int) -> None:
        first, rest = made.system.split("\n", 1)
        made.system = f"{first}\n{make(made)}\n{rest}"

    return change


def sometimes(change: Change, share: float) -> Change:
    """In so many of the requests."""

    def rarely(made: Log, index: int) -> None:
        if made.random.random() < share:
            change(made, index)

    return rarely


def clock(form: str) -> Callable[[Log], str]:
    """The time of the request."""
    return lambda made: made.last.time.strftime(form)


def epoch(made: Log) -> str:
    """The time of the request, since 1970."""
    return f"ts={int(made.last.time.timestamp() * 1000)}"


def request_id(made: Log) -> str:
    """An id that nobody sends twice."""
    return f"Request: {uuid.UUID(int=made.random.getrandbits(128))}"


def odd_id(made: Log) -> str:
    """An id of no known form."""
    letters = "bcdfghjkmnpqrstvwxyz"
    return "trace <" + "".join(made.random.choice(letters) for _ in range(14)) + ">"


def counter(made: Log) -> str:
    """How many requests there were."""
    return f"Turn number {made.last.index + 1} of today."


def reading(made: Log) -> str:
    """What is measured anew each time."""
    return f"Load of the shop: {made.random.randrange(5, 96)} %"


NAMES = ("Aino", "Björn", "Chiara", "Dmitri")


def user_name(made: Log) -> str:
    """Who asks."""
    return f"The customer is called {NAMES[int(made.last.user[1])]}."


def session_note(made: Log) -> str:
    """What belongs to the session alone."""
    return f"Session {made.last.session}-{hash_of(made.last.session)} began today."


def hash_of(name: str) -> str:
    """A few characters that are always those of a name."""
    return uuid.uuid5(uuid.NAMESPACE_URL, name).hex[:10]


def tone(made: Log) -> str:
    """One of a few that somebody wrote."""
    return f"Tone: {made.random.choice(('warm and chatty', 'brief', 'formal'))}."


FACTS = tuple(f"The reader once said that shelf {i} is where {w} books belong in spring." for i, w in enumerate(
    ("travel", "crime", "garden", "cook", "science", "art", "poetry", "history")))  # fmt: skip


def facts_by_likeness(made: Log, _: int) -> None:
    """The same memories, in another order each time."""
    facts = list(FACTS)
    made.random.shuffle(facts)
    made.system = (
        made.system.split("\n", 1)[0] + "\n" + "\n".join(facts) + "\n" + made.system.split("\n", 1)[1]
    )


def tools_shuffled(made: Log, _: int) -> None:
    """The order of tools is that of a set."""
    made.random.shuffle(made.last.tools)


def tool_comes(made: Log, index: int) -> None:
    """A tool more from the 25th request on, and one more from the 45th on."""
    made.last.tools = [tool(name) for name in TOOLS[: 3 + (index >= 25) + (index >= 45)]]


def keys_shuffled(made: Log, _: int) -> None:
    """The keys of each definition are written in the order of a hash."""
    made.last.tools = [shuffled_keys(one, made.random) for one in made.last.tools]


def shuffled_keys(value: Any, chance: random.Random) -> Any:
    """The same value, the keys of all its objects in another order."""
    if isinstance(value, list):
        return [shuffled_keys(one, chance) for one in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    chance.shuffle(names)
    return {name: shuffled_keys(value[name], chance) for name in names}


def line_ends(made: Log, _: int) -> None:
    """Some clients write CRLF."""
    if made.last.user == "u1":
        made.system = made.system.replace("\n", "\r\n")


def decomposed(made: Log, _: int) -> None:
    """Some clients write é as e and an accent."""
    import unicodedata

    if made.last.user == "u2":
        made.system = unicodedata.normalize("NFD", made.system)


def window(made: Log, _: int) -> None:
    """Only the last five messages are sent."""
    system, *said = made.last.messages
    made.last.messages = [system, *said[-5:]]


def retold(made: Log, _: int) -> None:
    """The time stands in front of the first question, and is the one of now."""
    for message in made.last.messages:
        if message["role"] == "user":
            message["content"] = f"[{made.last.time:%H:%M:%S}] {message['content']}"
            break


def thoughts_dropped(made: Log, _: int) -> None:
    """Each answer comes with its reasoning, which is sent back for the last one only."""
    answers = [message for message in made.last.messages if message["role"] == "assistant"]
    for message in answers[-1:]:
        message["reasoning_content"] = (
            f"They want to know about this: {message['content'][:40]}, so let me see. " * 3
        )


def memory_first(made: Log, _: int) -> None:
    """What was looked up for this question stands before the conversation."""
    found = "Looked up: " + "; ".join(made.random.sample(FACTS, 2))
    made.last.messages.insert(1, {"role": "system", "content": found})
