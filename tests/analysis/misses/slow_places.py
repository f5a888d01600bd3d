"""When each prompt was looked up, told slowly: the rules of analysis.misses.positions one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Sent
from cachemodel.alignment import Alignment
from tests.analysis.misses.slow_caches import FOREVER, Key, Row, SlowCaches

SLACK, UNTOLD = 100_000, 60_000_000


class SlowPlaces(SlowCaches):
    """Where each request stood among the events, and what its cache held there."""

    def __init__(
        self, chains: Chains, events: Events, sent: Sent, pieces: Sent, laws: Mapping[str, Alignment]
    ) -> None:
        super().__init__(chains, events, sent)
        self.laws, self.pieces = laws, pieces
        self.computed = self.c.first_token.tolist()
        self.own = self._own_stores()

    def _own_stores(self) -> list[tuple[int, int] | None]:
        own: list[tuple[int, int] | None] = [None] * self.c.n
        for holder, rows in enumerate(self.rows):
            run: list[int] = []
            for at, row in enumerate(rows):
                if not self._new(holder, at):
                    continue
                before = rows[run[-1]] if run else None
                joins = before and before.time == row.time and self.parent[row.key[0]] == before.key[0]
                if not joins:
                    self._give(holder, run, own)
                    run = []
                run.append(at)
            self._give(holder, run, own)
        return own

    def _new(self, holder: int, at: int) -> bool:
        row = self.rows[holder][at]
        if row.action != Action.STORED or row.tier != 0 or row.key[0] not in self.parent:
            return False
        for before in reversed(self.rows[holder][:at]):
            if before.action > Action.REMOVED:
                return True
            if before.key == row.key and before.tier == 0:
                return before.action != Action.STORED
        return True

    def _give(self, holder: int, run: list[int], own: list[tuple[int, int] | None]) -> None:
        for at in reversed(run):
            i = self._owner(holder, at)
            if i is not None:
                depth = [key[0] for key in self.words[i]].index(self.rows[holder][run[0]].key[0])
                own[i] = own[i] or (run[0], depth)
                if self.c.first_token[i] < 0:
                    self.computed[i] = max(self.computed[i], self.rows[holder][run[0]].time)
                return

    def _owner(self, holder: int, at: int) -> int | None:
        """Who stored a block: the first in flight; the first without a first token where that one was over already."""
        row, i = self.rows[holder][at], self._seems_owner(holder, at)
        if i is None:
            return None
        over = int(self.c.first_token[i])
        given = [self._seems_owner(holder, k) for k in self._events_of(holder, at)]
        doubt = 0 <= over < self._lost_before(holder, at)
        gap = self.blurred(holder, int(self.c.arrived[i]), row.time)
        doubt |= gap is not None and gap <= at
        doubt |= [q for q in given if q is not None][-1:] == [i]
        if doubt:
            i = self._in_flight(holder, row, lambda q: int(self.c.first_token[q]))
        return i if i is not None and self.c.arrived[i] <= row.time else None

    def _seems_owner(self, holder: int, at: int) -> int | None:
        """The first in flight; instead of one that tells no first token, the first that began after the block was
        lost."""
        row = self.rows[holder][at]
        i = self._in_flight(holder, row, self._until) if self._new(holder, at) else None
        lost = self._lost_before(holder, at)
        if i is None or self.c.first_token[i] >= 0 or lost <= self.c.began[i]:
            return i
        later = self._in_flight(holder, row._replace(time=lost), lambda q: int(self.c.began[q]))
        return i if later is None or self.c.began[later] > row.time else later

    def _events_of(self, holder: int, at: int) -> list[int]:
        """Events of the same block on the device ahead of one."""
        rows = self.rows[holder]
        return [k for k in range(at) if rows[k].key == rows[at].key and self._of_device(holder, k)]

    def _lost_before(self, holder: int, at: int) -> int:
        """When a block was removed last, or all were, or events may be missing, -1 for never."""
        rows, told = self.rows[holder], self._events_of(holder, at)
        removed = rows[told[-1]].time if told and rows[told[-1]].action == Action.REMOVED else -1
        return max([removed, *(row.time for row in rows[:at] if row.action > Action.REMOVED)])

    def _in_flight(self, holder: int, row: Row, until: Callable[[int], int]) -> int | None:
        rows = (q for q in range(self.c.n) if self.holder[q] == holder and row.key in self.words[q])
        return next((q for q in rows if row.time <= until(q)), None)

    def _until(self, i: int) -> int:
        told = self.c.first_token[i] >= 0
        return int(self.c.first_token[i] + SLACK if told else self.c.began[i] + UNTOLD)

    def _of_device(self, holder: int, at: int) -> bool:
        row = self.rows[holder][at]
        return row.action <= Action.REMOVED and row.tier == 0

    def place(self, i: int) -> int:
        rows, own, behind = self.rows[self.holder[i]], self.own[i], self.behind(i)
        if behind is not None:
            return behind
        arrived, began, first = int(self.c.arrived[i]), int(self.c.began[i]), int(self.c.first_token[i])
        if own:
            at = own[0]
            while at and rows[at - 1].time == rows[own[0]].time:
                before = rows[at - 1]
                if before.action > Action.REMOVED or (before.action == Action.STORED and before.tier == 0):
                    break
                at -= 1
            return at
        if first >= 0 and began <= arrived:
            return self.place_of(self.holder[i], first)
        until = (first if first >= 0 else began) + SLACK
        early = self.place_of(self.holder[i], began - 1)
        is_step = early < len(rows) and rows[early].action <= Action.REMOVED
        step = rows[early].time if is_step else FOREVER
        return self.place_of(self.holder[i], step) if step <= until else early

    def behind(self, i: int) -> int | None:
        """Behind the last gap that may hide what was stored for a request."""
        first, began = int(self.c.first_token[i]), int(self.c.began[i])
        until = first + SLACK if first >= 0 else began + UNTOLD
        place, own = self.blurred(self.holder[i], min(began, int(self.c.arrived[i])), until), self.own[i]
        return None if place is None or (own and own[0] < place) else place

    def run(self, i: int, place: int, own: tuple[int, int] | None, shown: int = 0) -> int:
        """Leading blocks held for sure; of those `shown` by usage also those that may have been, events missing."""
        missing = self.missing(self.holder[i], place) >= 0
        for depth, key in enumerate(self.words[i]):
            look = self.block(key, self.holder[i], place, int(self.c.arrived[i]))
            if depth < shown and missing and look.maybe:
                continue
            if own and own[1] == depth:
                held = self.block(key, self.holder[i], own[0], 0, (0,)).held
                held |= self.block(key, self.holder[i], place, 0, (1, 2)).held
            else:
                held = self.block(key, self.holder[i], place, 0).held
            if not held:
                return depth
        return len(self.words[i])

    def lookup(self, i: int) -> tuple[int, int, tuple[int, int] | None]:
        """Place, blocks held for sure, and the first block stored for it."""
        blurred = self.behind(i) is not None
        c, own, place = self.c, None if blurred else self.own[i], self.place(i)
        held, word = self.run(i, place, own), self.words[i]
        before = self.place_of(self.holder[i], int(c.began[i]) - 1)
        if (
            not own
            and not blurred
            and held < len(word)
            and before < place
            and self.run(i, before, None) > held
        ):
            place, held = before, self.run(i, before, None)
        law, size = self.law(i), int(c.block_size[i])
        cached, prompt = int(c.cached[i]), int(c.prompt[i])
        if blurred or cached == NOT_TOLD or c.reads_off[i] or law.served(prompt, held * size) == cached:
            return place, held, own
        shown = -(-self.shown(i, cached) // size)
        seems = self.run(i, place, own, shown)
        depth, less = min(shown, seems), shown < seems
        if law.served(prompt, seems * size) == cached or depth >= len(word):
            return place, held, own
        moved = self._nearby(i, place, word[depth], less)
        seems = self.run(i, moved, None, shown)
        if moved != place and law.served(prompt, seems * size) == cached:
            return moved, self.run(i, moved, None), None
        return place, held, own

    def _nearby(self, i: int, place: int, key: Key, less: bool) -> int:
        c, rows = self.c, self.rows[self.holder[i]]
        told = int(c.first_token[i]) if c.first_token[i] >= 0 else int(c.began[i])
        earliest = self.place_of(self.holder[i], int(c.arrived[i]))
        latest = self.place_of(self.holder[i], told + SLACK)
        marks = (
            at for at, r in enumerate(rows) if r.action in (Action.CLEARED, Action.RESTART) and at >= place
        )
        latest = min(latest, next(marks, FOREVER))
        mine = [at for at, r in enumerate(rows) if r.key == key and self._of_device(self.holder[i], at)]
        last = max((at for at in mine if at < place), default=-1)
        after = min((at for at in mine if at >= place), default=FOREVER)
        if last >= earliest and last >= 0 and (rows[last].action == Action.STORED) == less:
            return last
        explained = not less and self.block(key, self.holder[i], place, int(c.arrived[i])).maybe
        if after < latest and (rows[after].action == Action.STORED) != less and not explained:
            return after + 1
        return place

    def law(self, i: int) -> Alignment:
        return self.laws.get(self.c.servers[self.c.server[i]], Alignment(int(self.c.block_size[i])))

    def shown(self, i: int, cached: int) -> int:
        law = self.law(i)
        return min(int(self.c.prompt[i]), cached + law.dropped_units * law.unit) if cached > 0 else 0
