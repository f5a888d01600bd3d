"""Files of one repository that agents read, each session some of them: what the model looked up is no fault of the
prompt, unless two of three conversations come to it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta

import pytest

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from cachemodel.prompts.model import Kind, Prompt
from tests.analysis.advisor import realistic
from tests.analysis.advisor.planted import Request
from tests.analysis.advisor.prose import code, instructions, question, tool

FILES, SESSIONS = 16, 60
TOOLS = [tool("read_file")]


def sessions(seed: int, first: float) -> list[Prompt]:
    """Each reads four to eight files, now and then one twice: a file comes up in a third of them. first: the share
    of sessions that begin with one file, behind a question of their own."""
    made = sorted(requests(random.Random(seed), first), key=lambda one: one.time)
    for index, one in enumerate(made):
        one.index = index
    return [realistic.prompt(one, f"log:{line}") for line, one in enumerate(made, start=1)]


def requests(chance: random.Random, first: float) -> Iterator[Request]:
    send, head = realistic._Sender(chance, "reader"), realistic.system(instructions(chance, 20))
    files = [code(chance, 12) for _ in range(FILES)]
    for talk in range(SESSIONS):
        at, said = send.some_time(), [head, realistic.user(question(chance))]
        names = [chance.randrange(1, FILES) for _ in range(chance.randrange(4, 9))]
        if chance.random() < first:
            names.insert(0, 0)
        for turn, name in enumerate(names):
            yield send.sent(talk, at, said, TOOLS)
            at += timedelta(seconds=10)
            asked = {"name": "read_file", "arguments": json.dumps({"path": f"src/{name}.py"})}
            call = {"id": f"call_{talk}_{turn}", "type": "function", "function": asked}
            said.append({"role": "assistant", "content": None, "tool_calls": [call]})
            said.append({"role": "tool", "tool_call_id": call["id"], "content": files[name]})
        yield send.sent(talk, at, said, TOOLS)


@pytest.mark.parametrize("seed", range(4))
def test_what_some_sessions_read_is_nothing(seed: int) -> None:
    made = sessions(seed, first=0.3)
    files = {part.text for one in made for part in one.parts if part.kind is Kind.RESULT}
    assert len(files) == FILES
    assert [(slot.cause, slot.path) for slot in learn(made)] == []


@pytest.mark.parametrize("seed", range(4))
def test_what_most_sessions_begin_with_is_told(seed: int) -> None:
    made = sessions(seed, first=0.8)
    slots = [slot for slot in learn(made) if slot.cause is Cause.SHARED_BEHIND]
    (one,) = slots
    assert one.path == "messages[3].content"
    assert 0.6 * SESSIONS < one.requests < SESSIONS
