"""Field reports about prompts, as logs that have what the report tells: each in several phrasings and languages.

A row makes the log of a language and a phrasing; `expected` are the causes that the advice has to name, and no others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.advisor.learning.cause import Cause
from analysis.prefix_replay.rules import BlockRule, Rule, SlotRule
from cachemodel.chat_template import ChatTemplate
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import RULES, Change, Log, after_first_line, at_top, clock, log

BLOCKS = BlockRule(block_size=4)
Make = Callable[[str, int], list[Prompt]]


@dataclass(frozen=True)
class Row:
    """make: the log of a language, in a phrasing (0, 1, ...). template: of the server, where it matters."""

    number: int
    thread: str
    symptom: str
    make: Make
    expected: frozenset[Cause]
    phrasings: int = 2
    cache: Rule = field(default_factory=lambda: BLOCKS)
    template: str = ""

    @property
    def name(self) -> str:
        """For pytest."""
        return f"row {self.number}"


def said(*changes: Change, tools: bool = False, n: int = 60) -> Make:
    """A change for each phrasing."""

    def make(language: str, phrasing: int) -> list[Prompt]:
        return log([changes[phrasing]], language=language, tools=tools, n=n, seed=phrasing)

    return make


def talked(*changes: Change) -> Make:
    """The same of conversations."""

    def make(language: str, phrasing: int) -> list[Prompt]:
        return planted.conversations([changes[phrasing]], language=language, seed=phrasing)

    return make


def bodies(made: Callable[[random.Random, str, int], Sequence[dict[str, Any]]]) -> Make:
    """Records of a request log, as `read` takes them."""

    def make(language: str, phrasing: int) -> list[Prompt]:
        records = made(random.Random(phrasing), language, phrasing)
        return [
            prompt
            for at, one in enumerate(records)
            for prompt in read(one, f"log:{at}")
            if isinstance(prompt, Prompt)
        ]

    return make


def record(messages: list[dict[str, Any]], cached: int | None = None, **more: Any) -> dict[str, Any]:
    """A line of a log. cached: tokens by its usage."""
    told: dict[str, Any] = {"body": {"model": "m", "messages": messages, **more}}
    if cached is not None:
        details = {"cached_tokens": cached}
        told["usage"] = {"prompt_tokens": 400, "completion_tokens": 5, "prompt_tokens_details": details}
    return told


def system(language: str) -> dict[str, Any]:
    return {"role": "system", "content": "\n".join(RULES[language] * 2)}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def embeddings(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """Prompts as embeddings, of which no server finds a prefix."""
    return [
        {
            "body": {
                "model": "m",
                "prompt_embeds": f"{chance.getrandbits(96):024x}",
                "max_tokens": 8 + phrasing,
            }
        }
        if at % 2
        else record([system(language), user(planted.question(chance))])
        for at in range(20)
    ]


def images(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """A conversation that brings an image a turn: nothing is cached; one without images is."""
    told: list[dict[str, Any]] = []
    for pictures in (True, False):
        messages = [system(language)]
        for turn in range(8):
            text = {"type": "text", "text": planted.question(chance)}
            address = f"data:image/png;base64,{chance.getrandbits(64):016x}"
            image = {"type": "image_url", "image_url": {"url": address}}
            content = ([image, text] if phrasing else [text, image]) if pictures else text["text"]
            messages = [*messages, user(content)]
            told.append(record(messages, 0 if pictures or not turn else 300))
            messages = [*messages, {"role": "assistant", "content": planted.answer(chance)}]
    return told


def rolling(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """The marker goes with the last message, and a server renders it: every other request is served nothing."""
    told, turns = [], list[dict[str, Any]]()
    for turn in range(12):
        turns = [*turns, user([{"type": "text", "text": planted.question(chance)}])]
        marked = [dict(one) for one in turns]
        at = len(marked) - 1 - (2 if phrasing and turn > 1 else 0)
        block = {**marked[at]["content"][0], "cache_control": {"type": "ephemeral"}}
        marked[at] = {**marked[at], "content": [block]}
        messages = [system(language), *marked]
        told.append(record(messages, 0 if turn % 2 else 380))
        turns = [*turns, {"role": "assistant", "content": planted.answer(chance)}]
    return told


def without_reading(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    option = {"prompt_logprobs": 1} if phrasing == 0 else {"cache_prompt": False}
    return [
        record([system(language), user(planted.question(chance))], **(option if at % 2 else {}))
        for at in range(30)
    ]


def arguments_turned(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """The arguments of earlier calls come back from a database with their keys in another order."""
    told, turns = [], list[dict[str, Any]]()
    for _ in range(8):
        turns = [*turns, user(planted.question(chance))]
        given = {"query": planted.question(chance), "branch": "west", "limit": 5, "format": "paper"}
        told.append(record([system(language), *(turned(one, chance) for one in turns)]))
        call = {
            "id": f"c{len(turns)}",
            "type": "function",
            "function": {"name": "search", "arguments": dumped(given)},
        }
        turns = [
            *turns,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": planted.answer(chance)},
        ]
    return told


def dumped(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def turned(message: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """With the arguments of its call in another order of keys."""
    import json

    if not (calls := message.get("tool_calls")):
        return message
    inner = calls[0]["function"]
    shuffled = dumped(planted.shuffled_keys(json.loads(inner["arguments"]), chance))
    return {**message, "tool_calls": [{**calls[0], "function": {**inner, "arguments": shuffled}}]}


def two_clients(made: Log, _: int) -> None:
    """One client of two writes the keys of tools in an order of its own."""
    if made.last.user in ("u1", "u3"):
        made.last.tools = [planted.shuffled_keys(tool, random.Random(5)) for tool in made.last.tools]


def agent_shuffles(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """A set of tools in the order of its hashes, and thoughts that are erased from earlier turns."""
    told, turns = [], list[dict[str, Any]]()
    tools = [planted.tool(name) for name in planted.TOOLS]
    for _ in range(10):
        turns = [*turns, user(planted.question(chance))]
        chance.shuffle(tools)
        last = max((at for at, one in enumerate(turns) if one["role"] == "assistant"), default=-1)
        shown = [
            {**one, "content": one["content"].split("</think>")[1]}
            if one["role"] == "assistant" and at != last
            else one
            for at, one in enumerate(turns)
        ]
        told.append(record([system(language), *shown], tools=list(tools)))
        thought = planted.question(chance) * (4 + phrasing)
        turns = [
            *turns,
            {"role": "assistant", "content": f"<think>{thought}</think>{planted.answer(chance)}"},
        ]
    return told


def system_last(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """The system message stands behind the history."""
    told = []
    for _ in range(20):
        history = [user(planted.question(chance)), {"role": "assistant", "content": planted.answer(chance)}]
        told.append(record([*history[: 2 - phrasing], {**system(language), "role": "user"}]))
    return told


def thoughts(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """A conversation in which the client sends every thought back as it was."""
    told, turns = [], list[dict[str, Any]]()
    for _ in range(8):
        turns = [*turns, user(planted.question(chance))]
        told.append(record([system(language), *turns]))
        thought = planted.question(chance) * 5
        said = planted.answer(chance)
        turns = [
            *turns,
            {"role": "assistant", "content": f"<think>\n{thought}\n</think>\n{said}"}
            if phrasing
            else {"role": "assistant", "content": said, "reasoning_content": thought},
        ]
    return told


def reminded(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """A system message comes into the conversation every other turn."""
    told, turns = [], list[dict[str, Any]]()
    for turn in range(10):
        if turn % 2:
            words = (
                f"Mind the shop's rule {turn}."
                if phrasing
                else f"Stock has changed: {planted.question(chance)}"
            )
            turns = [*turns, {"role": "system", "content": words}]
        turns = [*turns, user(planted.question(chance))]
        told.append(record([system(language), *turns]))
        turns = [*turns, {"role": "assistant", "content": planted.answer(chance)}]
    return told


FILES = tuple(f"src/{name}.py: what is in {name}, line by line" for name in (
    "main", "parser", "tokens", "render", "cache", "index", "shop", "tests"))  # fmt: skip


def bullets(made: Log, _: int) -> None:
    """Memories as points of a list, behind all that is fixed."""
    facts = [f"- {fact.lower()}" for fact in planted.FACTS]
    made.random.shuffle(facts)
    made.system = "\n".join((made.system, "What is known:", *facts))


def notes(made: Log, _: int) -> None:
    """What was looked up stands in the system message, in front of its rules."""
    found = " ".join(made.random.sample(planted.FACTS, 3)) + f" {planted.question(made.random)}"
    made.system = f"Notes on the customer: {found}\n{made.system}"


def thoughts_cut(made: Log, turn: int) -> None:
    """The last answer is sent with its thoughts, earlier ones without."""
    answers = [message for message in made.last.messages if message["role"] == "assistant"]
    for message in answers[-1:]:
        message["content"] = f"<think>\n{message['content'][20:90] * 4}\n</think>\n{message['content']}"


def tree(made: Log, turn: int) -> None:
    """The same as a tree is drawn."""
    workspace(made, turn)
    made.system = made.system.replace("src/", "├── ").replace("Working set at", "Files as of")


def workspace(made: Log, _: int) -> None:
    """An unsorted tree of files, the time, and an id of the call."""
    files = list(FILES)
    made.random.shuffle(files)
    first, rest = made.system.split("\n", 1)
    at = f"Working set at {made.last.time:%H:%M:%S}"
    made.system = "\n".join((first, at, *files, planted.odd_id(made), rest))


def taking_turns(chance: random.Random, language: str, phrasing: int) -> list[dict[str, Any]]:
    """Two long prompts alternate in a server with one slot."""
    heads = [
        system(language),
        {"role": "system", "content": "\n".join(RULES["en" if language == "fi" else "fi"] * (3 + phrasing))},
    ]
    return [record([heads[at % 2], user(planted.question(chance))]) for at in range(20)]


_KEEPS = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content }}\n{% endfor %}<|assistant|>"
)
_DROPS = (
    "{% for m in messages %}<|{{ m.role }}|>{% set text = m.content %}{% if '</think>' in text and loop.index0 < "
    "messages|length - 2 %}{% set text = text.split('</think>')[-1] %}{% endif %}{% if m.reasoning_content and "
    "loop.index0 >= messages|length - 2 %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ text }}\n{% endfor %}"
    "<|assistant|>"
)
_HOISTS = (
    "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}<|assistant|>"
)


def _of(*causes: Cause) -> frozenset[Cause]:
    return frozenset(causes)


TIMES = said(
    at_top(clock("Current Date & Time: %Y-%m-%d %H:%M:%S")),
    after_first_line(clock("It is %A the %d of %B %Y, %H:%M:%S o'clock")),
    at_top(clock("Aika: %d.%m.%Y klo %H.%M.%S")),
)
ROWS = (
    Row(12, "vllm#21771", "image embeddings: 0 %", bodies(embeddings), _of(Cause.EMBEDS)),
    Row(13, "vllm#43587", "an image a turn: cached tokens always 0", bodies(images), _of(Cause.NOT_TEXT)),
    Row(17, "sglang#36877", "hits alternate between all and nothing", bodies(rolling), _of(Cause.MARKERS)),
    Row(21, "LMCache#2310", "models with vision never hit", bodies(images), _of(Cause.NOT_TEXT)),
    Row(33, "vllm PR#17251, PR#28194", "options read no cache", bodies(without_reading), _of(Cause.READS_OFF)),
    Row(70, "vllm-mlx PR#277", "parts at token 40 of 60k", TIMES, _of(Cause.CLOCK), 3),
    Row(71, "open-webui#28527", "variables of date and time", TIMES, _of(Cause.CLOCK), 3),
    Row(73, "nanobot#226, private-gpt PR#2271", "time in the system prompt", TIMES, _of(Cause.CLOCK), 3),
    Row(75, "dspy#10216", "arguments in the order of a dict", bodies(arguments_turned), _of(Cause.KEY_ORDER)),
    Row(76, "sglang PR#34553", "two clients, one tool, two orders",
        said(two_clients, planted.keys_shuffled, tools=True), _of(Cause.KEY_ORDER)),
    Row(77, "ai-sdk-provider PR#472, iTerm2 PR#687", "keys drift between turns", bodies(arguments_turned),
        _of(Cause.KEY_ORDER)),
    Row(79, "hermes-agent#27339", "90k tokens again", bodies(agent_shuffles),
        _of(Cause.TOOL_ORDER, Cause.REASONING_STRIPPED)),
    Row(81, "open-webui#28292", "memories by likeness", said(planted.facts_by_likeness, bullets),
        _of(Cause.ITEM_ORDER)),
    Row(82, "learn-claude-code#311, goclaw#1506", "memory changes each turn", talked(planted.memory_first, notes),
        _of(Cause.MEMORY)),
    Row(83, "raglite#49", "system message behind the history", bodies(system_last), _of(Cause.SHARED_BEHIND)),
    Row(85, "Qwen3.8#112, #131", "hits drop with each new question", bodies(thoughts), _of(Cause.TEMPLATE),
        template=_DROPS),
    Row(86, "opencode#19081, Crow#60", "reasoning is not sent back", talked(planted.thoughts_dropped, thoughts_cut),
        _of(Cause.REASONING_STRIPPED)),
    Row(88, "omlx#3608", "a match ends at 25k", bodies(reminded), _of(Cause.HOISTED), template=_HOISTS),
    Row(92, "Codewhale#359", "20 to 30 %", said(workspace, tree),
        _of(Cause.CLOCK, Cause.ITEM_ORDER, Cause.NONCE)),
    Row(96, "llama.cpp#10993", "two prompts lose each other's slot", bodies(taking_turns), _of(Cause.SLOTS),
        cache=SlotRule(slots=1, host_tokens=0)),
)  # fmt: skip


def template_of(row: Row) -> ChatTemplate:
    """Of the server of a report."""
    return ChatTemplate(row.template or _KEEPS, {})
