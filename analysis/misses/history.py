"""What had been sent before: in the chains themselves, and in those of which only the first time is kept."""

from __future__ import annotations

import numpy as np

from analysis.misses.model import Action, Chains, Ints, Sent
from analysis.misses.numbering import Numbers
from analysis.misses.positions import Groups
from analysis.misses.residency import NEVER, Residency


class History:
    """When contents, and keys by server, were sent first; and when contents were first stored anywhere.

    sent, stored: (contents,) times, NEVER for those that were not. pairs: what was sent where, key * servers + server,
    sorted; times: when first.
    """

    def __init__(
        self, chains: Chains, numbers: Numbers, sent: Sent, residency: Residency, groups: Groups
    ) -> None:
        group, row = groups.flights.firsts()
        key = group // groups.width
        self.servers = max(1, len(chains.servers))
        told = np.flatnonzero((numbers.sent >= 0) & (sent.server >= 0))
        pairs = np.concatenate(
            [key * self.servers + chains.server[row], numbers.sent[told] * self.servers + sent.server[told]]
        )
        first = np.concatenate([chains.arrived[row], sent.first[told]])
        order = np.lexsort((first, pairs))
        new = np.ones(len(order), np.bool_)
        new[1:] = pairs[order[1:]] != pairs[order[:-1]]
        self.pairs, self.times = pairs[order][new], first[order][new]

        self.sent = np.full(numbers.contents, NEVER)
        np.minimum.at(self.sent, numbers.content[key], chains.arrived[row])
        of_chain = np.flatnonzero(numbers.sent_content >= 0)
        np.minimum.at(self.sent, numbers.sent_content[of_chain], sent.first[of_chain])
        self.stored = np.full(numbers.contents, NEVER)
        stored = np.flatnonzero((residency.action == Action.STORED) & (residency.key >= 0))
        np.minimum.at(self.stored, numbers.content[residency.key[stored]], residency.time[stored])

    def first(self, key: Ints, server: Ints) -> Ints:
        """When each key was first sent to a server, NEVER where it was not."""
        if not len(self.pairs):
            return np.full(len(key), NEVER)
        wanted = key * self.servers + server
        place = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        found = (self.pairs[place] == wanted) & (server < self.servers)
        return np.where(found, self.times[place], NEVER)
