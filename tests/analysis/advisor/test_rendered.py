"""What servers render that is no text: ids of calls that clients make anew."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from analysis.advisor.advice import Advice, advise
from analysis.advisor.learning.cause import Cause
from analysis.prefix_replay.rules import BlockRule
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from tests.analysis.advisor.test_history import SYSTEM, TASK


def with_ids(body: Any) -> NDArray[np.uint32]:
    """A template that writes the id of each call in front of its result, as Mistral's does."""
    words: list[str] = []
    for message in body["messages"]:
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        words += [message["role"], *ids, message.get("tool_call_id", ""), *str(message["content"]).split()]
    return np.array([zlib.crc32(word.encode()) for word in words], np.uint32)


def agents(*, anew: bool) -> list[Prompt]:
    told = list[Prompt]()
    for step in range(10):
        for number in range(4):
            messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
            messages.append({"role": "user", "content": TASK.format(number)})
            for at in range(step):
                own = f"call_{number}_{at}" + f"_{step}" * anew
                call = {"name": "read_file", "arguments": json.dumps({"path": f"{number}/{at}.py"})}
                called = {"id": own, "type": "function", "function": call}
                messages.append({"role": "assistant", "content": None, "tool_calls": [called]})
                result = f"file {number} {at} says that the parcel is late " * 6
                messages.append({"role": "tool", "tool_call_id": own, "content": result})
            body = {"model": "m", "messages": messages}
            (one,) = read({"time": 1e9 + 10 * step + number, "body": body}, f"r{step}-{number}")
            assert isinstance(one, Prompt)
            told.append(one)
    return told


def advised(prompts: list[Prompt]) -> Advice:
    return advise(prompts, with_ids, BlockRule(block_size=4), cache_name="c", tokens_by="t")


@pytest.mark.parametrize("anew", [True, False])
def test_ids_of_calls_that_are_made_anew_are_told_where_they_stand(anew: bool) -> None:
    found = advised(agents(anew=anew))
    if not anew:
        assert found.suggestions == ()
        return
    (one,) = found.suggestions
    assert (one.slot.cause, one.slot.path) == (Cause.HISTORY_REWRITTEN, "messages[2].tool_calls[0].id")
    assert one.slot.detail.endswith("id of an earlier call is another one in each request")
    lost = found.as_sent.computed - advised(agents(anew=False)).as_sent.computed
    # runs of tokens that hold one of the ids are not known again
    assert 0.6 * lost < one.at_most < lost
