"""What caches held, in plain Python: every history is read from its beginning."""

from __future__ import annotations

from typing import NamedTuple

from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Sent

FOREVER = 1 << 62
Key = tuple[int, int]


class Row(NamedTuple):
    time: int
    action: int
    tier: int
    key: Key


class Ended(NamedTuple):
    time: int
    cause: int
    unsure: bool


class Block(NamedTuple):
    held: bool
    maybe: bool
    never: bool


class SlowCaches:
    """All ranks of requests are told, or their servers have one."""

    def __init__(self, chains: Chains, events: Events, sent: Sent) -> None:
        self.c = chains
        self.holders = [*events.holders]
        self.joined = [FOREVER if at == NOT_TOLD else int(at) for at in events.joined]
        self.blind = events.blind.tolist()
        for server in chains.servers:
            if server not in {name for name, _ in self.holders}:
                self.blind.append(NOT_TOLD)
                self.holders.append((server, 0))
                self.joined.append(FOREVER)
        self.rows: list[list[Row]] = [[] for _ in self.holders]
        for at in range(len(events.time)):
            key = (int(events.content[at]), int(events.isolation[at]))
            row = Row(int(events.time[at]), int(events.action[at]), int(events.tier[at]), key)
            self.rows[events.holder[at]].append(row)
        self.words = [
            [
                (int(content), int(chains.isolation[i]))
                for content in chains.blocks[chains.offsets[i] : chains.offsets[i + 1]]
            ]
            for i in range(chains.n)
        ]
        self.parent = {
            word[d][0]: (word[d - 1][0] if d else None) for word in self.words for d in range(len(word))
        }
        self.first: dict[tuple[Key, str], int] = {}
        self.sent: dict[int, int] = {}
        for i, word in enumerate(self.words):
            for key in word:
                self._told(key, chains.servers[chains.server[i]], int(chains.arrived[i]))
        for at in range(len(sent.hash)):
            key = (int(sent.hash[at]), int(sent.isolation[at]))
            self._told(key, chains.servers[sent.server[at]], int(sent.first[at]))
        self.stored: dict[int, int] = {}
        for row in (row for rows in self.rows for row in rows if row.action == Action.STORED):
            self.stored[row.key[0]] = min(row.time, self.stored.get(row.key[0], FOREVER))
        self.holder = [self._holder(i) for i in range(chains.n)]

    def _told(self, key: Key, server: str, time: int) -> None:
        self.first[key, server] = min(time, self.first.get((key, server), FOREVER))
        self.sent[key[0]] = min(time, self.sent.get(key[0], FOREVER))

    def _holder(self, i: int) -> int:
        if self.c.holder[i] >= 0:
            return int(self.c.holder[i])
        name = self.c.servers[self.c.server[i]]
        (only,) = [h for h, (server, _) in enumerate(self.holders) if server == name]
        return only

    def block(
        self, key: Key, holder: int, place: int, arrived: int, tiers: tuple[int, ...] = (0, 1, 2)
    ) -> Block:
        """What is known of a block just before an event of a holder."""
        rows, server = self.rows[holder][:place], self.holders[holder][0]
        first = self.first.get((key, server), FOREVER)
        gaps = [self.joined[holder], *(row.time for row in rows if row.action == Action.GAP)]
        held = maybe = False
        for tier in tiers:
            told = tier == 0 or any(r.tier == tier and r.action <= Action.REMOVED for r in self.rows[holder])
            there, sure, open_ = False, True, self.joined[holder] if told else None
            for row in rows:
                if row.action <= Action.REMOVED:
                    if row.tier == tier and row.key == key:
                        there, sure, open_ = row.action == Action.STORED, True, None
                elif row.action == Action.GAP:
                    sure, open_ = False, row.time if told else None
                elif tier == 0 or (tier == 1 and row.action == Action.RESTART):
                    there, sure, open_ = False, True, None
                else:
                    sure = False
            held |= there and sure
            maybe |= there or (open_ is not None and first < min(open_, arrived))
        seen = any(row.key == key and row.action <= Action.REMOVED for row in rows)
        untold = not seen and first < arrived
        known = untold and first > self.blind[holder] and self._speaks_of(key, server)
        never = known and first >= gaps[-1]
        return Block(held, maybe or held or (untold and not never), never)

    def _speaks_of(self, key: Key, server: str) -> bool:
        """Whether a server ever told of the first block of a chain."""
        content: int | None = key[0]
        while content is not None and self.parent[content] is not None:
            content = self.parent[content]
        return any(
            row.key == (content, key[1])
            for (name, _), rows in zip(self.holders, self.rows, strict=True)
            if name == server
            for row in rows
        )

    def place_of(self, holder: int, time: int) -> int:
        return self.past_gaps(holder, sum(row.time <= time for row in self.rows[holder]))

    def past_gaps(self, holder: int, place: int) -> int:
        rows = self.rows[holder]
        while place < len(rows) and rows[place].action == Action.GAP:
            place += 1
        return place

    def blurred(self, holder: int, since: int, until: int) -> int | None:
        """Behind the last gap that may hide something that happened then."""
        rows, found = self.rows[holder], None
        for at, row in enumerate(rows):
            if row.action == Action.GAP and row.time >= since and (at == 0 or rows[at - 1].time <= until):
                found = self.past_gaps(holder, at)
        return found

    def missing(self, holder: int, place: int) -> int:
        """Until when events may be missing, -1 for none."""
        gaps = [row.time for row in self.rows[holder][:place] if row.action == Action.GAP]
        last = gaps[-1] if gaps else self.joined[holder]
        return -1 if last == FOREVER else last

    def ended(self, key: Key, holder: int, place: int, arrived: int) -> Ended:
        rows, best, unsure = self.rows[holder], (-1, 0), False
        gaps = [at for at, row in enumerate(rows[:place]) if row.action == Action.GAP]
        since = rows[gaps[-1]].time if gaps else self.joined[holder]
        if self.first.get((key, self.holders[holder][0]), FOREVER) < min(since, arrived):
            unsure = True
        for tier in range(3):
            there, end, touched = False, None, -1
            for at, row in enumerate(rows[:place]):
                if row.action <= Action.REMOVED and row.key == key and row.tier == tier:
                    there, touched = row.action == Action.STORED, at
                    near = [
                        r for r in rows if r.action == Action.STORED and abs(r.time - row.time) <= 1_000_000
                    ]
                    unseen = self.blurred(holder, row.time - 1_000_000, row.time + 1_000_000) is not None
                    end = None if there else (at, 0 if near else NOT_TOLD if unseen else 1)
                empties = {0: (Action.CLEARED, Action.RESTART), 1: (Action.RESTART,), 2: ()}[tier]
                if there and row.action in empties:
                    there, end = False, (at, 2 if row.action == Action.CLEARED else 3)
            if end and end[0] > best[0]:
                best, unsure = end, bool(gaps) and gaps[-1] > touched
        return Ended(rows[best[0]].time if best[0] >= 0 else NOT_TOLD, best[1], unsure)
