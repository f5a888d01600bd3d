"""What is told of loads: the times as they were, and whether a line is like them."""

from __future__ import annotations

import pytest

from collector.canary.measures.loads import FIXED_NAME, MS_NAME, Loads


def loads(ms_of: dict[float, float]) -> Loads:
    """Four rounds, each a fifth of a millisecond slower than the one before."""
    return Loads({n: [(tokens, ms + n / 5) for tokens, ms in ms_of.items()] for n in range(4)})


def test_a_line_is_told_with_what_was_measured() -> None:
    per_token, fixed = loads({500: 8.0, 1000: 13.0, 2000: 23.0}).findings("host", "")
    assert (per_token.name, fixed.name) == (MS_NAME, FIXED_NAME)
    assert per_token.value == pytest.approx(0.01)
    assert fixed.value == pytest.approx(3.3)
    assert fixed.detail == (
        "Beside that a load from the host tier takes 3.3 ms. "
        "In all it took 8.3 ms for 500 tokens, 13.3 ms for 1,000 tokens, 23.3 ms for 2,000 tokens."
    )


def test_what_is_no_line_is_said() -> None:
    """Loads of the engine's host tier: the longest pushes others on to the disk."""
    _, fixed = loads({752: 4.0, 1488: 7.4, 2992: 26.0}).findings("host", "")
    assert fixed.detail.endswith(
        "26.3 ms for 2,992 tokens: no straight line, as where room has to be made for it."
    )


def test_one_length_is_no_line() -> None:
    (untold,) = loads({500: 8.0}).findings("lower", "")
    assert untold.value is None
