"""The alignment law of a cache from columns of prompt and cached tokens (cachemodel/alignment_fit.py)."""

from __future__ import annotations

import numpy as np

from analysis.misses.model import NOT_TOLD, Chains, Ints, Ladder
from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import Fit, Pair, fit_pairs
from cachemodel.causes import LADDER, MissCause

MOST_PAIRS = 500  # more do not make a fit surer, only slower
FEWEST_HITS = 10


def fit(prompt: Ints, cached: Ints, held: Ints | None = None, block: int = 1) -> Fit | None:
    """The law that n requests follow: prompt and cached tokens (n,), and how many of the first tokens of each prompt
    were held (n,), each NOT_TOLD where unknown. None where no request that tells both has a hit.

    block: tokens of the server's blocks, where it tells them. Of more than MOST_PAIRS pairs as many are drawn, the same
    ones each time.
    """
    known = np.full(len(prompt), NOT_TOLD) if held is None else held
    telling = (prompt > 0) & (cached >= 0) & ((cached > 0) | (known >= 0))
    rows = np.flatnonzero(telling)
    if len(rows) > MOST_PAIRS:
        rows = np.sort(np.random.default_rng(len(rows)).choice(rows, MOST_PAIRS, replace=False))
    pairs = (
        Pair(tokens, hits, first if first >= 0 else None)
        for tokens, hits, first in zip(
            prompt[rows].tolist(), cached[rows].tolist(), known[rows].tolist(), strict=True
        )
    )
    return fit_pairs(pairs, block)


def served(law: Alignment, prompt: Ints, held: Ints) -> Ints:
    """`Alignment.served` of n prompts (n,) of which the first `held` (n,) tokens are in the cache."""
    usable = np.maximum(np.minimum(held, prompt - law.computed_tokens), 0)
    tokens: Ints = np.maximum(usable // law.unit - law.dropped_units, 0) * law.unit
    return tokens


def proven(chains: Chains, ladder: Ladder) -> dict[str, Fit]:
    """By server, the laws that its hits and what was held prove and the ladder was not climbed with: climb again with
    these. ladder: of these chains, with any laws, since what was held does not depend on them.

    A law is proven where FEWEST_HITS or more follow it, and all laws that are possible have its unit and dropped units.
    """
    held = held_by(ladder)
    usable = chains.known & ~chains.reads_off & ~ladder.derived
    found = {}
    for index, server in enumerate(chains.servers):
        rows = usable & (chains.server == index)
        if not rows.any():
            continue
        told = fit(chains.prompt[rows], chains.cached[rows], held[rows])
        if told is None or not told.shape_certain or told.hits < FEWEST_HITS:
            continue
        used = ladder.alignments.get(server)
        if used is None or _shape(used) != _shape(told.alignment):
            found[server] = told
    return found


def _shape(law: Alignment) -> tuple[int, int]:
    return law.unit, law.dropped_units


def held_by(ladder: Ladder) -> Ints:
    """Tokens (n,) of each prompt that the cache which got it held, NOT_TOLD where the ladder is not sure.

    What the law with which it was climbed does not explain was `not_loaded`, which counts as held here.
    """
    rung = 1 + [step.cause for step in LADDER].index(MissCause.NOT_LOADED)
    sure = ~ladder.derived & (ladder.unknown[:, : rung + 1] == 0).all(axis=1)
    held: Ints = np.where(sure, ladder.served[:, rung], NOT_TOLD)
    return held
