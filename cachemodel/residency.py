"""Whether a cache holds a block, after what its events told: yes, no, or it cannot be known.

A *place* is a medium of one cache. What its events say of a block ages by what befalls the whole cache:

    event      device (or medium not named)    host                            remote (disk, another node)
    cleared    nothing is held                 what was held: unknown          what was held: unknown
    gap        everything is unknown           everything is unknown           everything is unknown
    restart    nothing is held                 nothing is held                 unknown: it outlives the process

A block that was never told of is not held by device and host while their events are complete, that is since the last
clear (device) or the beginning of the publisher's life, with no gap after it. On a remote medium it may lie from before
the process, so that only a removal shows its absence.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from cachemodel.layers import Tier


class Told(IntEnum):
    """What was told of one block in one place, as a byte."""

    NOTHING = 0
    HELD = 1
    WAS_HELD = 2  # before something after which it may be so no more
    GONE = 3


def _aged(**changed: Told) -> bytes:
    table = bytearray(range(256))
    for name, after in changed.items():
        table[Told[name]] = after
    return bytes(table)


# For bytes.translate: what becomes of all blocks of a place at once.
_GAP = _aged(HELD=Told.WAS_HELD, GONE=Told.NOTHING)
_CLEARED_DEVICE = _aged(HELD=Told.NOTHING, WAS_HELD=Told.NOTHING, GONE=Told.NOTHING)
_CLEARED_OTHER = _aged(HELD=Told.WAS_HELD)


def is_device_like(tier: Tier | None) -> bool:
    """Whether a clear empties a place: the device, and what a server names no medium for."""
    return tier is None or tier is Tier.DEVICE


def after_gap(told: bytearray) -> bytearray:
    """What is told of a place's blocks, one byte each, after events were lost."""
    return told.translate(_GAP)


def after_clear(told: bytearray, tier: Tier | None) -> bytearray:
    """The same after the cache was cleared."""
    return told.translate(_CLEARED_DEVICE if is_device_like(tier) else _CLEARED_OTHER)


def holds(told: int, *, complete: bool) -> bool | None:
    """Whether a block is held, None where that cannot be known. complete: nothing is held that was not told of."""
    if told == Told.HELD:
        return True
    if told == Told.GONE or (told == Told.NOTHING and complete):
        return False
    return None


class Completeness:
    """Whether all that a cache holds in a place was told of: in one life of its publisher."""

    def __init__(self, *, lost: bool = False, cleared: Iterable[str] = ()) -> None:
        self.lost = lost
        self.cleared = set(cleared)  # since the last gap, by ownership; the empty one stands for all

    def gap(self) -> None:
        self.lost = True
        self.cleared.clear()

    def clear(self, ownership: str) -> None:
        if self.lost:
            self.cleared.add(ownership)

    def of(self, tier: Tier | None, ownership: str) -> bool:
        """Whether what was not told of in a place is not there."""
        if tier is Tier.REMOTE:
            return False
        emptied = is_device_like(tier) and not self.cleared.isdisjoint(("", ownership))
        return not self.lost or emptied


class Mark(NamedTuple):
    """Something that befell the whole cache at (message, position): a gap, or a clear of those of an ownership."""

    at: tuple[int, int]
    is_gap: bool
    ownership: str = ""


def told_by(
    held: bool, at: tuple[int, int], tier: Tier | None, ownership: str, marks: Iterable[Mark]
) -> Told:
    """What is told of a block whose last event was at (message, position), marks in order: for who has no more."""
    state = bytearray([Told.HELD if held else Told.GONE])
    for mark in marks:
        if mark.at > at:
            if mark.is_gap:
                state = after_gap(state)
            elif mark.ownership in ("", ownership):
                state = after_clear(state, tier)
    return Told(state[0])
