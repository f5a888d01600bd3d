"""The ladder again, in plain Python: one request and one block at a time."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.misses.model import NOT_TOLD, Action, Chains, Events, Sent
from cachemodel.alignment import Alignment
from tests.analysis.misses.slow_caches import FOREVER, Block, Ended, Key, SlowCaches

SLACK, UNTOLD = 100_000, 60_000_000


class AmbiguousError(Exception):
    """Two losses at one time, of different causes: either will do."""


class SlowLadder(SlowCaches):
    """The rules of analysis.misses.ladder, one request at a time."""

    def __init__(
        self, chains: Chains, events: Events, sent: Sent, pieces: Sent, laws: Mapping[str, Alignment]
    ) -> None:
        super().__init__(chains, events, sent)
        self.laws, self.pieces = laws, pieces
        self.own = self._own_stores()

    # When each prompt was looked up

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
            row = self.rows[holder][at]
            for i, word in enumerate(self.words):
                told = self.c.first_token[i] >= 0
                until = self.c.first_token[i] + SLACK if told else self.c.began[i] + UNTOLD
                if self.holder[i] == holder and row.key in word and self.c.arrived[i] <= row.time <= until:
                    depth = [key[0] for key in word].index(self.rows[holder][run[0]].key[0])
                    if own[i] is None:
                        own[i] = (run[0], depth)
                    return

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
        step = rows[early].time if early < len(rows) else FOREVER
        return self.place_of(self.holder[i], step) if step <= until else early

    def behind(self, i: int) -> int | None:
        """Behind the last gap that may hide what was stored for a request."""
        first, began = int(self.c.first_token[i]), int(self.c.began[i])
        until = first + SLACK if first >= 0 else began + UNTOLD
        place, own = self.blurred(self.holder[i], min(began, int(self.c.arrived[i])), until), self.own[i]
        return None if place is None or (own and own[0] < place) else place

    def run(self, i: int, place: int, own: tuple[int, int] | None) -> int:
        for depth, key in enumerate(self.words[i]):
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
        less = shown < held
        depth = min(shown, held)
        if depth >= len(word):
            return place, held, own
        rows, key = self.rows[self.holder[i]], word[depth]
        told = int(c.first_token[i]) if c.first_token[i] >= 0 else int(c.began[i])
        earliest = self.place_of(self.holder[i], int(c.arrived[i]))
        latest = self.place_of(self.holder[i], told + SLACK)
        mine = [
            at for at, r in enumerate(rows) if r.key == key and r.tier == 0 and r.action <= Action.REMOVED
        ]
        last = max((at for at in mine if at < place), default=-1)
        after = min((at for at in mine if at >= place), default=FOREVER)
        moved = place
        if last >= earliest and last >= 0 and (rows[last].action == Action.STORED) == less:
            moved = last
        elif after < latest and (rows[after].action == Action.STORED) != less:
            moved = after + 1
        run = self.run(i, moved, None)
        if moved != place and law.served(prompt, run * size) == cached:
            return moved, run, None
        return place, held, own

    # The rungs

    def law(self, i: int) -> Alignment:
        return self.laws.get(self.c.servers[self.c.server[i]], Alignment(int(self.c.block_size[i])))

    def shown(self, i: int, cached: int) -> int:
        law = self.law(i)
        return min(int(self.c.prompt[i]), cached + law.dropped_units * law.unit) if cached > 0 else 0

    def climb(self, i: int) -> tuple[list[int], list[int], list[int]]:
        """served, unknown, evicted of one request, as in Ladder."""
        c, word = self.c, self.words[i]
        size, prompt, arrived = int(c.block_size[i]), int(c.prompt[i]), int(c.arrived[i])
        place, held, own = self.lookup(i)
        moment = int(c.began[i])
        if self.own[i]:
            moment = min(moment, self.rows[self.holder[i]][self.own[i][0]].time - 1)  # type: ignore[index]
        latest, late = moment, place
        if self.behind(i) is not None:
            latest = max(moment, int(c.first_token[i]))
            late = self.place_of(self.holder[i], latest)
        known = held
        while known < len(word) and (
            self.sent.get(word[known][0], FOREVER) < arrived
            or self.stored.get(word[known][0], FOREVER) <= latest
        ):
            known += 1
        own_looks = [
            self.block(key, self.holder[i], own[0] if own and own[1] == depth else place, arrived)
            for depth, key in enumerate(word[:known])
        ]
        for depth, key in enumerate(word[:known] if late != place else []):
            then = self.block(key, self.holder[i], late, arrived)
            own_looks[depth] = own_looks[depth]._replace(maybe=own_looks[depth].maybe or then.maybe)

        served: list[int] = []
        afar = self._from_afar(i, known)

        def tokens(blocks: int) -> int:
            split = int(c.split_tokens[i]) if blocks == c.split_depth[i] and blocks >= known else 0
            return min(prompt, blocks * size + (0 if afar and len(served) < 6 else split))

        def lead(flags: list[bool]) -> int:
            return held + next((n for n, flag in enumerate(flags[held:]) if not flag), len(flags) - held)

        law, cached = self.law(i), int(c.cached[i])
        of_held = law.served(prompt, held * size)
        off = bool(c.reads_off[i])
        actual = min(cached, prompt) if cached != NOT_TOLD else 0 if off else of_held
        most = lead([look.maybe for look in own_looks])
        shown, less = held, 0
        full = cached != NOT_TOLD and law.served(prompt, most * size) == actual
        if cached != NOT_TOLD and actual > of_held:
            shown = max(held, self.shown(i, actual) // size)
        elif cached != NOT_TOLD:
            less = of_held - actual
        whole = actual if off else tokens(shown) - (of_held - actual if less else 0)
        if off:
            shown = held
        unknown = [0]
        served.append(actual)

        def reach(surely: int, maybe: int) -> None:
            top = max(served[-1], maybe)
            unknown.append(max(0, top - max(served[-1], surely)))
            served.append(min(prompt, top))

        reach(whole, max(whole, tokens(most)) if full and not off else whole)
        surely = [look.held or depth < shown for depth, look in enumerate(own_looks)]
        maybe = [look.maybe or depth < shown for depth, look in enumerate(own_looks)]
        for scope in range(3):
            for depth in range(held, known):
                sure, may = self._scope(scope, i, depth, place, moment, own_looks[depth])
                surely[depth] |= sure
                maybe[depth] |= may or surely[depth]
            reach(tokens(lead(surely)), tokens(lead(maybe)))
        reach(tokens(known), tokens(known))
        evicted = self._evicted(i, place, own, moment, surely, known, served[4], served[5])
        served[5] = max(served[5], tokens(known))
        if self._may_go_on(i, place, known):
            served[5] = max(served[5], tokens(len(word)))
        unknown[5] = served[5] - served[4] - sum(evicted)
        moved = served[5] + self._moved(i, served[5])
        reach(moved, moved)
        reach(prompt, prompt)
        return served, unknown, evicted

    def _scope(
        self, scope: int, i: int, depth: int, place: int, moment: int, look: Block
    ) -> tuple[bool, bool]:
        """Whether a block is served by this cache, all caches, all caches under any isolation."""
        key, word = self.words[i][depth], self.words
        alike = (
            [key] if scope < 2 else sorted({k for w in word for k in w if k[0] == key[0]} | self._all(key))
        )
        flying = any(
            (scope > 0 or self.holder[q] == self.holder[i])
            and any(other in word[q] for other in alike)
            and self.c.first_token[q] >= moment
            for q in range(i)
        )
        if flying:
            return bool(scope) or not look.maybe or look.held, True
        arrived, mine = int(self.c.arrived[i]), self.c.servers[self.c.server[i]]
        sure = may = False
        for other in alike:
            for server in dict.fromkeys(name for name, _ in self.holders):
                if scope == 0 and server != mine:
                    continue
                looks = []
                for holder, (name, _) in enumerate(self.holders):
                    if name == server:
                        at = place if holder == self.holder[i] else self.place_of(holder, moment)
                        looks.append(self.block(other, holder, at, arrived))
                        if holder == self.holder[i] and other == key:
                            looks[-1] = look
                sure |= all(each.never for each in looks)
                if scope:
                    sure |= any(each.held for each in looks)
                    may |= any(each.maybe for each in looks)
        return sure, may

    def _may_go_on(self, i: int, place: int, known: int) -> bool:
        """Whether what follows may be the output of an earlier prompt, stored when events were missing."""
        word, missing = self.words[i], self.missing(self.holder[i], place)
        return 0 < known < len(word) and any(
            self.words[q] == word[:known]
            and self.holder[q] == self.holder[i]
            and self.c.arrived[q] < min(missing, int(self.c.arrived[i]))
            for q in range(self.c.n)
        )

    def _from_afar(self, i: int, known: int) -> bool:
        """Whether all that go on otherwise behind the known blocks are of other servers or isolations."""
        word = self.words[i]
        times = [
            (time, key, server)
            for (key, server), time in self.first.items()
            if known and self.parent.get(key[0]) == word[known - 1][0] and time < self.c.arrived[i]
        ]
        mine = self.c.servers[self.c.server[i]]
        if known != self.c.split_depth[i]:
            return False
        return bool(times) and not any(key[1] == word[0][1] and server == mine for _, key, server in times)

    def _all(self, key: Key) -> set[Key]:
        told = {k for k, _ in self.first if k[0] == key[0]}
        return told | {row.key for rows in self.rows for row in rows if row.key[0] == key[0]}

    # The last ones

    def _evicted(
        self,
        i: int,
        place: int,
        own: tuple[int, int] | None,
        moment: int,
        surely: list[bool],
        known: int,
        begin: int,
        end: int,
    ) -> list[int]:
        out, cause, size = [0, 0, 0, 0], None, int(self.c.block_size[i])
        for depth in range(known):
            upto = max(end, (depth + 1) * size) if depth == known - 1 else (depth + 1) * size
            tokens = min(upto, end) - max(depth * size, begin)
            if tokens <= 0:
                continue
            if not surely[depth]:
                at = own[0] if own and own[1] == depth else place
                cause = self._lost(i, self.words[i][depth], at, place, moment)
            if cause is not None:
                out[cause] += tokens
        return out

    def _lost(self, i: int, key: Key, at: int, place: int, moment: int) -> int | None:
        mine = self.ended(key, self.holder[i], at)
        if mine.unsure:
            return None
        if mine.time >= 0:
            return mine.cause if mine.cause >= 0 else None
        ends: list[Ended] = []
        for other in self._all(key):
            for holder in range(len(self.holders)):
                there = place if holder == self.holder[i] else self.place_of(holder, moment)
                ends.append(self.ended(other, holder, there))
        latest = max(end.time for end in ends)
        causes = {end.cause for end in ends if end.time == latest}
        if latest < 0 or any(end.unsure for end in ends):
            return None
        if len(causes) > 1:
            raise AmbiguousError
        cause = causes.pop()
        return cause if cause >= 0 else None

    def _moved(self, i: int, beyond: int) -> int:
        c = self.c
        seen_at: dict[int, int] = {
            int(h): int(t) for h, t in zip(self.pieces.hash, self.pieces.first, strict=True)
        }
        for q in range(c.n):
            for piece in c.pieces[c.piece_offsets[q] : c.piece_offsets[q + 1]].tolist():
                seen_at[piece] = min(int(c.arrived[q]), seen_at.get(piece, FOREVER))
        at, run, moved = int(c.pieces_from[i]), [], 0
        span = slice(c.piece_offsets[i], c.piece_offsets[i + 1])
        for piece, length in [
            *zip(c.pieces[span].tolist(), c.piece_tokens[span].tolist(), strict=True),
            (None, 0),
        ]:
            if piece is not None and seen_at[piece] < c.arrived[i]:
                run += range(at, at + length)
            else:
                moved += sum(beyond <= t < c.prompt[i] for t in run) if len(run) >= 16 else 0
                run = []
            at += length
        return moved
