"""Slots that each keep the last sequence they worked on, and prompts put aside in host memory (llama.cpp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.identity import kept
from analysis.prefix_replay.model import Ints, Requests, Served
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


class _Aside:
    """Prompts that were put aside, the oldest first. rows: where each begins, its length and its isolation, (n, 3)."""

    def __init__(self, tokens: Any) -> None:
        self._tokens, self.rows = tokens, np.zeros((0, 3), np.int64)

    def common(self, one: _Kept) -> Ints:
        """(n,) How many tokens each begins with that a sequence begins with, too."""
        found: Ints = _common_with(self._tokens, self.rows, one.begin, one.length, one.isolation)
        return found

    def taken(self, at: int) -> _Kept:
        """One of them, which is no longer among them."""
        one = _Kept(*self.rows[at].tolist())
        self.rows = np.delete(self.rows, at, axis=0)
        return one

    def put(self, one: _Kept, limit: int | None) -> None:
        """Unless something longer has all of it; what it has all of goes. The oldest make room, one stays at least."""
        common = self.common(one)
        if (common == one.length).any():
            return
        kept = self.rows[common < self.rows[:, 1]]
        self.rows = np.append(kept, np.array([[one.begin, one.length, one.isolation]]), axis=0)
        if limit is not None:
            left = self.rows[:, 1].sum() - np.cumsum(self.rows[:, 1])  # behind each, in tokens
            gone = int((left + self.rows[:, 1] > limit).sum())
            self.rows = self.rows[min(gone, len(self.rows) - 1) :]


class Slots:
    """The server. Positions in `tokens`, one after the other the sequences of all requests."""

    def __init__(self, rule: SlotRule, tokens: Any) -> None:
        self._rule, self._tokens = rule, tokens
        self._slots = [_Slot(_Kept()) for _ in range(rule.slots)]
        self._aside = _Aside(tokens)

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
        keeps = same / has.length if has.length else -1.0
        best = _of_more_use(self._aside.common(prompt), self._aside.rows[:, 1], same, keeps)
        return has if best < 0 else self._aside.taken(best)

    def _put_aside(self, one: _Kept) -> None:
        if one.length and self._rule.host_tokens != 0:
            self._aside.put(one, self._rule.host_tokens)

    def _common(self, a: _Kept, b: _Kept) -> int:
        if a.isolation != b.isolation:
            return 0
        return int(_common(self._tokens, a.begin, b.begin, min(a.length, b.length)))


def replay_slots(requests: Requests, rule: SlotRule) -> Served:
    """Under a SlotRule."""
    sequences = kept(requests)
    sent, _, done = (column.tolist() for column in times(requests))
    lengths = requests.lengths.tolist()
    isolation = None if requests.isolation is None else requests.isolation.view(np.int64)
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
def _common_with(tokens: Any, rows: Any, begin: int, length: int, isolation: int) -> Any:
    found = np.zeros(len(rows), np.int64)
    for at in range(len(rows)):
        if rows[at, 2] == isolation:
            found[at] = _common(tokens, rows[at, 0], begin, min(rows[at, 1], length))
    return found


@compiled
def _of_more_use(common: Any, length: Any, same: int, keeps: float) -> int:
    """The last of them that has more of the prompt, and loses less of itself, than the best before it; -1 for none."""
    best = -1
    for at in range(len(common)):
        share = common[at] / length[at]
        if share >= LOADED_FROM and share > keeps and common[at] > same:
            best, keeps, same = at, share, common[at]
    return best


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
