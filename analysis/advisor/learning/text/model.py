"""What the texts of one place are compared as, and what is found in them."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.advisor.learning.behaviour import Behaviour, Seen
from analysis.advisor.learning.cause import Cause
from cachemodel.prompts.model import Part, Prompt

MOST_CHARACTERS = 100_000  # of a text: what breaks a cache behind them costs the rest alone


@dataclass(frozen=True, slots=True)
class Sample:
    """The text that a request has at a place. time: Unix seconds or None; session, user: empty where not told."""

    request: int
    text: str
    time: float | None
    session: str
    user: str


def sample(request: int, prompt: Prompt, part: Part) -> Sample:
    """Of a part, as far as it is looked at."""
    return Sample(request, part.text[:MOST_CHARACTERS], prompt.time, prompt.session, prompt.user)


@dataclass(frozen=True, slots=True)
class TextSlot:
    """offset: characters of the reference before it. example: the request whose text the reference is. differing:
    requests that have something else than most. fixed_behind: characters of the reference behind it, slots left out.
    pattern: regular expression of the sentence or line that a value stands in; alone: whether it holds no other value.
    items: those out of order, in the order of the reference. whole: whether the slot is all of the text. stands_for:
    how many requests each one that was compared stands for. anew: as in Slot."""

    cause: Cause
    offset: int
    before: str
    after: str
    example: int
    seen: tuple[Seen, ...]
    behaviour: Behaviour | None
    differing: frozenset[int]
    fixed_behind: int
    detail: str = ""
    pattern: str = ""
    items: tuple[str, ...] = ()
    whole: bool = False
    alone: bool = True
    stands_for: float = 1.0
    anew: float | None = None
