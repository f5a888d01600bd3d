"""What the advisor learns: where prompts of one template differ, why, and what stands behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.advisor.learning.behaviour import Behaviour, Seen
from analysis.advisor.learning.cause import Cause
from cachemodel.prompts.model import Part, Prompt

HEAD_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place at which the prompts of a cluster differ.

    path: of the part in the request of `example`. offset: characters of that part before the slot, in that request.
    before, after: the words around it. seen: what each request that was looked at has there, in order of time.
    behaviour: None where the slot is no value. requests: of how many of `of` looked at it breaks what they share with
    others. behind: mean characters behind the slot in these that were sent before, and so would be found again.
    detail: what is particular about it, one sentence. pattern, items, whole, alone: as in TextSlot, for rules. token:
    tokens of the prompt before the slot, None where learning does not know; tokens_alone: whether nothing else is known
    of the prompts, so that no rule can write it. anew: in how many requests it has a value
    that none before them had, None where that is all of `requests`. compared: how many of `of` were looked at where
    `requests` is an estimate by these, None where it was counted. lasts: whether a conversation keeps its value, as far
    as conversations show it.
    """

    cause: Cause
    cluster: int
    path: str
    role: str
    offset: int
    before: str
    after: str
    example: str
    seen: tuple[Seen, ...]
    behaviour: Behaviour | None
    requests: int
    of: int
    behind: float
    detail: str = ""
    pattern: str = ""
    items: tuple[str, ...] = ()
    whole: bool = False
    alone: bool = True
    token: int | None = None
    tokens_alone: bool = False
    anew: float | None = None
    compared: int | None = None
    lasts: bool = True

    @property
    def lost(self) -> float:
        """Characters computed again because of it, if it were the only fault and the cache forgot nothing."""
        return (self.requests if self.anew is None else min(self.anew, self.requests)) * self.behind


@dataclass(frozen=True, slots=True)
class Cluster:
    """Requests of one template: indices into the prompts, in order of time."""

    number: int
    requests: tuple[int, ...]


def head(prompt: Prompt) -> Sequence[Part]:
    """What stands before the conversation: tools and the first system messages, or all of a text without messages."""
    for at, part in enumerate(prompt.parts):
        if part.message >= 0 and part.role not in HEAD_ROLES:
            return prompt.parts[:at]
    return prompt.parts


def conversation(prompt: Prompt) -> Sequence[Part]:
    """What stands behind the head."""
    return prompt.parts[len(head(prompt)) :]
