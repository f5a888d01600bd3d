"""Sides of which little is known, or that have little in them: a clear split with notes, or a clear refusal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.compose import composition
from analysis.attribution.linear import linear
from analysis.attribution.model import NOT_TOLD, Refused, Side, Split
from analysis.attribution.shows.split import shows
from tests.analysis.attribution.generators import AS_WAS, plain, resampled, side

SPLITS = [shows, composition, linear]


def split_of(a: Side, b: Side, q: float | None = 0.9, rounds: int = 30) -> Split:
    found = shows(a, b, q, resampled(a, b, rounds, blocks=50))
    assert isinstance(found, Split)
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.replicates).all()
    return found


def share(split: Split, name: str) -> float:
    return float(split.values[split.names.index(name)])


def cdn(n: int, seed: int, misses: float, origin_ms: float, name: str) -> Side:
    """CDN -> edge -> origin, each asked only by what the one before has not; NULL where it was not."""
    rng = np.random.default_rng(seed)
    asked = rng.random((2, n)) < np.array([[0.5], [misses]])
    edge = np.where(asked[0], rng.gamma(4, 5, n), np.nan)
    origin = np.where(asked[0] & asked[1], origin_ms * rng.gamma(9, 1 / 9, n), np.nan)
    return plain({"cdn": rng.gamma(4, 1, n), "edge": edge, "origin": origin}, name)


def test_a_chain_without_tokens_whose_layers_are_passed_or_not() -> None:
    a, b = cdn(8000, 1, 0.2, 100.0, "A"), cdn(8000, 2, 0.2, 160.0, "B")
    split = split_of(a, b, 0.95)
    assert split.names == ("workload", "cdn", "edge", "origin")
    assert share(split, "origin") == pytest.approx(split.change, abs=4.0)
    assert share(split, "workload") == pytest.approx(0.0, abs=1e-3)
    assert abs(split.residual) < 3.0


def test_a_layer_that_more_requests_pass() -> None:
    a, b = cdn(8000, 1, 0.1, 100.0, "A"), cdn(8000, 2, 0.4, 100.0, "B")
    split = split_of(a, b, None)
    assert share(split, "origin") == pytest.approx(0.5 * 0.3 * 100.0, abs=2.0)


@pytest.mark.parametrize("make", SPLITS)
def test_an_empty_side_is_refused(make) -> None:
    a = side(AS_WAS, 100, 1)
    nobody = replace(a.subset(np.arange(0)), name="B")
    found = make(a, nobody, 0.5, resampled(a, nobody, 10))
    assert isinstance(found, Refused)
    assert found.reason == "B has no requests: choose a window or labels that have some"


@pytest.mark.parametrize("make", SPLITS)
def test_sides_that_tell_of_different_things_are_refused(make) -> None:
    a, b = plain({"queue": np.ones(5)}), plain({"decode": np.ones(5)}, "B")
    assert isinstance(make(a, b, 0.5, resampled(a, b, 10)), Refused)


@pytest.mark.parametrize("make", SPLITS)
@pytest.mark.parametrize("rounds", [0, 10])
def test_one_request_each(make, rounds: int) -> None:
    a, b = (
        plain({"queue": np.array([1.0]), "decode": np.array([5.0])}),
        plain({"queue": np.array([2.0]), "decode": np.array([9.0])}, "B"),
    )
    found = make(a, b, 0.5, resampled(a, b, rounds))
    assert isinstance(found, Split)
    assert found.change == 5.0
    assert share(found, "queue") == pytest.approx(1.0)
    assert share(found, "decode") == pytest.approx(4.0)
    assert found.residual == pytest.approx(0.0, abs=1e-6)
    assert found.replicates.shape == (rounds, len(found.names))


@pytest.mark.parametrize("make", SPLITS)
def test_constants(make) -> None:
    a, b = plain({"queue": np.full(50, 3.0)}), plain({"queue": np.full(70, 3.0)}, "B")
    found = make(a, b, 0.9, resampled(a, b, 10))
    assert isinstance(found, Split)
    assert found.values == pytest.approx(0.0, abs=1e-6)
    assert found.change == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("make", SPLITS)
def test_nothing_took_any_time(make) -> None:
    a, b = plain({"queue": np.zeros(20)}), plain({"queue": np.zeros(30)}, "B")
    found = make(a, b, 0.9, resampled(a, b, 10))
    assert isinstance(found, Split)
    assert found.values == pytest.approx(0.0)


def test_no_layers_at_all() -> None:
    a, b = (
        plain({"queue": np.full(500, np.nan)}, totals=np.random.default_rng(s).exponential(m, 500), name=n)
        for s, m, n in ((1, 10.0, "A"), (2, 20.0, "B"))
    )
    split = split_of(a, b)
    assert split.names == ("workload", "unattributed")
    assert share(split, "unattributed") == pytest.approx(split.change, abs=1e-3)


def test_a_signed_rest() -> None:
    rng = np.random.default_rng(0)
    a, b = (
        plain({"queue": rng.exponential(5, 2000), "other": rng.normal(-1 + more, 2, 2000)}, name)
        for name, more in (("A", 0.0), ("B", 10.0))
    )
    split = split_of(a, b, 0.5)
    assert share(split, "other") == pytest.approx(10.0, abs=0.5)


def test_a_layer_that_one_side_does_not_tell_apart() -> None:
    rng = np.random.default_rng(0)
    queue, prefill = rng.exponential(5, (2, 1000)), rng.exponential(20, (2, 1000))
    a = plain({"queue": queue[0], "prefill": prefill[0]})
    b = plain({"queue": np.full(1000, np.nan), "prefill": queue[1] + prefill[1]}, "B")
    split = split_of(a, b)
    assert any("B does not tell queue apart, A does" in note for note in split.notes)
    together = share(split, "queue") + share(split, "prefill")
    assert together + split.residual == pytest.approx(split.change - share(split, "workload"), abs=1e-6)


def test_templates_and_servers_that_only_one_side_has() -> None:
    rng = np.random.default_rng(0)
    template = rng.integers(0, 2, 2000)
    a = plain(
        {"decode": rng.exponential(10 + 40 * template)},
        template=template,
        server=np.zeros(2000, dtype=np.int64),
        servers=("one",),
    )
    b = plain(
        {"decode": rng.exponential(10 + 40 * template)},
        "B",
        template=np.where(template, 9, 0),
        server=np.zeros(2000, dtype=np.int64),
        servers=("one",),
    )
    split = split_of(a, b)
    assert any(
        "of B's 2,000 requests have a template or server that A has not" in note for note in split.notes
    )


def test_servers_are_compared_by_name() -> None:
    rng = np.random.default_rng(0)
    at = rng.integers(0, 2, 4000)
    slow = np.array([10.0, 60.0])
    a = plain({"decode": rng.gamma(9, slow[at] / 9)}, server=at, servers=("fast", "slow"))
    b = plain({"decode": rng.gamma(9, slow[at] / 9)}, "B", server=1 - at, servers=("slow", "fast"))
    split = split_of(a, b)
    assert abs(share(split, "workload")) < 3.0
    assert not split.notes


def test_more_traffic_to_the_slow_server_is_workload() -> None:
    rng = np.random.default_rng(0)
    slow = np.array([10.0, 60.0])
    sides = []
    for name, part in (("A", 0.2), ("B", 0.7)):
        at = (rng.random(6000) < part).astype(np.int64)
        sides.append(plain({"decode": rng.gamma(9, slow[at] / 9)}, name, server=at, servers=("fast", "slow")))
    split = split_of(*sides, None)
    assert share(split, "workload") == pytest.approx(25.0, abs=1.5)
    assert abs(share(split, "decode")) < 1.5
    spread = split.replicates[:, 0].std()
    # 50 ms between the servers, of a share that varies binomially on both sides
    expected = 50 * np.sqrt(0.2 * 0.8 / 6000 + 0.7 * 0.3 / 6000)
    assert spread == pytest.approx(expected, rel=0.4)


def test_dependence_that_appears_is_told_and_left_to_the_residual() -> None:
    rng = np.random.default_rng(0)
    a = plain({"queue": rng.exponential(20, 6000), "decode": rng.exponential(20, 6000)})
    together = np.sort(rng.exponential(20, (2, 6000)), axis=1)[:, rng.permutation(6000)]
    b = plain({"queue": together[0], "decode": together[1]}, "B")
    split = split_of(a, b, 0.99)
    assert any(note.startswith("queue and decode go together more") for note in split.notes)
    assert abs(split.residual) > 0.7 * abs(split.change)
    (of_it,) = [note for note in split.notes if "not explained" in note]
    assert "beyond which 60 of A's 6,000 and 60 of B's 6,000 requests lie: so it is more than chance" in of_it


def test_what_is_left_has_no_note_where_it_is_little_or_nothing_varies() -> None:
    lost = side(AS_WAS, 2000, 1), side(replace(AS_WAS, hits=0.4), 2000, 2, "B")
    still = plain({"decode": np.full(300, 5.0)}), plain({"decode": np.full(300, 5.0)}, "B")
    for a, b in (lost, still):
        for q in (None, 0.9):
            assert not any("not explained" in note for note in split_of(a, b, q).notes)


def test_tokens_that_some_requests_do_not_tell() -> None:
    a, b = side(AS_WAS, 1000, 1), side(replace(AS_WAS, hits=0.4), 1000, 2, "B")
    tokens, prompt = b.tokens.copy(), b.prompt.copy()
    tokens[:, ::3], prompt[::5] = np.nan, np.nan
    b = replace(b, tokens=tokens, prompt=prompt)
    split = split_of(a, b)
    assert any(
        "33% of B's 1,000 requests do not tell where their prompt's tokens came from" in n or "34%" in n
        for n in split.notes
    )
    untold = replace(b, tokens=np.full_like(b.tokens, np.nan), template=np.full(b.n, NOT_TOLD))
    assert any("100% of B's" in note for note in split_of(a, untold).notes)
