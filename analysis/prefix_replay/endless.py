"""Requests that follow one another through a pool of blocks in which nothing is ever forgotten.

All that the general replay keeps books of (a queue, who holds what, who waits) makes no difference then: a block is
there as soon as any request before had it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.prefix_replay.compiled import compiled
from analysis.prefix_replay.model import Ints, Ragged, Requests, Served
from analysis.prefix_replay.rules import BlockRule


def is_endless(requests: Requests, rule: BlockRule) -> bool:
    """Whether no request is under way while another begins, and there is room for all."""
    return rule.capacity is None and requests.first_token is None and requests.done is None


def replay_endless(requests: Requests, rule: BlockRule, contents: Ragged) -> Served:
    """contents: a number for each full block of what is kept of each request."""
    size, law = rule.block_size, rule.law
    known = np.zeros(int(contents.values.max(initial=-1)) + 1, np.bool_)
    found = np.zeros(requests.n, np.int64)
    _run(contents.values, contents.offsets, requests.lengths // size, known, found)
    held: Ints = found * size
    usable = np.maximum(np.minimum(held, requests.lengths - law.computed_tokens), 0)
    served: Ints = np.maximum(usable // law.unit - law.dropped_units, 0) * law.unit
    if requests.reads_off is not None:
        served[requests.reads_off] = 0
    return Served(served, held)


@compiled
def _run(contents: Any, offsets: Any, full: Any, known: Any, found: Any) -> None:
    """full: blocks of each prompt that are full; found: filled in, those of them from the first on that are known."""
    for row in range(len(full)):
        begin, count = offsets[row], 0
        while count < full[row] and known[contents[begin + count]]:
            count += 1
        found[row] = count
        for at in range(begin + count, offsets[row + 1]):
            known[contents[at]] = True
