"""What the values of a slot cost: the text behind them that was sent before, and is found no more.

The first request with a value pays for all that is the same behind it. A later one pays nothing for what all prompts
share, which stands in the cache with its value; but the history of its own conversation stands there only behind the
values that the conversation had. So where a value changes from turn to turn, few values cost as much as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis.advisor.learning.behaviour import CONSTANT
from analysis.advisor.learning.messages.examples import key
from analysis.advisor.learning.messages.threads import Thread
from analysis.advisor.learning.model import head
from analysis.advisor.learning.text.model import Sample, TextSlot
from cachemodel.prompts.model import Prompt


@dataclass(frozen=True, slots=True)
class Lost:
    """requests: that pay, those that were not compared estimated. anew: of these, those with a value that none before
    had; None where most is lost by others. behind: mean characters that such a request pays for. lasts: whether
    conversations keep their value."""

    requests: float
    anew: float | None
    behind: float
    lasts: bool


class Again:
    """What of each prompt was sent in an earlier one of its cluster: characters from each part on."""

    def __init__(self, requests: Sequence[tuple[int, Prompt]]) -> None:
        known: set[tuple[str, str, str]] = set()
        self._prompts = dict(requests)
        self._behind: dict[int, list[int]] = {}
        for index, prompt in requests:
            keys = [key(part) for part in prompt.parts]
            behind = [0]
            for one in reversed(keys):
                behind.append(behind[-1] + (len(one[2]) if one in known else 0))
            self._behind[index] = behind[::-1]
            known.update(keys)

    def behind(self, index: int, part: int) -> int:
        """Characters from this part of a request on that were sent before."""
        behind = self._behind[index]
        return behind[min(part, len(behind) - 1)]

    def history(self, index: int, part: int) -> int:
        """The same, of its conversation alone."""
        return self.behind(index, max(part, len(head(self._prompts[index]))))

    def said(self, index: int, part: int) -> int:
        """Characters from this part on of its conversation, sent before or not."""
        prompt = self._prompts[index]
        return sum(len(one.text) for one in prompt.parts[max(part, len(head(prompt))) :])


def talks(followed: Mapping[int, Thread]) -> dict[int, int]:
    """The conversation of each request, named by its first one. What they say tells it, not the session they name."""
    told: dict[int, int] = {}
    for index, thread in followed.items():
        before = thread.earlier if thread.surely else None
        told[index] = index if before is None else told.get(before, before)
    return told


def lost(
    slot: TextSlot,
    samples: Sequence[Sample],
    part_of: Callable[[int], int],
    again: Again,
    talk_of: Mapping[int, int],
) -> Lost:
    """Of a slot of values. samples: the texts of its place, in order of time. part_of: of a request, which of its parts
    that is. talk_of: the conversations that stand behind it; none where it stands in one of their messages, which are
    others in each request."""
    values = _values(slot, samples)
    turns = _Turns()
    for index, value in values:
        turns.add(index, value, talk_of.get(index, index))
    # where values last, the request that paid began the conversation, though another of it was compared
    payer = talk_of if turns.shown_to_last else {}
    firsts = [
        slot.fixed_behind + again.behind(payer.get(index, index), part_of(index) + 1)
        for index in turns.firsts[1:]
    ]
    paid = [
        max(0, again.history(now, part_of(now) + 1) - (0 if at is None else again.said(at, part_of(at) + 1)))
        for now, at in turns.changed
    ]
    anew, scale = slot.anew or 0.0, len(samples) / max(1, len(values))
    by_firsts, by_steps = anew * sum(firsts) / max(1, len(firsts)), scale * sum(paid)
    if by_steps > by_firsts:
        requests = anew + scale * len(paid)
        return Lost(requests, None, (by_firsts + by_steps) / requests, turns.lasts)
    requests = len(slot.differing) * slot.stands_for
    return Lost(requests, anew, (by_firsts + by_steps) / max(1.0, anew), turns.lasts)


class _Turns:
    """The values of requests in order. firsts: requests with a value that none before had. changed: those with another
    one than the request before in their conversation, and the latest in it that had the same; None for no such."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.changed: list[tuple[int, int | None]] = []
        self._known: set[str] = set()
        self._latest: dict[int, str] = {}
        self._last_with: dict[tuple[int, str], int] = {}
        self._steps = self._kept = 0

    def add(self, index: int, value: str, talk: int) -> None:
        """The next request, its value, and its conversation."""
        before = self._latest.get(talk)
        self._steps += before is not None
        self._kept += before == value
        if value not in self._known:
            self.firsts.append(index)
        elif before is not None and before != value:
            self.changed.append((index, self._last_with.get((talk, value))))
        self._known.add(value)
        self._latest[talk], self._last_with[talk, value] = value, index

    @property
    def lasts(self) -> bool:
        """Whether conversations keep their value, as far as they show it."""
        return self._kept >= CONSTANT * self._steps

    @property
    def shown_to_last(self) -> bool:
        return self._steps > 0 and self.lasts


def _values(slot: TextSlot, samples: Sequence[Sample]) -> list[tuple[int, str]]:
    """Requests and their values: of those that were compared, and of all that have the same text as one of these."""
    seen = {one.request: one.value for one in slot.seen}
    by_text = {one.text: seen[one.request] for one in samples if one.request in seen}
    return [(one.request, by_text[one.text]) for one in samples if one.text in by_text]
