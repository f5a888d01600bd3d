"""Prompts as the server renders them: where the template writes anew what the request left as it was, and where it
renders what is no text, such as the ids of calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.messages.examples import key
from analysis.advisor.learning.messages.threads import threads
from analysis.advisor.learning.model import HEAD_ROLES, Slot
from analysis.advisor.pricing.gains import Tokens
from cachemodel.prompts.model import Kind, Part, Prompt

OPENING = 24  # tokens at the end of a prompt that only bid the assistant speak
MIN_LOST, MIN_SHARE = 32, 0.1  # tokens, and of the earlier prompt, below which templates differ by chance
FEWEST = 2  # requests that it happens to

_IDS = ("id", "tool_call_id", "tool_use_id", "call_id")  # of a call, as OpenAI's and Anthropic's APIs have it

_Lost = tuple[int, int, int, str]
"""The request, the token at which it parts from the one before, the tokens lost of that one, and the part at fault."""


def template_slots(
    prompts: Sequence[Prompt], tokens: Sequence[Tokens], per_character: float
) -> Iterator[Slot]:
    """Requests that only add to the one before in their conversation, and whose tokens part from it before its end.

    tokens: of each prompt as its server renders it. per_character: tokens of a character, to tell the loss as a slot
    does.
    """
    lost: dict[Cause, list[_Lost]] = defaultdict(list)
    for index, thread in threads(list(enumerate(prompts))).items():
        if thread.earlier is None or not _grows(prompts[thread.earlier], prompts[index]):
            continue
        before, now = tokens[thread.earlier], tokens[index]
        same = common(before, now)
        missing = len(before) - OPENING - same
        if missing >= max(MIN_LOST, MIN_SHARE * len(before)):
            cause, path = _cause(prompts[thread.earlier], prompts[index])
            lost[cause].append((index, same, missing, path))
    for cause, told in lost.items():
        if len(told) >= FEWEST:
            yield _slot(prompts, cause, told, per_character)


def common(first: Tokens, second: Tokens) -> int:
    """Tokens that both begin with."""
    n = min(len(first), len(second))
    differ = np.flatnonzero(first[:n] != second[:n])
    return int(differ[0]) if len(differ) else n


def _grows(earlier: Prompt, later: Prompt) -> bool:
    begun = [key(part) for part in later.parts[: len(earlier.parts)]]
    return len(later.parts) > len(earlier.parts) and begun == [key(part) for part in earlier.parts]


def _cause(earlier: Prompt, later: Prompt) -> tuple[Cause, str]:
    """What the template did, and the part that it did it for."""
    if other := _other_id(_messages(earlier), _messages(later)):
        return Cause.HISTORY_REWRITTEN, other
    come = later.parts[len(earlier.parts) :]
    if system := next((part for part in come if part.role in HEAD_ROLES), None):
        return Cause.HOISTED, system.path
    return Cause.TEMPLATE, next((part for part in earlier.parts if _thinks(part)), earlier.parts[-1]).path


def _messages(prompt: Prompt) -> object:
    return (prompt.body or {}).get("messages")


def _other_id(earlier: object, later: object, path: str = "messages") -> str:
    """Where an id of what was said before is another one now, which some templates render; empty where none is."""
    if isinstance(earlier, list) and isinstance(later, list):
        told = (
            _other_id(a, b, f"{path}[{at}]") for at, (a, b) in enumerate(zip(earlier, later, strict=False))
        )
        return next(filter(None, told), "")
    if not isinstance(earlier, dict) or not isinstance(later, dict):
        return ""
    for name in earlier.keys() & later.keys():
        if name in _IDS and earlier[name] != later[name]:
            return f"{path}.{name}"
    names = ("tool_calls", "content")
    return next(filter(None, (_other_id(earlier.get(n), later.get(n), f"{path}.{n}") for n in names)), "")


def _thinks(part: Part) -> bool:
    return part.kind is Kind.REASONING or "<think>" in part.text


def _slot(prompts: Sequence[Prompt], cause: Cause, told: Sequence[_Lost], per_character: float) -> Slot:
    index, same, missing, path = max(told, key=lambda one: one[2])
    part = next((part for part in prompts[index].parts if part.path == path), prompts[index].parts[-1])
    detail = f"the tokens part from those of the request before at token {same:,}, {missing:,} before its end"
    if cause is Cause.TEMPLATE and _thinks(part):
        detail += "; the reasoning of earlier turns is left out"
    elif cause is Cause.HISTORY_REWRITTEN:
        detail += f"; {path.rpartition('.')[2]} of an earlier call is another one in each request"
    return Slot(
        cause=cause,
        cluster=-1,
        path=path,
        role=part.role,
        offset=0,
        before="",
        after=" ".join(part.text[:60].split()[:4]),
        example=prompts[index].request_id,
        seen=tuple(Seen(at, f"from token {token:,} on") for at, token, _, _ in told),
        behaviour=None,
        requests=len(told),
        of=len(prompts),
        behind=sum(one[2] for one in told) / len(told) / per_character,
        detail=detail,
    )
