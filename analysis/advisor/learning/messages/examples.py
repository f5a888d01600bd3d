"""Examples that stand in front of a question as messages: turns that nobody asked, in one order and another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.model import Cluster, Slot, conversation
from analysis.advisor.learning.text.orders import Item, again
from cachemodel.prompts.model import Kind, Part, Prompt

ANSWERING = ("assistant", "model", "tool", "function")
SHOWN = 8

Key = tuple[str, str, str]


def key(part: Part) -> Key:
    """What makes two parts the same to a cache."""
    return part.role, part.kind.value, part.text


def answers(part: Part) -> bool:
    """Whether a part is no question of somebody's: said by the model, or by a tool."""
    return part.role in ANSWERING or part.kind in (Kind.CALL, Kind.RESULT)


@dataclass(frozen=True, slots=True)
class Examples:
    """unasked: questions of earlier turns that were the last message of no request. moved: those of them that stand
    beside one another now in this way and now in that. A conversation never reorders its turns, and each of them was
    asked once."""

    unasked: frozenset[Key]
    moved: frozenset[Key]

    def of(self, prompt: Prompt) -> Sequence[Part]:
        """The turns at the beginning of a conversation that are examples."""
        own = conversation(prompt)
        return own[: self._end(own)]

    def behind(self, prompt: Prompt) -> Sequence[Part]:
        """The conversation without them."""
        own = conversation(prompt)
        return own[self._end(own) :]

    def _end(self, own: Sequence[Part]) -> int:
        if not self.moved or not own:
            return 0
        last, some, end = own[-1].message, False, 0
        for part in own:
            if part.message == last:
                break
            if not answers(part):
                if key(part) not in self.unasked:
                    break
                some |= key(part) in self.moved
            end += 1
        return end if some else 0


def examples(requests: Sequence[tuple[int, Prompt]]) -> Examples:
    """The examples of a log."""
    asked, earlier = set[Key](), list[list[Key]]()
    for _, prompt in requests:
        if own := conversation(prompt):
            last = own[-1].message
            asked.update(key(part) for part in own if part.message == last)
            earlier.append([key(part) for part in own if part.message != last and not answers(part)])
    before, behind = defaultdict[Key, set[Key]](set), defaultdict[Key, set[Key]](set)
    unasked = set[Key]()
    for turns in earlier:
        unasked.update(turn for turn in turns if turn not in asked)
        for first, second in pairwise(turns):
            if first in unasked and second in unasked:
                before[second].add(first)
                behind[first].add(second)
    moved = {
        one
        for one in unasked
        if (len(before[one]) > 1 and len(behind[one]) > 1) or (before[one] & behind[one]) - {one}
    }
    return Examples(frozenset(unasked), frozenset(moved))


def examples_in_orders(
    requests: Sequence[tuple[int, Prompt]], cluster: Cluster, found: Examples
) -> Iterator[Slot]:
    """One slot where the same examples stand in several orders; none where they are picked anew for each request."""
    if not found.moved:
        return
    blocks = {index: found.of(prompt) for index, prompt in requests}
    told = again([(index, [_item(part) for part in own]) for index, own in blocks.items()])
    if told is None:
        return
    example = next(prompt for index, prompt in requests if index == told.example)
    first = blocks[told.example][min(told.first, len(blocks[told.example]) - 1)]
    turns = sum(not answers(part) for part in blocks[told.example])
    yield Slot(
        cause=Cause.ITEM_ORDER,
        cluster=cluster.number,
        path=first.path,
        role=first.role,
        offset=0,
        before="",
        after=" ".join(first.text[:60].split()[:4]),
        example=example.request_id,
        seen=tuple(Seen(index, _shown(blocks[index])) for index in list(told.lost)[:SHOWN]),
        behaviour=None,
        requests=len(told.lost),
        of=len(requests),
        behind=told.behind,
        detail=f"the same {turns} messages with their answers in {told.orders:,} orders",
        whole=True,
    )


def _item(part: Part) -> Item:
    return Item(key(part), len(part.text))


def _shown(block: Sequence[Part]) -> str:
    return " | ".join(part.text[:24] for part in block if not answers(part))
