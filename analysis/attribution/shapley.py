"""Shapley values of a game whose coalitions can be played: all of them, or those that matter.

The value of a player is what it adds, averaged over all orders in which the players can come (Shapley 1953). The values
add up to what the grand coalition gains over the empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial

import numpy as np

from analysis.quantiles import Floats


def shapley(values: Floats) -> Floats:
    """The m Shapley values (..., m) of coalition values (..., 2**m), in their unit.

    Bit i of a coalition's index says whether player i is in it. Raises ValueError where the last axis is no power of 2.
    """
    coalitions = values.shape[-1]
    m = coalitions.bit_length() - 1
    if coalitions != 1 << m:
        raise ValueError(f"a game of m players has 2**m coalitions, not {coalitions}")
    return np.asarray(values @ _weights(m))


def _weights(m: int) -> Floats:
    """(2**m, m): what each coalition's value counts for in each player's: |S|! (m - |S| - 1)! / m! for what the player
    adds to S."""
    index = np.arange(1 << m)
    inside = (index[:, None] >> np.arange(m)) & 1
    size = inside.sum(axis=1)[:, None]
    orders = np.array([factorial(s) * factorial(m - 1 - s) / factorial(m) for s in range(m)] + [0.0])
    return np.asarray(np.where(inside == 1, orders[size - 1], -orders[size]))


Play = Callable[[Sequence[int]], Floats]
"""Values (k, 1 + r) of k coalitions: the estimate of each, and its replicates."""

MOST_PLAYERS = 12
KEPT = 7
_SIGMAS = 3.0
_NEGLIGIBLE = 0.01  # of the change


def exact(play: Play, m: int) -> Floats:
    """The shares of m players and their replicates, (1 + r, m), from all coalitions. Raises ValueError past
    MOST_PLAYERS."""
    if m > MOST_PLAYERS:
        raise ValueError(f"{m} players have {2**m} coalitions; at most {MOST_PLAYERS} can all be played")
    return shapley(play(range(1 << m)).T)


def screened(play: Play, m: int) -> tuple[Floats, tuple[int, ...]]:
    """The same with few coalitions, and which players took part in all of them.

    Each player is swapped alone, and alone left out. One for which neither is more than noise is left out of the game
    over subsets: its share is the mean of the two, which Shapley's lies between unless it acts with several others at
    once. All left out move as one further player, so that the shares still add up.
    """
    full = (1 << m) - 1
    values = play([0, full, *(1 << i for i in range(m)), *(full ^ 1 << i for i in range(m))])
    first, last = values[2 : 2 + m] - values[0], values[1] - values[2 + m :]
    kept = _kept(first, last, values[1, 0] - values[0, 0])
    rest = [i for i in range(m) if i not in kept]
    players = [1 << i for i in kept] + ([sum(1 << i for i in rest)] if rest else [])
    masks = [sum(p for j, p in enumerate(players) if s >> j & 1) for s in range(1 << len(players))]
    shares = shapley(play(masks).T)
    result = np.empty((values.shape[1], m))
    result[:, kept] = shares[:, : len(kept)]
    if rest:
        alone = ((first + last) / 2)[rest].T
        over = shares[:, -1:] - alone.sum(axis=1, keepdims=True)
        result[:, rest] = alone + over / len(rest)
    return result, tuple(kept)


def _kept(first: Floats, last: Floats, change: float) -> list[int]:
    """Players (m, 1 + r) whose effect is more than noise, at most KEPT of them, the largest."""
    size = np.maximum(np.abs(first[:, 0]), np.abs(last[:, 0]))
    noise = np.zeros(len(size))
    if first.shape[1] > 2:
        noise = np.maximum(first[:, 1:].std(axis=1), last[:, 1:].std(axis=1))
    loud = np.flatnonzero(size > np.maximum(_SIGMAS * noise, _NEGLIGIBLE * abs(change)))
    return sorted(loud[np.argsort(-size[loud], kind="stable")][:KEPT].tolist())
