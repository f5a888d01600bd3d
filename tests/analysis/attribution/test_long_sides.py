"""A side with more requests than are replayed: a stretch of it is, and the server's own count of requests is no reason
against it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.caused import twinned
from analysis.attribution.caused.split import caused
from analysis.attribution.caused.told import Room, ToldSide
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Split
from analysis.report.metrics import METRICS
from tests.analysis.attribution import contention
from tests.analysis.attribution.contention import AS_WAS, LATER, Draws, World

N = 1500


@pytest.mark.slow
def test_a_stretch_is_replayed_though_the_server_counted_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twinned, "MOST_REPLAYED", 1000)
    a = contention.side(AS_WAS, Draws.of(N, 1))
    b = contention.side(World(hits=0.5), Draws.of(N, 2), "b", LATER)
    server = replace(contention.told(AS_WAS), requests=N)
    told = ToldSide({"contended": server}, {"contended": Room(device=AS_WAS.pool)})
    drawn = resampling(a, b, np.random.default_rng(0))
    split, _, _ = caused(a, b, 0.95, METRICS["e2e"], (told, told), drawn)
    assert isinstance(split, Split), split
    assert any("requests in a row of a side, not all" in note for note in split.notes)
