"""Shapley against its definition, and the screened game against all subsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.attribution.shapley import MOST_PLAYERS, exact, screened, shapley

games = st.integers(1, 5).flatmap(
    lambda m: arrays(np.float64, 1 << m, elements=st.floats(-1e3, 1e3, width=32))
)


def by_orders(values: np.ndarray) -> np.ndarray:
    """The definition: what each player adds, averaged over all orders."""
    m = len(values).bit_length() - 1
    shares, orders = np.zeros(m), list(permutations(range(m)))
    for order in orders:
        coalition = 0
        for player in order:
            shares[player] += values[coalition | 1 << player] - values[coalition]
            coalition |= 1 << player
    return shares / len(orders)


@given(games)
def test_it_is_the_mean_over_all_orders(values: np.ndarray) -> None:
    assert shapley(values) == pytest.approx(by_orders(values), abs=1e-6)
    assert shapley(values).sum() == pytest.approx(values[-1] - values[0], abs=1e-6)


def test_a_known_game() -> None:
    # Two left gloves, one right one: the right glove is worth 2/3 (the usual textbook game).
    values = np.array([float(bool(s & 4) and bool(s & 3)) for s in range(8)])
    assert shapley(values) == pytest.approx([1 / 6, 1 / 6, 2 / 3])


def test_replicates_are_games_of_their_own() -> None:
    values = np.random.default_rng(0).normal(size=(7, 16))
    assert shapley(values) == pytest.approx(np.stack([shapley(row) for row in values]))


def test_a_game_needs_all_its_coalitions() -> None:
    with pytest.raises(ValueError, match=r"2\*\*m coalitions, not 6"):
        shapley(np.zeros(6))
    with pytest.raises(ValueError, match="at most 12"):
        exact(lambda masks: np.zeros((len(masks), 1)), MOST_PLAYERS + 1)


def noisy(m: int, loud: dict[int, float], together: float, rounds: int = 100) -> tuple[object, list[int]]:
    """A game in which a few players matter and two of them more so together; the others add noise around nothing."""
    rng = np.random.default_rng(3)
    effects = rng.normal(0, 0.1, size=(m, 1 + rounds))
    for player, effect in loud.items():
        effects[player] += effect
    played: list[int] = []

    def play(masks: Sequence[int]) -> np.ndarray:
        played.extend(masks)
        both = sum(1 << player for player in list(loud)[:2])
        inside = np.array([[mask >> i & 1 for i in range(m)] for mask in masks], dtype=float)
        return inside @ effects + together * np.array([[float(mask & both == both)] for mask in masks])

    return play, played


def test_screening_agrees_with_all_subsets_and_plays_far_fewer() -> None:
    play, played = noisy(11, {2: 20.0, 5: 10.0, 9: -3.0}, together=8.0)
    all_of_them = exact(play, 11)
    assert len(played) == 2048
    played.clear()
    shares, kept = screened(play, 11)
    assert kept == (2, 5, 9)
    assert len(played) <= 24 + 16
    assert shares == pytest.approx(all_of_them, abs=1e-9)
    assert shares.sum(axis=1) == pytest.approx(play([2047])[0] - play([0])[0])


def test_screening_when_nothing_changed() -> None:
    play, _ = noisy(6, {}, together=0.0)
    shares, kept = screened(play, 6)
    assert len(kept) <= 1
    assert shares == pytest.approx(exact(play, 6), abs=1e-9)
