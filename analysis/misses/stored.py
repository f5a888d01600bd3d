"""Why blocks had to be stored, from KV events alone. Pure: what befell the blocks in, a cause for each stored one out.

Events say when a block was stored and removed, never whose request it was nor what was hit. A block that is stored on
the device was computed or loaded just before; so the question of the ladder can be asked of it: which cache would have
had it at that moment?
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.misses.model import NOT_TOLD, Action, Events, Flags, Hashes, Ints
from analysis.misses.parts import PARTS

ALONE_US = 1_000_000  # a removal without a store that near made room for nobody: the block had expired
EXPIRED = 6  # such a removal, among the Actions that end a stay
_NEVER = np.iinfo(np.int64).max
_PART = {name: number for number, name in enumerate(PARTS)}
_ENDED = {
    Action.REMOVED: _PART["evicted/capacity"],
    EXPIRED: _PART["evicted/expiry"],
    Action.CLEARED: _PART["evicted/clear"],
    Action.RESTART: _PART["evicted/restart"],
    Action.GAP: _PART["unknown"],
}


@dataclass(frozen=True)
class Stays:
    """Stretches for which a block was held, k of them, one for each event that stored one, in the order of `event`.

    event: the position of that event. end: position of the event that ended it, _NEVER for none yet; a block that is
    stored again while it is held begins another stretch without a break. why: the Action of that event, or EXPIRED.
    group: number of (content, isolation); body: of the content alone.
    """

    event: Ints
    end: Ints
    why: Ints
    group: Ints
    body: Ints
    holder: Ints
    tier: Ints


def stays(events: Events) -> Stays:
    """The stretches that the events tell of."""
    named = (events.action == Action.STORED) | (events.action == Action.REMOVED)
    of_block = np.flatnonzero(named & (events.content != 0))  # stores of others are told without a content
    holder, tier = events.holder[of_block], events.tier[of_block]
    body = _numbered(events.content[of_block])
    group = _numbered_pairs(body, events.isolation[of_block])
    order = np.lexsort((of_block, tier, holder, group))
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in (group, holder, tier):
        same &= column[order][1:] == column[order][:-1]
    following = np.where(np.append(same, False), np.append(of_block[order][1:], _NEVER), _NEVER)[: len(order)]
    end = np.empty(len(order), dtype=np.int64)
    end[order] = following
    actions = np.where(_alone(events), EXPIRED, events.action)
    why = np.where(end < _NEVER, actions[np.minimum(end, len(actions) - 1)], 0)
    mark, mark_why = _marks(events, of_block, holder, tier)
    why, end = np.where(mark < end, mark_why, why), np.minimum(end, mark)
    stored = events.action[of_block] == Action.STORED
    return Stays(of_block[stored], *(x[stored] for x in (end, why, group, body, holder, tier)))


def _alone(events: Events) -> Flags:
    """Which of the events are removals that made room for nobody."""
    alone = np.zeros(len(events.action), np.bool_)
    for number in range(len(events.holders)):
        of = events.holder == number
        removed = np.flatnonzero(of & (events.action == Action.REMOVED))
        stored = events.time[of & (events.action == Action.STORED)]
        place = np.searchsorted(stored, events.time[removed] - ALONE_US)
        nearest = np.append(stored, _NEVER)[place]
        alone[removed] = nearest > events.time[removed] + ALONE_US
    return alone


def _marks(events: Events, of_block: Ints, holder: Ints, tier: Ints) -> tuple[Ints, Ints]:
    """The next event of each holder's whole cache that ends what it holds on a tier, and what that makes of it."""
    position, why = np.full(len(of_block), _NEVER), np.zeros(len(of_block), dtype=np.int64)
    rows = np.flatnonzero(events.action > Action.REMOVED)
    for number in np.unique(events.holder[rows]).tolist():
        marks = rows[events.holder[rows] == number]
        mine = np.flatnonzero(holder == number)
        place = np.searchsorted(marks, of_block[mine])
        found = place < len(marks)
        mine, next_mark = mine[found], marks[place[found]]
        position[mine], why[mine] = next_mark, events.action[next_mark]
    # a clear is of the device, and what survives a restart on a disk is not told: nobody knows from then on
    device, host = tier == 0, tier == 1
    sure = (why == Action.GAP) | device | (host & (why == Action.RESTART))
    return position, np.where(sure, why, np.where(why > 0, int(Action.GAP), 0))


def reasons(events: Events, seen_locally: Flags | None = None) -> tuple[Ints, Ints]:
    """Positions of the events that stored a block on a device, and of each the number of its part in PARTS.

    "device" stands for a block that was told of again while it was held: a full report of reuse. seen_locally: for each
    event, whether the tokens of its block alone had been stored before it, in another place.
    """
    held = stays(events)
    on_device = np.flatnonzero(held.tier == 0)
    at = held.event[on_device]
    before = _last_before(held, on_device)
    group, body = held.group[on_device], held.body[on_device]
    own = held.group * (int(held.holder.max(initial=0)) + 1) + held.holder
    mine = [_under_way(held, own, at, own[on_device], held.tier == tier) for tier in (0, 1, 2)]
    anywhere = _under_way(held, held.group, at, group)
    any_key = _under_way(held, held.body, at, body)
    changed = np.zeros(len(at), np.bool_) if seen_locally is None else seen_locally[at]
    part = np.select(
        [
            mine[0] > 0,
            (before >= 0) & _is_lost(held, before, at),
            mine[1] > 0,
            mine[2] > 0,
            anywhere > 0,
            any_key > 0,
            before >= 0,
            changed,
        ],
        [
            _PART["device"],
            _PART["unknown"],
            _PART["host"],
            _PART["remote"],
            _PART["elsewhere"],
            _PART["isolated"],
            _ended_by(held, before),
            _PART["changed"],
        ],
        default=_PART["cold"],
    )
    order = np.argsort(at, kind="stable")
    return at[order], part[order].astype(np.int64)


def _last_before(held: Stays, rows: Ints) -> Ints:
    """For each stretch of `rows` the last one of them before it of the same content, NOT_TOLD for none: on its own
    holder under its own key where there is one, else on its own holder, else on any."""
    found = np.full(len(rows), NOT_TOLD)
    group, body, holder = held.group[rows], held.body[rows], held.holder[rows]
    for keys in ((body,), (body, holder), (group, holder)):
        order = np.lexsort((held.event[rows], *keys))
        same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
        for key in keys:
            same &= key[order][1:] == key[order][:-1]
        previous = np.full(len(order), NOT_TOLD)
        previous[order[1:]] = np.where(same, rows[order[:-1]], NOT_TOLD)
        found = np.where(previous >= 0, previous, found)
    return found


def _is_lost(held: Stays, before: Ints, at: Ints) -> Flags:
    """Whether nobody knows how the stretch before went on."""
    lost: Flags = (held.why[before] == Action.GAP) & (held.end[before] < at)
    return lost


def _ended_by(held: Stays, before: Ints) -> Ints:
    """The part that the end of the stretch before stands for."""
    why = held.why[before]
    return np.select([why == action for action in _ENDED], list(_ENDED.values()), default=_PART["unknown"])


def _under_way(held: Stays, keys: Ints, at: Ints, asked: Ints, rows: Flags | None = None) -> Ints:
    """How many stretches with the same key as each of `asked` are under way at each position `at`: event < at <= end.

    keys: of all stretches. rows: which of them count.
    """
    rows = np.ones(len(keys), np.bool_) if rows is None else rows
    begun = _rank(keys[rows], held.event[rows], asked, at)
    return begun - _rank(keys[rows], held.end[rows], asked, at)


def _rank(keys: Ints, values: Ints, asked: Ints, below: Ints) -> Ints:
    """How many of `values` with the same key as each of `asked` are below each of `below`."""
    scale = int(below.max(initial=0)) + 2
    _, inverse = np.unique(np.concatenate([keys, asked]), return_inverse=True)
    spaced = np.sort(inverse[: len(keys)] * scale + np.minimum(values, scale - 1))
    base = inverse[len(keys) :] * scale
    rank: Ints = np.searchsorted(spaced, base + below) - np.searchsorted(spaced, base)
    return rank


def _numbered(hashes: Hashes | Ints) -> Ints:
    numbers: Ints = np.unique(hashes, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


def _numbered_pairs(body: Ints, isolation: Hashes) -> Ints:
    keys = _numbered(isolation)
    return _numbered(body * (int(keys.max(initial=0)) + 1) + keys)
