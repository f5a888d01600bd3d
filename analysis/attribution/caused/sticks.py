"""Where prompt tokens came from, as sticks that are broken one after the other, own or borrowed from the other side.

Of a prompt the part that is cold, of the rest what had changed, of the rest what was evicted, and so on up to the
ladder's top; what is left are hits, of which lower tiers have their parts. So more tokens lost to one cause leave fewer
for the next to lose, and never more than a prompt.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from analysis.attribution.caused.borrowed import Strata, borrowed
from analysis.attribution.model import Side
from analysis.attribution.tokens import CAUSES, COMPUTED
from analysis.quantiles import Floats
from cachemodel.causes import MissCause
from cachemodel.layers import Tier

OF_TIERS = (str(Tier.REMOTE), str(Tier.HOST))
ORDER = (COMPUTED, *reversed(CAUSES), *OF_TIERS)
_ABSOLUTE = str(MissCause.UNALIGNED)  # part of a block, however much reaches it


@dataclass(frozen=True)
class Sticks:
    """Of the n requests of one side. names: (k,) in ORDER; tokens: (k, n) that each took; left: (k, n) that reached it;
    lent: (k, n) what it would take of these on the other side: a share, of `unaligned` tokens; NaN where nothing tells.
    """

    prompt: Floats
    names: tuple[str, ...]
    tokens: Floats
    left: Floats
    lent: Floats

    def broken(self, over: Collection[str]) -> dict[str, Floats]:
        """Tokens (n,) to load from the host and remotely, and to compute, with some sticks as on the other side."""
        left, taken = self.prompt.copy(), {COMPUTED: np.zeros(len(self.prompt))}
        taken |= {tier: np.zeros(len(self.prompt)) for tier in OF_TIERS}
        for at, name in enumerate(self.names):
            took = self._borrowed(at, left) if name in over else self._own(at, left)
            taken[name if name in OF_TIERS else COMPUTED] += took
            left = left - took
        return taken

    def _borrowed(self, at: int, left: Floats) -> Floats:
        lent = np.minimum(self.lent[at], left) if self.names[at] == _ABSOLUTE else self.lent[at] * left
        return np.asarray(np.where(np.isnan(lent), self._own(at, left), lent))

    def _own(self, at: int, left: Floats) -> Floats:
        """What it took of as many; of tokens that never reached it, as the other side's did that have."""
        took, reached = self.tokens[at], self.left[at]
        if self.names[at] == _ABSOLUTE:
            return np.asarray(np.minimum(took, left))
        share = np.divide(took, reached, out=np.zeros_like(took), where=reached > 0)
        beyond = np.where(np.isnan(self.lent[at]), share, self.lent[at])
        return np.asarray(np.where(left <= reached, share * left, took + beyond * (left - reached)))


def sticks(own: Side, other: Side, alike: Strata, drawn: Floats) -> Sticks:
    """Of `own`, whose sources are those of `other`, all known; it is `a` of the strata. drawn: (m,) how often each of
    the other's requests counts."""
    names = tuple(name for name in ORDER if name in own.sources)
    (tokens, left), (others, others_left) = _along(own, names), _along(other, names)
    lent = []
    for at, name in enumerate(names):
        if name == _ABSOLUTE:
            weights = (np.ones(own.n), drawn)
            values = (tokens[at], others[at])
        else:
            weights = (left[at] / own.prompt, drawn * others_left[at] / other.prompt)
            values = (_share(tokens[at], left[at]), _share(others[at], others_left[at]))
        lent.append(borrowed(*values, alike, *weights))
    return Sticks(own.prompt, names, tokens, left, np.stack(lent))


def _along(side: Side, names: tuple[str, ...]) -> tuple[Floats, Floats]:
    tokens = np.stack([side.tokens[side.sources.index(name)] for name in names])
    taken = np.cumsum(tokens, axis=0) - tokens
    return tokens, np.maximum(side.prompt - taken, 0.0)


def _share(tokens: Floats, left: Floats) -> Floats:
    return np.asarray(np.divide(tokens, left, out=np.zeros_like(tokens), where=left > 0))
