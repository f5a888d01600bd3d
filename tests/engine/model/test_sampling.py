"""The choice of a token is a function of its logits, its request's settings and its place; nothing else."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.model.sampling import Sampler
from engine.request import Sampling

LOGITS = torch.tensor([1.0, 3.0, 2.0, 3.0, -1.0])
VOCAB = len(LOGITS)


def _draws(sampling: Sampling, number: int) -> Counter[int]:
    """As many draws as a request of that length makes."""
    histories = [range(length) for length in range(number)]
    return Counter(Sampler().choose(LOGITS.expand(number, -1), [sampling] * number, histories))


def test_greedy_takes_the_first_of_the_highest() -> None:
    assert Sampler().choose(LOGITS[None], [Sampling()]) == [1]


@pytest.mark.parametrize("temperature", [1e-6, 1e-40])
def test_a_temperature_too_small_to_divide_by_is_greedy(temperature: float) -> None:
    assert Sampler().choose(LOGITS[None], [Sampling(temperature=temperature, seed=1)]) == [1]


def test_a_very_small_temperature_still_has_a_tie() -> None:
    assert set(_draws(Sampling(temperature=2e-5, seed=1), 200)) == {1, 3}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    number = 20_000
    counts = _draws(Sampling(temperature=temperature, seed=7), number)
    for token, wanted in enumerate((LOGITS / temperature).softmax(-1).tolist()):
        assert abs(counts[token] / number - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / number)


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 3}, {1, 2, 3}),
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
        # probabilities 0.398, 0.398, 0.146, 0.054, 0.007 of tokens 1, 3, 2, 0, 4
        ({"top_p": 0.3}, {1}),
        ({"top_p": 0.5}, {1, 3}),
        ({"top_p": 0.9}, {1, 2, 3}),
        ({"top_p": 1e-9}, {1}),
        ({"top_p": 0.0}, {1}),
        # of what top_k left, in which 1 has half
        ({"top_k": 2, "top_p": 0.45}, {1}),
    ],
)
def test_top_k_and_top_p_keep_the_likeliest(settings: dict[str, float], allowed: set[int]) -> None:
    assert set(_draws(Sampling(temperature=1.0, seed=3, **settings), 3000)) == allowed  # type: ignore[arg-type]


sampling_settings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1.0),
    seed=st.integers(-(2**63), 2**64),
)


@given(samplings=st.lists(sampling_settings, min_size=1, max_size=6), seed=st.integers(0, 999))
def test_a_request_s_token_does_not_depend_on_its_batch(samplings: list[Sampling], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(samplings), 50, generator=generator) * 2
    histories = [[5] * (row * seed % 7) for row in range(len(samplings))]
    together = Sampler().choose(logits, samplings, histories)
    alone = [Sampler().choose(logits[[r]], [samplings[r]], [histories[r]])[0] for r in range(len(samplings))]
    backwards = Sampler().choose(logits.flip(0), samplings[::-1], histories[::-1])
    assert together == alone == backwards[::-1]


def test_the_same_seed_says_the_same_and_another_something_else() -> None:
    def said(seed: int | None) -> list[int]:
        sampling = Sampling(temperature=1.0, seed=seed)
        flat = torch.zeros(30, 1000)
        return Sampler().choose(flat, [sampling] * 30, [[0] * length for length in range(30)])

    assert said(1) == said(1)
    assert len(set(said(1))) > 20
    assert said(1) != said(2)
    assert said(None) != said(None)
