"""What caused it, where it is known: a server that is no twin (contention.py), run again with only its changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from analysis.attribution.caused.split import caused
from analysis.attribution.caused.told import Room, ToldSide
from analysis.attribution.certainty.gate import judge
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Fidelity, Refused, Share, Side, Split, Verdict, View
from analysis.report.metrics import METRICS
from tests.analysis.attribution import contention
from tests.analysis.attribution.contention import AS_WAS, CASES, LATER, SOURCES, Draws, World

pytestmark = pytest.mark.slow
SHARE = 0.8
N = 2500


def told(world: World) -> ToldSide:
    return ToldSide({"contended": contention.told(world)}, {"contended": Room(device=world.pool)})


@dataclass(frozen=True)
class Judged:
    """What comes of it, with intervals and verdicts."""

    view: View
    fidelity: list[Fidelity]

    def __getitem__(self, cause: str) -> Share:
        assert not self.view.refused, (self.view.refused, [line for line in self.fidelity if not line.ok])
        return next(share for share in self.view.shares if share.name == cause)

    def __str__(self) -> str:
        parts = [f"{s.name} {s.value:+.1f} [{s.low:.1f}, {s.high:.1f}] {s.verdict}" for s in self.view.shares]
        return f"{self.view.change:+.1f}: {'; '.join(parts)}; unexplained {self.view.residual:+.1f}"

    @property
    def named(self) -> list[str]:
        return [share.name for share in self.view.shares if share.verdict is Verdict.NAMED]


def judged(a: Side, b: Side, worlds: tuple[World, World], q: float | None, metric: str = "e2e") -> Judged:
    a, b = (replace(side, totals=side.time(metric)) for side in (a, b))
    drawn = resampling(a, b, np.random.default_rng(0))
    split, fidelity, own = caused(a, b, q, METRICS[metric], (told(worlds[0]), told(worlds[1])), drawn)
    if isinstance(split, Split):
        assert split.values.sum() + split.residual == pytest.approx(split.change)
    return Judged(judge(split, {**own_changes(a, b, drawn), **own}, drawn), fidelity)


def the_same_traffic(worlds: tuple[World, World], seed: int, n: int = N) -> tuple[Side, Side]:
    """Of both worlds; the server's own noise is another one in the second."""
    draws = Draws.of(n, seed)
    again = replace(draws, passes=seed + 999)
    return contention.side(worlds[0], draws), contention.side(worlds[1], again, "b", LATER)


@pytest.mark.parametrize("cause", CASES)
@pytest.mark.parametrize(("metric", "q"), [("ttft", 0.95), ("e2e", 0.5)])
def test_a_change_is_laid_on_what_was_changed(cause: str, metric: str, q: float) -> None:
    """At least 80 % of it, whatever layer shows it, with the truth in the interval."""
    worlds = CASES[cause]
    found = judged(*the_same_traffic(worlds, 1), worlds, q, metric)
    truth = contention.truth(*worlds, [Draws.of(N, 1)], q, metric)[cause]
    words = f"{cause}, {metric} {q}, truth {truth:+.1f} of {found}"
    print(f"\n{words}")
    low, high = found[cause].low, found[cause].high
    assert low is not None
    assert high is not None
    assert found[cause].value >= SHARE * truth, words
    assert low <= truth <= high, words
    assert set(found.named) <= {cause}, words


def test_lost_hits_are_not_laid_on_decode_which_shows_them() -> None:
    """The case that a split of each request's own time gets wrong: decode is where most of it shows."""
    worlds = CASES["changed"]
    a, b = the_same_traffic(worlds, 2)
    shows = float(np.mean(b.time("decode")) - np.mean(a.time("decode")))
    found = judged(a, b, worlds, None)
    assert shows > 0.5 * found.view.change
    assert found["changed"].value > SHARE * found.view.change
    assert found.named == ["changed"], str(found)
    assert abs(found["decode speed"].value) < 0.1 * found.view.change


def test_two_causes_at_once_have_each_its_own_part() -> None:
    worlds = AS_WAS, replace(AS_WAS, hits=0.55, decode=1.4)
    found = judged(*the_same_traffic(worlds, 3), worlds, 0.5)
    for cause, value in contention.truth(*worlds, [Draws.of(N, 3)], 0.5, "e2e").items():
        low, high = found[cause].low or 0.0, found[cause].high or 0.0
        assert low <= value <= high, f"{cause}: {value} of {found}"
        assert found[cause].value == pytest.approx(value, rel=0.25), cause
        assert found[cause].verdict is Verdict.NAMED, str(found)


def test_where_causes_are_not_known_it_is_hits() -> None:
    worlds = CASES["changed"]
    a, b = (without_causes(side) for side in the_same_traffic(worlds, 4))
    found = judged(a, b, worlds, None)
    assert found["hits"].value > SHARE * found.view.change
    assert not {"changed", "cold", "evicted"} & {share.name for share in found.view.shares}


def test_nothing_changed_names_nobody() -> None:
    """Another hour of the same."""
    worlds = AS_WAS, AS_WAS
    a = contention.side(AS_WAS, Draws.of(N, 5))
    b = contention.side(AS_WAS, Draws.of(N, 6), "b", LATER)
    found = judged(a, b, worlds, 0.5)
    assert not found.view.refused
    assert not found.named, str(found)
    assert all(abs(found[name].value) < 1.0 for name in ("prefill speed", "decode speed", "tier speed"))


@pytest.mark.parametrize(("metric", "q"), [("ttft", 0.95), ("e2e", 0.5)])
def test_two_arms_of_one_server_are_replayed_together(metric: str, q: float) -> None:
    """B's hits are taken away: every cause's truth is inside, though A waits for what B computes, too."""
    draws, of_b = Draws.of(2 * N, 7), np.random.default_rng(7).random(2 * N) < 0.5
    a, b = contention.arms(0.8, 0.4, draws, of_b)
    found = judged(a, b, (AS_WAS, AS_WAS), q, metric)
    truth = contention.truth_of_arms(0.8, 0.4, [draws], of_b, q, metric)
    print(f"\n{truth}\n{found}")
    for cause, value in truth.items():
        low, high = found[cause].low, found[cause].high
        assert low is not None
        assert high is not None
        assert low <= value <= high, f"{cause}: {value} of {found}"
    assert found.named == ["changed"], str(found)
    assert not {"prefill speed", "decode speed", "capacity"} & {share.name for share in found.view.shares}


def test_arms_that_do_not_differ_name_nobody() -> None:
    draws, of_b = Draws.of(2 * N, 8), np.random.default_rng(8).random(2 * N) < 0.3
    found = judged(*contention.arms(0.6, 0.6, draws, of_b), (AS_WAS, AS_WAS), 0.5)
    assert not found.view.refused
    assert not found.named, str(found)


def test_half_of_a_server_has_no_twin() -> None:
    """Arms of which one is not asked about are load that a replay would lack."""
    draws, of_b = Draws.of(N, 9), np.arange(N) % 3
    whole = contention.side(AS_WAS, draws)
    arms = [replace(whole.subset(of_b == at), name=name) for at, name in ((0, "a"), (1, "b"))]
    said = replace(contention.told(AS_WAS), requests=N)
    known = ToldSide({"contended": said}, {})
    drawn = resampling(arms[0], arms[1], np.random.default_rng(0))
    found, _, _ = caused(arms[0], arms[1], 0.5, METRICS["e2e"], (known, known), drawn)
    assert isinstance(found, Refused)
    assert "a replay would lack the load of the others" in found.reason


def without_causes(side: Side) -> Side:
    """As a server without chains tells it."""
    tiers = side.tokens[:2]
    tokens = np.vstack([tiers, side.prompt - tiers.sum(axis=0)])
    return replace(side, sources=(*SOURCES[:2], "computed"), tokens=tokens)
