"""Looking blocks up in many caches at once: pairs of a block and a holder that may have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from analysis.misses.history import History
from analysis.misses.model import Chains, Flags, Ints
from analysis.misses.numbering import Numbers, distinct
from analysis.misses.positions import Positions
from analysis.misses.residency import Residency

_AT_ONCE = 1 << 19  # blocks


class Pairs(NamedTuple):
    """p lookups of q blocks. block: (p,) which of the q, ascending; place: of the lookup in the holder's sequence."""

    block: Ints
    key: Ints
    row: Ints
    holder: Ints
    place: Ints


class Found(NamedTuple):
    """Of q blocks: served for sure, maybe served, by some holder."""

    surely: Flags
    maybe: Flags


class Survey:
    """All holders that may have had a block: those that told of it, and those of the servers it was sent to."""

    def __init__(
        self,
        chains: Chains,
        numbers: Numbers,
        residency: Residency,
        history: History,
        positions: Positions,
        server: Ints,
    ) -> None:
        self._chains, self._residency, self._history, self._positions = chains, residency, history, positions
        self.server, self.holders = server, len(server)
        of_block = np.flatnonzero(residency.key >= 0)
        told = residency.key[of_block] * self.holders + residency.holder[of_block]
        by_server = np.argsort(server, kind="stable")
        begins = np.searchsorted(server[by_server], np.arange(history.servers + 1))
        key, at = np.divmod(history.pairs, history.servers)
        which, each = expand(begins[at], begins[at + 1])
        sent = key[which] * self.holders + by_server[each]
        self._pairs = distinct(np.concatenate([told, sent]))
        self._begins = np.searchsorted(self._pairs, np.arange(numbers.keys + 1) * self.holders)
        self._keys = np.argsort(numbers.content, kind="stable")
        self._of_content = np.searchsorted(numbers.content[self._keys], np.arange(numbers.contents + 1))
        self._content = numbers.content

    def several(self, server: Ints) -> Flags:
        """Which servers have several holders."""
        counts: Flags = np.bincount(self.server, minlength=self._history.servers)[server] > 1
        return counts

    def pairs(
        self, key: Ints, row: Ints, *, any_key: bool = False, own_server: bool = False
    ) -> Iterator[Pairs]:
        """Lookups of blocks for requests `row`, a part of the blocks at a time.

        any_key: under any isolation. own_server: at the request's server only.
        """
        for begin in range(0, len(key), _AT_ONCE):
            some, rows = key[begin : begin + _AT_ONCE], row[begin : begin + _AT_ONCE]
            block = np.arange(len(some))
            if any_key:
                content = self._content[some]
                block, each = expand(self._of_content[content], self._of_content[content + 1])
                some = self._keys[each]
            which, each = expand(self._begins[some], self._begins[some + 1])
            block, some = block[which], some[which]
            holder = self._pairs[each] - some * self.holders
            if own_server:
                own = self.server[holder] == self._chains.server[rows[block]]
                block, some, holder = block[own], some[own], holder[own]
            of = rows[block]
            at = self._residency.place(holder, self._positions.moment[of])
            at = np.where(holder == self._positions.holder[of], self._positions.place[of], at)
            yield Pairs(block + begin, some, of, holder, at)

    def seek(
        self, key: Ints, row: Ints, never: Flags, *, any_key: bool = False, own_server: bool = False
    ) -> Found:
        """What the holders together would have served: what one of them held, and what one of the servers was sent and
        never stored. never: what the request's own holder tells of that. With `own_server` what is held is only maybe
        served: it is not known by which of its ranks."""
        surely, maybe = np.zeros(len(key), np.bool_), np.zeros(len(key), np.bool_)
        for pairs in self.pairs(key, row, any_key=any_key, own_server=own_server):
            first = self._history.first(pairs.key, self.server[pairs.holder])
            look = self._residency.look(
                pairs.key, pairs.holder, pairs.place, first, self._chains.arrived[pairs.row]
            )
            # of its own holder under its own key everything is known already, to the event
            other = (pairs.holder != self._positions.holder[pairs.row]) | (pairs.key != key[pairs.block])
            maybe[pairs.block[look.maybe & other]] = True
            if not own_server:
                surely[pairs.block[look.held & other]] = True
            surely[self._nowhere(pairs, np.where(other, look.never, never[pairs.block]))] = True
        return Found(surely, maybe | surely)

    def _nowhere(self, pairs: Pairs, never: Flags) -> Ints:
        """Blocks that none of a server's holders ever stored."""
        server = self.server[pairs.holder]
        servers = int(self.server.max()) + 1
        # keys of one content are told apart here: each was sent to the server at a time of its own
        order = np.lexsort((server, pairs.key, pairs.block))
        group = pairs.block[order] * servers + server[order]
        new = np.ones(len(group), np.bool_)
        new[1:] = (group[1:] != group[:-1]) | (pairs.key[order[1:]] != pairs.key[order[:-1]])
        begins = np.flatnonzero(new)
        every = np.logical_and.reduceat(never[order], begins) if len(begins) else np.zeros(0, np.bool_)
        return pairs.block[order[begins[every]]]


def expand(begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """All numbers of n ranges, one range after the other, and of which range each is."""
    lengths = ends - begins
    which = np.repeat(np.arange(len(begins)), lengths)
    each = np.arange(len(which)) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return which, each
