"""One prompt, token by token: which cache served each run of it, or why it was computed, with the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses import sentences
from analysis.misses.alignments import climb_by_laws, laws
from analysis.misses.assemble import subset
from analysis.misses.bins import iso
from analysis.misses.columns import together
from analysis.misses.earlier import earlier
from analysis.misses.evidence import Histories, Seen, held_at
from analysis.misses.find import Found, find
from analysis.misses.model import NOT_TOLD, Chains, Flags, Ladder
from analysis.misses.next_steps import advice, fixes
from analysis.misses.parts import CACHED, EVICTED, UNKNOWN, rows_of
from analysis.misses.prompt_text import PromptText, prompt_text
from analysis.misses.reader import Reading
from analysis.misses.report_model import Explanation, TokenRun
from analysis.misses.single import read_one
from analysis.misses.standing import standing
from cachemodel.alignment import Alignment
from cachemodel.causes import LADDER, MissCause

_EVICTED = 5  # the rung
_CHANGED = 6
_SHORTEST = 16  # tokens of a run that was sent before elsewhere; fewer are shared by chance


def explain(client: Client, request_id: str, server: str = "") -> Explanation:
    """Explain a request. request_id: its id or the beginning of it, as long as there is one only. Raises UserError."""
    found, of_servers = together(lambda: find(client, request_id, server), lambda: standing(client))
    (reading, pairs), text = together(
        lambda: read_one(client, found, of_servers), lambda: prompt_text(client, found)
    )
    ladder, known = climb_by_laws(reading, laws(reading.chains, of_servers.alignments, pairs))
    rows = np.flatnonzero(reading.asked.asked)
    if not len(rows):
        return _unsized(found)
    one = np.zeros(reading.chains.n, np.bool_)
    one[rows[-1]] = True
    chains, chosen = subset(reading.chains, one), rows_of(ladder, one)
    law = known.alignments.get(found.server, Alignment(int(chains.block_size[0])))
    case = Case(
        found, reading, chains, chosen, one, law, known.told.get(found.server, ""), Histories(reading.events)
    )
    runs = [_with_text(run, text) for run in _joined(case.runs())]
    return Explanation(
        request_id=found.request_id,
        server=found.server,
        model=found.model,
        time=iso(found.time),
        prompt=int(chains.prompt[0]),
        cached=int(chains.cached[0]) if chains.cached[0] != NOT_TOLD else None,
        derived=bool(chosen.derived[0]),
        told_by=str(reading.asked.told_by[one][0]),
        block_size=int(chains.block_size[0]) if chains.known[0] else 0,
        alignment=sentences.alignment(law, case.law_told),
        runs=runs,
        layers=found.layers,
        recomputed=int(chains.recomputed[0]) if chains.recomputed[0] != NOT_TOLD else None,
        notes=sentences.notes(reading, chains, chosen, text),
        next_steps=[*fixes(_tokens(runs)), *advice(_tokens(runs))],
        earlier=earlier(client, reading, chains, int(reading.asked.sent[one][0]), _changed(runs)),
    )


def _tokens(runs: Sequence[TokenRun]) -> dict[str, int]:
    tokens: dict[str, int] = {}
    for run in runs:
        tokens[run.part] = tokens.get(run.part, 0) + run.end - run.start
    return tokens


def _changed(runs: Sequence[TokenRun]) -> TokenRun | None:
    """The longest run that was sent before behind something else."""
    those = [run for run in runs if run.part == MissCause.CHANGED]
    return max(those, key=lambda run: run.end - run.start, default=None)


def _unsized(found: Found) -> Explanation:
    notes = ["nothing tells how long its prompt is"]
    return Explanation(
        found.request_id, found.server, found.model, iso(found.time), 0, None, False, "", 0, "", [], found.layers,
        notes=notes,
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """All that is known of one request. chains, ladder: of it alone; one: its row in the reading."""

    found: Found
    reading: Reading
    chains: Chains
    ladder: Ladder
    one: Flags
    law: Alignment
    law_told: str
    histories: Histories

    @property
    def moment(self) -> int:
        """When its server began on it."""
        return int(self.chains.began[0])

    def runs(self) -> Iterator[TokenRun]:
        """Its tokens from the first to the last."""
        served, unknown = self.ladder.served[0].tolist(), self.ladder.unknown[0].tolist()
        yield from self._hits(served[0])
        for rung in range(1, _EVICTED):
            cause = LADDER[rung - 1].cause
            sure = served[rung] - unknown[rung]
            yield from self._blocks(served[rung - 1], sure, cause.value)
            yield from self._blocks(sure, served[rung], UNKNOWN)
        yield from self._evicted(served[_EVICTED - 1], self.shared.start)
        yield from self._run(self.shared.start, self.shared.stop, UNKNOWN)
        yield from self._new(served[_EVICTED], served[_CHANGED] - served[_EVICTED])

    @property
    def shared(self) -> range:
        """Tokens that only prompts of another server or isolation share: the last ones that were sent before."""
        end = int(self.ladder.served[0, _EVICTED])
        return range(end - int(self.ladder.shared[0]), end)

    def _hits(self, actual: int) -> Iterator[TokenRun]:
        tiers = np.maximum(self.reading.asked.tiers[self.one][0], 0).tolist()
        if sum(tiers) != actual:
            yield from self._run(0, actual, CACHED)
            return
        begin = 0
        for name, tokens in zip(("device", "host", "remote"), tiers, strict=True):
            yield from self._run(begin, begin + tokens, name)
            begin += tokens

    def _run(self, begin: int, end: int, part: str) -> Iterator[TokenRun]:
        if begin < end:
            yield TokenRun(begin, end, part, sentences.evidence(self, part, self._seen(begin), begin, end))

    def _blocks(self, begin: int, end: int, part: str) -> Iterator[TokenRun]:
        """A run cut where what is known of its blocks differs."""
        size = int(self.chains.block_size[0])
        while begin < end:
            upto = min(end, (begin // size + 1) * size) if self.chains.known[0] else end
            yield from self._run(begin, upto, part)
            begin = upto

    def _seen(self, token: int) -> list[Seen]:
        """The stays of the block that a token is in; none past the last whole block."""
        depth = token // int(self.chains.block_size[0])
        if depth >= len(self.chains.blocks):
            return []
        return self.histories.of(int(self.chains.blocks[depth]), self.moment)

    def _evicted(self, begin: int, end: int) -> Iterator[TokenRun]:
        """By how its blocks were lost. What lies past the last whole block goes with it."""
        size = int(self.chains.block_size[0])
        start, depth = begin, begin // size
        last = max(end // size - 1, depth)
        part, stay = self._lost(depth)
        while start < end:
            following = depth + 1
            while following <= last and self._lost(following) == (part, stay):
                following += 1
            upto = end if following > last else following * size
            text = sentences.evidence(self, part, self._seen(depth * size), depth * size, upto)
            yield TokenRun(start, upto, part, text)
            start, depth = upto, following
            if start < end:
                part, stay = self._lost(depth)

    def _lost(self, depth: int) -> tuple[str, tuple[int, int]]:
        """The part of a block that was sent before and is gone, and the stay that ended: its holder and when."""
        only = [part for part, tokens in zip(EVICTED, self.ladder.evicted[0].tolist(), strict=True) if tokens]
        seen = self._seen(depth * int(self.chains.block_size[0]))
        lost = last_lost(seen, self.holder, int(self.chains.isolation[0]), self.looked_up)
        stay = (lost.holder, lost.until) if lost else (NOT_TOLD, NOT_TOLD)
        if len(only) == 1 and self.ladder.unknown[0, _EVICTED] == len(self.shared):
            return only[0], stay
        return (f"{MissCause.EVICTED}/{lost.lost}" if only and lost and lost.lost else UNKNOWN), stay

    @property
    def looked_up(self) -> int:
        """Until when what is told may have been so when it was looked up: a clear, and what made room, is told with the
        step that followed, which can be its own."""
        return max(self.moment, int(self.chains.first_token[0]))

    @property
    def holder(self) -> int:
        """The cache it went to, NOT_TOLD where that is not known."""
        return int(self.chains.holder[0])

    def _new(self, begin: int, changed: int) -> Iterator[TokenRun]:
        """What nobody had sent so far, of which pieces may have stood elsewhere."""
        prompt = int(self.chains.prompt[0])
        moved = moved_runs(self.chains, self._earlier_pieces(), begin)
        if sum(end - start for start, end in moved) != changed:
            moved = [(begin, begin + changed)] if changed else []
        for start, end in moved:
            yield from self._run(begin, start, MissCause.COLD.value)
            yield from self._run(start, end, MissCause.CHANGED.value)
            begin = end
        yield from self._run(begin, prompt, MissCause.COLD.value)

    def _earlier_pieces(self) -> Flags:
        """Which of its pieces were sent before it arrived: by the store, or by a request beside it."""
        chains, sent, arrived = self.chains, self.reading.pieces_sent, int(self.chains.arrived[0])
        if not len(sent.hash):
            return np.zeros(len(chains.pieces), np.bool_)
        place = np.minimum(np.searchsorted(sent.hash, chains.pieces), len(sent.hash) - 1)
        earlier: Flags = (sent.hash[place] == chains.pieces) & (sent.first[place] < arrived)
        return earlier


def moved_runs(chains: Chains, earlier: Flags, beyond: int) -> list[tuple[int, int]]:
    """Tokens [start, end) past `beyond` of one prompt that lie in pieces sent earlier, in runs that are long enough."""
    ends = int(chains.pieces_from[0]) + np.cumsum(chains.piece_tokens)
    found: list[tuple[int, int]] = []
    start: int | None = None
    previous = int(chains.pieces_from[0])
    for end, is_earlier in zip([*ends.tolist(), None], [*earlier.tolist(), False], strict=True):
        if not is_earlier and start is not None:
            if previous - start >= _SHORTEST and previous > beyond:
                found.append((max(start, beyond), min(previous, int(chains.prompt[0]))))
            start = None
        elif is_earlier and start is None:
            start = previous
        previous = end if end is not None else previous
    return found


def last_lost(seen: list[Seen], holder: int, isolation: int, moment: int) -> Seen | None:
    """The stay whose end is why a block was not there: the last one on its own holder, else the last on any."""
    gone = [stay for stay in seen if not held_at(stay, moment)]
    own = [stay for stay in gone if stay.holder == holder and stay.isolation == isolation]
    those = own or gone
    return max(those, key=lambda stay: stay.until) if those else None


def _joined(runs: Iterator[TokenRun]) -> Iterator[TokenRun]:
    """Neighbours of which the same is to be said are one."""
    last: TokenRun | None = None
    for run in runs:
        if last and (last.part, last.evidence) == (run.part, run.evidence) and last.end == run.start:
            last = TokenRun(last.start, run.end, run.part, run.evidence)
            continue
        if last:
            yield last
        last = run
    if last:
        yield last


def _with_text(run: TokenRun, text: PromptText | None) -> TokenRun:
    return TokenRun(run.start, run.end, run.part, run.evidence, text.of(run.start, run.end)) if text else run
