"""Whose is the part of a block that another prompt shares?

The first block of a prompt that nobody had sent may begin with tokens that another prompt has there, too. That block of
the other one is what a cache could have served them from. Its content is not known to the store, only to the chains
that are read together.
"""

from __future__ import annotations

import numpy as np

from analysis.misses.model import Flags, Ints
from analysis.misses.runs import Beyond, Runs


def split_tokens(runs: Runs, those: Beyond) -> Ints:
    """Tokens (n,) of the first unknown block that another prompt shares; none where it is not the first unknown one."""
    chains = runs.chains
    tokens: Ints = np.where(chains.split_depth >= those.ends, chains.split_tokens, 0)
    return tokens


def from_afar(runs: Runs, those: Beyond) -> Flags:
    """Of which requests (n,) all chains at hand that go on differently behind the known blocks were sent to other
    servers or under another isolation: what they share was not held here."""
    chains, numbers, history = runs.chains, runs.numbers, runs.history
    out = np.zeros(chains.n, np.bool_)
    rows = np.flatnonzero((those.ends > 0) & (chains.split_depth == those.ends) & (chains.split_tokens > 0))
    key, server = np.divmod(history.pairs, history.servers)
    child = numbers.parent[numbers.content[key]] >= 0
    if not len(rows) or not child.any():
        return out
    key, server, first = key[child], server[child], history.times[child]
    parent = numbers.parent[numbers.content[key]]
    known = numbers.content[numbers.key[chains.offsets[rows] + those.ends[rows] - 1]]
    root, at, arrived = numbers.key[chains.offsets[rows]], chains.server[rows], chains.arrived[rows]
    anywhere = _earliest(parent, first, known) < arrived
    scale = numbers.keys * history.servers
    here = _earliest(
        parent * scale + numbers.root[key] * history.servers + server,
        first,
        known * scale + root * history.servers + at,
    )
    out[rows] = anywhere & (here >= arrived)
    return out


def _earliest(group: Ints, time: Ints, wanted: Ints) -> Ints:
    """The earliest time of each wanted group, the latest there is where it has none."""
    order = np.lexsort((time, group))
    group, time = group[order], time[order]
    at = np.searchsorted(group, wanted)
    there = np.minimum(at, len(group) - 1)
    return np.where(group[there] == wanted, time[there], np.iinfo(np.int64).max)
