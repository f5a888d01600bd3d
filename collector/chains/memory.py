"""Which beginnings of prompts were seen before, to the token: a bounded memory of chains. Pure.

It holds blocks, each under the content of all before it, and the tokens that follow a prompt's last full block. The
least recently seen are forgotten first, the deep ones before the shallow: a split that is told too shallow for that
reason costs a longer row and nothing else.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MAX_BLOCKS = 1 << 17
BYTES_A_BLOCK = 540  # of memory, blocks of 32 tokens; measured
_TOKEN = np.dtype(">u4")  # in this order the order of the bytes is that of the tokens

_Place = tuple[int, int]  # block size, content of all before


class Split(NamedTuple):
    """Where a prompt parts from all that came before: after `depth` full blocks and `tokens` tokens more."""

    depth: int
    tokens: int


class ChainMemory:
    """Thread-safe. max_blocks: blocks and ends of prompts that are remembered."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._lock = threading.Lock()
        self._used: OrderedDict[tuple[_Place, bytes], None] = OrderedDict()
        self._next: dict[_Place, list[bytes]] = {}  # what followed it, sorted

    def take(self, blocks: Sequence[int], tokens: Sequence[int], block_size: int) -> Split:
        """Where this prompt parts from those taken before; it is remembered from now on.

        blocks: contents of its full blocks (ContentHasher.chain).
        """
        data = np.asarray(tokens, _TOKEN).tobytes()
        step = block_size * _TOKEN.itemsize
        pieces = [data[start : start + step] for start in range(0, len(data), step)]
        places = [(block_size, before) for before in (0, *blocks)]
        with self._lock:
            split = self._split(places, pieces, len(blocks))
            for place, piece in reversed(list(zip(places, pieces, strict=False))):
                self._remember(place, piece)
            while len(self._used) > self._max_blocks:
                self._forget(*self._used.popitem(last=False)[0])
        return split

    def _split(self, places: Sequence[_Place], pieces: Sequence[bytes], full: int) -> Split:
        depth = 0
        while depth < full and (places[depth], pieces[depth]) in self._used:
            depth += 1
        if depth == len(pieces):
            return Split(depth, 0)
        piece, known = pieces[depth], self._next.get(places[depth], [])
        at = bisect_left(known, piece)
        # the longest common beginning is with a neighbour in the order
        shared = max((_common(piece, known[i]) for i in (at - 1, at) if 0 <= i < len(known)), default=0)
        return Split(depth, shared)

    def _remember(self, place: _Place, piece: bytes) -> None:
        if (place, piece) in self._used:
            self._used.move_to_end((place, piece))
            return
        self._used[place, piece] = None
        insort(self._next.setdefault(place, []), piece)

    def _forget(self, place: _Place, piece: bytes) -> None:
        known = self._next[place]
        del known[bisect_left(known, piece)]
        if not known:
            del self._next[place]


def _common(one: bytes, other: bytes) -> int:
    """Tokens that both begin with."""
    length = min(len(one), len(other)) // _TOKEN.itemsize
    differ = np.frombuffer(one, _TOKEN, length) != np.frombuffer(other, _TOKEN, length)
    return int(differ.argmax()) if differ.any() else length
