"""Slots of prompts that are told as tokens alone: where those of one template differ, and how the values behave.

What a value means cannot be told from ids: a clock and an id are both what nobody sends twice, and have one name here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.advisor.learning.behaviour import FEW, UNIQUE, Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.model import Cluster, Slot
from analysis.advisor.learning.token_align import Aligned, Ids, align, gaps, same_tokens
from cachemodel.prompts.model import Kind, Part, Prompt

MOST = 240  # prompts of a cluster that are compared, spread over all
MOST_TOKENS = 16_384  # of a prompt: two of them take 32 MB to compare
BEGINNING = 32  # tokens by which prompts are told to begin alike
MIN_BEHIND = 32  # tokens behind a slot that are the same again: fewer are hardly a block
ALIKE = 0.25  # of the shorter prompt, below which two have nothing in common
FEWEST = 3  # values that begin alike, to be a kind of their own
SHOWN = 8  # tokens of a value that are told


class _Value(NamedTuple):
    """What a request has in a gap."""

    request: int
    prompt: Prompt
    ids: Ids
    behind: int


def token_slots(requests: Sequence[tuple[int, Prompt]], cluster: Cluster) -> Iterator[Slot]:
    """The slots of the prompts of a cluster that are one part of tokens each."""
    told = [(index, prompt) for index, prompt in requests if _part(prompt) is not None]
    chosen = told if len(told) <= MOST else [told[int(at * len(told) / MOST)] for at in range(MOST)]
    if len(chosen) < 2:
        return
    stands_for = len(told) / len(chosen)
    ids = [_ids(prompt) for _, prompt in chosen]
    example = _reference(ids)
    reference, found = ids[example], list[tuple[int, Prompt, Aligned]]()
    known: dict[Ids, Aligned] = {}
    for (index, prompt), own in zip(chosen, ids, strict=True):
        beside = known.setdefault(own, known.get(own) or align(reference, own))
        if beside.same_from(0) >= ALIKE * min(len(reference), len(own)):
            found.append((index, prompt, beside))
    for first, last in gaps(beside for _, _, beside in found):
        values = [_Value(i, p, beside.value(first, last), beside.same_from(last)) for i, p, beside in found]
        for kind in _kinds(values):
            if slot := _slot(kind, chosen[example][1], first, cluster, stands_for):
                yield slot


def _part(prompt: Prompt) -> Part | None:
    return prompt.parts[0] if len(prompt.parts) == 1 and prompt.parts[0].kind is Kind.TOKENS else None


def _ids(prompt: Prompt) -> Ids:
    return prompt.parts[0].tokens[:MOST_TOKENS]


def _reference(ids: Sequence[Ids]) -> int:
    """Of the prompts that begin as most do, the one of the middle length."""
    begun: dict[Ids, list[int]] = defaultdict(list)
    for at, own in enumerate(ids):
        begun[own[:BEGINNING]].append(at)
    most = max(begun.values(), key=len)
    same = most if len(most) > 1 else list(range(len(ids)))
    return sorted(same, key=lambda at: (len(ids[at]), at))[len(same) // 2]


def _kinds(values: Sequence[_Value]) -> list[list[_Value]]:
    """The values of a gap in which most prompts have the same, apart by how they begin: what several senders put there
    is several things. Each with the others' left out."""
    usual, often = Counter(one.ids for one in values).most_common(1)[0]
    groups = Counter(one.ids[:1] for one in values if one.ids != usual)
    several = [group for group, count in groups.items() if count >= FEWEST]
    if often < len(values) / 2 or len(groups) < 2 or not several:
        return [list(values)]
    return [[one if one.ids[:1] == group else one._replace(ids=usual) for one in values] for group in several]


def _slot(
    values: Sequence[_Value], example: Prompt, first: int, cluster: Cluster, stands_for: float
) -> Slot | None:
    """A slot, where enough stands behind it that is the same again."""
    usual, often = Counter(one.ids for one in values).most_common(1)[0]
    others = [one for one in values if one.ids != usual or often == 1]
    behind = sum(one.behind for one in others) / len(others) if others else 0.0
    if behind < MIN_BEHIND:
        return None
    cause, detail = _behaves([one.ids for one in others], usual)
    part = example.parts[0]
    before = sum(len(str(one)) + 1 for one in part.tokens[:first])
    return Slot(
        cause=cause,
        cluster=cluster.number,
        path=part.path,
        role=part.role,
        offset=before,
        before="",
        after="",
        example=example.request_id,
        seen=tuple(_seen(others)),
        behaviour=None,
        requests=round(len(others) * stands_for),
        of=len(cluster.requests),
        behind=behind * len(part.text) / len(part.tokens),
        detail=detail,
        token=first,
        tokens_alone=True,
        anew=len({one.ids for one in others}) * stands_for,
    )


def _behaves(values: Sequence[Ids], usual: Ids) -> tuple[Cause, str]:
    """How the values that are not the usual one behave."""
    n, distinct = len(values), set(values)
    longest = max(distinct, key=len)
    orders = {one for one in (*distinct, usual) if same_tokens(longest, one)}
    if len(orders) > 1 and distinct <= orders:
        return Cause.ITEM_ORDER, f"the same {len(longest):,} tokens in {len(orders):,} orders"
    told = f"{len(distinct):,} different values in {n:,}"
    if n > 2 and len(distinct) >= UNIQUE * n:
        return Cause.UNKNOWN, f"{told}: nobody sends one twice, as with times and ids"
    return Cause.VARIANT if len(distinct) <= max(2, min(FEW, n // 2)) else Cause.UNKNOWN, told


def _seen(values: Sequence[_Value]) -> Iterator[Seen]:
    """What is told of the values: the tokens from where they begin to differ on."""
    columns = enumerate(zip(*(one.ids for one in values), strict=False))
    same = next((at for at, column in columns if len(set(column)) > 1), min(len(one.ids) for one in values))
    for one in values:
        shown = one.ids[same : same + SHOWN]
        begin, end = "... " * bool(same), " ..." * (len(one.ids) > same + SHOWN)
        yield Seen(
            one.request, f"tokens {begin}{' '.join(map(str, shown))}{end}" if shown else "", one.prompt.time
        )
