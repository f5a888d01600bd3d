"""The ladder again, in plain Python: one request and one block at a time."""

from __future__ import annotations

from analysis.misses.model import NOT_TOLD
from tests.analysis.misses.slow_caches import FOREVER, Block, Ended, Key
from tests.analysis.misses.slow_places import SlowPlaces


class AmbiguousError(Exception):
    """Two losses at one time, of different causes: either will do."""


class SlowLadder(SlowPlaces):
    """The rules of analysis.misses.ladder, one request at a time."""

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
        if not own and self.behind(i) is None:
            self._used(i, place, own_looks)

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
        shown = held
        full = cached != NOT_TOLD and law.served(prompt, most * size) == actual
        if cached != NOT_TOLD and actual > of_held:
            shown = max(held, self.shown(i, actual) // size)
        while shown < known and own_looks[shown].held:
            shown += 1
        less = max(0, law.served(prompt, shown * size) - actual) if cached != NOT_TOLD else 0
        whole = actual if off else tokens(shown) - less
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
            and self.computed[q] >= moment
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

    def _used(self, i: int, place: int, looks: list[Block]) -> None:
        """What may have been held ahead of the step of the lookup, had it been found, would not have been removed."""
        before = self.place_of(self.holder[i], int(self.c.began[i]) - 1)
        if before >= place or self.missing(self.holder[i], before) < 0:
            return
        held = self.run(i, place, None)
        then = [self.block(key, self.holder[i], before, int(self.c.arrived[i])) for key in self.words[i]]
        if any(look.maybe and not look.held for look in then[held : len(looks)]):
            for depth in range(held, len(looks)):
                looks[depth] = looks[depth]._replace(maybe=looks[depth].maybe or then[depth].maybe)

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
        mine = self.ended(key, self.holder[i], at, int(self.c.arrived[i]))
        if mine.unsure:
            return None
        if mine.time >= 0:
            return mine.cause if mine.cause >= 0 else None
        ends: list[Ended] = []
        for other in self._all(key):
            for holder in range(len(self.holders)):
                there = place if holder == self.holder[i] else self.place_of(holder, moment)
                ends.append(self.ended(other, holder, there, int(self.c.arrived[i])))
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
