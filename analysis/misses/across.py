"""Hits that a salt or an adapter should have kept apart: tokens served to a request that only others had ever sent.

An adapter changes what the KV of a token is, so that such a hit is a wrong answer; a salt is there so that tenants
learn nothing of each other. Reports of keys that lacked one: vllm issues 30931, 44250 and 3264, llama.cpp issue 26207.
"""

from __future__ import annotations

import numpy as np

from analysis.misses.model import Chains, Ints, Ladder, Sent
from analysis.misses.sent_before import sent_before

_FEWEST = 2  # requests: one alone may be a prompt of its own that was sent before the history begins


def served_across(chains: Chains, blocks_sent: Sent, ladder: Ladder) -> Ints:
    """Tokens (n,) that each request was served although nobody had sent them under its salt and adapter, while others
    had; 0 where hits are not told."""
    own = sent_before(chains, blocks_sent)
    anyones = sent_before(chains, blocks_sent, any_isolation=True)
    hits = np.where(chains.known & ~ladder.derived, ladder.served[:, 0], 0)
    # hits beyond what anyone sent are of completions, which are cached too and tell nothing here
    across: Ints = np.where((hits > own) & (hits <= anyones), hits - own, 0)
    return across


def hits_across(chains: Chains, blocks_sent: Sent, ladder: Ladder) -> list[str]:
    """A sentence for each server that serves KV over salts or adapters."""
    tokens = served_across(chains, blocks_sent, ladder)
    found = []
    for index, server in enumerate(chains.servers):
        of = tokens[(chains.server == index) & (tokens > 0)]
        if len(of) >= _FEWEST:
            found.append(
                f"{server}: hits across salts or adapters: {len(of):,} requests were served {int(of.sum()):,} tokens"
                " that nobody had sent under their own salt or adapter, but others had. If these are adapters, the"
                " answers are wrong; see that the cache's key holds the adapter's id (vllm issues 30931, 44250)."
            )
    return found
