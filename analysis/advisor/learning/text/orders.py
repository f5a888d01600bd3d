"""The same items in several orders, or behind what varies: what a cache would find again if they stood in one order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

FEWEST = 3  # requests that pay for it, to say something of it


class Item(NamedTuple):
    """what: it says. size: characters. known: whether it is one of those that come again; what is not stands beside."""

    what: Hashable
    size: int
    known: bool = True


@dataclass(frozen=True, slots=True)
class Again:
    """lost: by request that has the known items of an earlier one, their characters that no earlier request begins
    with. broken: the item at which these beginnings end. moved: those of these requests that have their known items in
    an order which none before had. size, orders: of the costliest set of items, how many it has and in how many orders.
    example, first: a request of that set, and its first known item that stands elsewhere."""

    lost: dict[int, int]
    broken: dict[int, int]
    moved: frozenset[int]
    size: int
    orders: int
    example: int
    first: int

    @property
    def behind(self) -> float:
        """Mean characters lost."""
        return sum(self.lost.values()) / len(self.lost)


def again(told: Sequence[tuple[int, Sequence[Item]]]) -> Again | None:
    """Of requests with their items, in order of time; None where fewer than FEWEST pay."""
    begun, orders = set[int](), set[tuple[Hashable, ...]]()
    sets = defaultdict[frozenset[Hashable], dict[int, tuple[Hashable, ...]]](dict)
    lost, broken, moved = dict[int, int](), dict[int, int](), set[int]()
    for request, items in told:
        own = tuple(item.what for item in items if item.known)
        if len(own) < 2:
            continue
        which = frozenset(own)
        same = sum(1 for _ in takewhile(begun.__contains__, _beginnings(items)))
        if sets[which] and (short := sum(item.size for item in items[same:] if item.known)):
            lost[request], broken[request] = short, same
            if own not in orders:
                moved.add(request)
        orders.add(own)
        sets[which][request] = own
        begun.update(_beginnings(items))
    if len(lost) < FEWEST:
        return None
    most = max(sets.values(), key=lambda own: sum(lost.get(request, 0) for request in own))
    different = set(most.values())
    columns = enumerate(zip(*different, strict=False))
    first = next((at for at, column in columns if len(set(column)) > 1), 0)
    return Again(
        lost, broken, frozenset(moved), len(next(iter(different))), len(different), next(iter(most)), first
    )


def _beginnings(items: Sequence[Item]) -> Iterator[int]:
    """The hash of each beginning."""
    told = 0
    for item in items:
        told = hash((told, item.what))
        yield told
