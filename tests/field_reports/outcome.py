"""What hitmap makes of a fleet's telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.alignment import fit, proven
from analysis.misses import parts
from analysis.misses.across import hits_across
from analysis.misses.ceilings import ceilings, too_long_units
from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD
from analysis.misses.report_model import CeilingLine
from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import Fit
from tests.field_reports.caches import Fleet

Rows = slice | Sequence[int]
_ALL = slice(None)


class Outcome:
    """laws: by server, those of its caches where not given."""

    def __init__(self, fleet: Fleet, laws: Mapping[str, Alignment] | None = None) -> None:
        self.fleet = fleet
        self.chains, self.events, self.sent = fleet.chains(), fleet.events(), fleet.blocks_sent()
        known = {name: cache.law for name, cache in fleet.caches.items()} if laws is None else laws
        self.ladder = climb(self.chains, self.events, self.sent, fleet.pieces_sent(), known)

    def parts(self, rows: Rows = _ALL) -> dict[str, int]:
        """Tokens of some requests, in order of arrival, by what they are; those without any left out."""
        split = parts.split(self.ladder, np.full((self.chains.n, 3), NOT_TOLD))[rows]
        assert (split >= 0).all()
        assert split.sum() == self.chains.prompt[rows].sum()
        return parts.named(split.sum(axis=0))

    def hit_rate(self, rows: Rows = _ALL) -> float:
        """Of tokens."""
        return float(self.ladder.served[rows][:, 0].sum() / self.chains.prompt[rows].sum())

    def fit(self, server: str, rows: Rows = _ALL) -> Fit | None:
        """The law that its hits follow, nothing but prompts and hits being known."""
        of = self.chains.server[rows] == self.chains.servers.index(server)
        return fit(self.chains.prompt[rows][of], self.chains.cached[rows][of])

    def proven(self) -> dict[str, Fit]:
        """Laws that the ladder proves to be others than those it was climbed with."""
        return proven(self.chains, self.ladder)

    def ceilings(self) -> list[CeilingLine]:
        """A line a server."""
        return ceilings(self.chains, self.events, self.sent, self.ladder, {})

    def hits_across(self) -> list[str]:
        """Warnings of hits under another salt or adapter."""
        return hits_across(self.chains, self.sent, self.ladder)

    def too_long_units(self) -> list[str]:
        """Warnings of units longer than prompts."""
        return too_long_units(self.chains, self.ladder)
