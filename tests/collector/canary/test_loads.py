"""What is told of loads: the times as they were, and whether a line is like them."""

from __future__ import annotations

import pytest

from collector.canary.measures.loads import FIXED_NAME, MS_NAME, WHOLE_NAME, Loads


def loads(ms_of: dict[float, float]) -> Loads:
    """Four rounds, each a fifth of a millisecond slower than the one before."""
    return Loads({n: [(tokens, ms + n / 5) for tokens, ms in ms_of.items()] for n in range(4)})


def test_what_was_measured_and_the_line_through_it() -> None:
    whole, per_token, fixed = loads({500: 8.0, 1000: 13.0, 2000: 23.0}).findings("host", "")
    assert (whole.name, per_token.name, fixed.name) == (WHOLE_NAME, MS_NAME, FIXED_NAME)
    assert (whole.value, whole.samples) == (pytest.approx(23.3), 4)
    assert whole.detail == (
        "Loads from the host tier take 8.3 ms for 500 tokens, 13.3 ms for 1,000 tokens, 23.3 ms for 2,000 tokens."
    )
    assert per_token.value == pytest.approx(0.01)
    assert per_token.detail == "A straight line through 12 loads takes 0.01 ms a token."
    assert fixed.value == pytest.approx(3.3)


def test_what_is_no_line_is_said() -> None:
    """Loads of the engine's host tier: the longest pushes others on to the disk."""
    whole, per_token, _ = loads({752: 4.0, 1488: 7.4, 2992: 26.0}).findings("host", "")
    assert whole.value == pytest.approx(26.3)
    assert "They are not on it" in per_token.detail


def test_one_length_has_a_time_and_no_line() -> None:
    whole, untold = loads({500: 8.0}).findings("lower", "")
    assert whole.value == pytest.approx(8.3)
    assert (untold.name, untold.value) == (MS_NAME, None)
