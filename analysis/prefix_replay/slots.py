"""Slots that each keep the last sequence they worked on, and prompts put aside in host memory (llama.cpp)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.identity import kept
from analysis.prefix_replay.model import Requests, Served
from analysis.prefix_replay.rules import SlotRule
from analysis.prefix_replay.timeline import times

SAVED_BELOW = 0.5  # a slot of which less than this share stays is put aside before
LOADED_FROM = 0.25  # what is put aside comes back only where at least this share of it is of use


@dataclass(slots=True)
class _Kept:
    """A sequence: its place among all tokens, and under which isolation it may be used."""

    begin: int = 0
    length: int = 0
    isolation: int = 0


@dataclass(slots=True)
class _Slot:
    has: _Kept
    free_at: float = -np.inf
    released: int = -1  # the row that it worked on last: of two that were released together, who began first


class Slots:
    """The server. Positions in `tokens`, one after the other the sequences of all requests."""

    def __init__(self, rule: SlotRule, tokens: Any) -> None:
        self._rule, self._tokens = rule, tokens
        self._slots = [_Slot(_Kept()) for _ in range(rule.slots)]
        self._aside: deque[_Kept] = deque()

    def idle_at(self) -> float:
        """When the first slot is free."""
        return min(slot.free_at for slot in self._slots)

    def take(self, row: int, prompt: _Kept, now: float) -> tuple[_Slot, int]:
        """The slot that gets a prompt, and how many tokens it has in common with what that slot holds then."""
        idle = [slot for slot in self._slots if slot.free_at <= now]
        alike, same = self._alike(idle, prompt)
        # of slots that never worked the last one is taken, as the server does
        slot = alike or min(reversed(idle), key=lambda one: (one.free_at, one.released))
        if alike is None:
            same = self._common(slot.has, prompt)
        if alike is None or same < SAVED_BELOW * slot.has.length:
            self._put_aside(slot.has)
            slot.has = self._better(slot.has, same, prompt)
            same = self._common(slot.has, prompt)
        if self._rule.saves_idle:
            for one in idle:
                if one is not slot:
                    self._put_aside(one.has)
        slot.released = row
        return slot, same

    def reuse(self, slot: _Slot, prompt: _Kept, same: int) -> int:
        """Tokens of a prompt that need not be computed, shifted chunks counted in."""
        if self._rule.cache_reuse and slot.has.isolation == prompt.isolation:
            has = slot.has
            same = _shifted(
                self._tokens, has.begin, has.length, prompt.begin, prompt.length, same, self._rule.cache_reuse
            )
        return min(same, prompt.length - 1)

    def _alike(self, idle: list[_Slot], prompt: _Kept) -> tuple[_Slot | None, int]:
        """The idle slot that has most of the prompt, the first of several, where that is enough."""
        best, most = None, 0
        for slot in idle:
            same = self._common(slot.has, prompt)
            if same > most and same > self._rule.similarity * prompt.length > 0:
                best, most = slot, same
        return best, most

    def _better(self, has: _Kept, same: int, prompt: _Kept) -> _Kept:
        """What is put aside and of more use, taken out; else what the slot has."""
        best, keeps = has, same / has.length if has.length else -1.0
        for one in self._aside:
            common = self._common(one, prompt)
            share = common / one.length
            if share >= LOADED_FROM and share > keeps and common > same:
                best, keeps, same = one, share, common
        if best is not has:
            self._aside.remove(best)
        return best

    def _put_aside(self, one: _Kept) -> None:
        """Unless something longer has all of it; what it has all of goes. The oldest make room, one stays at least."""
        limit = self._rule.host_tokens
        if one.length == 0 or limit == 0:
            return
        common = [self._common(other, one) for other in self._aside]
        if one.length in common:
            return
        self._aside = deque(
            other for other, same in zip(self._aside, common, strict=True) if same < other.length
        )
        self._aside.append(_Kept(one.begin, one.length, one.isolation))
        total = sum(other.length for other in self._aside)
        while limit is not None and total > limit and len(self._aside) > 1:
            total -= self._aside.popleft().length

    def _common(self, a: _Kept, b: _Kept) -> int:
        if a.isolation != b.isolation:
            return 0
        return int(_common(self._tokens, a.begin, b.begin, min(a.length, b.length)))


def replay_slots(requests: Requests, rule: SlotRule) -> Served:
    """Under a SlotRule."""
    sequences = kept(requests)
    sent, _, done = (column.tolist() for column in times(requests))
    lengths, isolation = requests.lengths.tolist(), requests.isolation
    server, now = Slots(rule, sequences.values), -np.inf
    served, held = np.zeros(requests.n, np.int64), np.zeros(requests.n, np.int64)
    for row in range(requests.n):
        now = max(now, sent[row], server.idle_at())  # first come, first served
        own = 0 if isolation is None else int(isolation[row])
        begin, end = sequences.offsets[row : row + 2].tolist()
        prompt = _Kept(begin, lengths[row], own)
        slot, same = server.take(row, prompt, now)
        held[row] = same
        if lengths[row] and (requests.reads_off is None or not requests.reads_off[row]):
            served[row] = server.reuse(slot, prompt, same)
        slot.has, slot.free_at = _Kept(begin, end - begin, own), max(now, done[row])
    return Served(served, held)


@compiled
def _common(tokens: Any, a: int, b: int, most: int) -> int:
    same = 0
    while same < most and tokens[a + same] == tokens[b + same]:
        same += 1
    return same


@compiled
def _shifted(
    tokens: Any, has: int, has_length: int, prompt: int, prompt_length: int, same: int, least: int
) -> int:
    """Go through what the slot has behind the common beginning: whatever continues the prompt for `least` tokens or
    more is moved there."""
    at = same
    while at < has_length and same < prompt_length:
        run = 0
        while (
            at + run < has_length
            and same + run < prompt_length
            and tokens[has + at + run] == tokens[prompt + same + run]
        ):
            run += 1
        if run >= least:
            same += run
            at += run
        else:
            at += 1
    return same
