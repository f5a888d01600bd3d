"""A value at the end of a line and what varies in the next one are two slots, with a cause of their own each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import at_top, clock, log

PERSONAS = (
    "You help the engineers of a tram company with timetables.",
    "Ihr beantwortet Fragen der Gaeste eines Hotels am See!",
    "The study companion of anatomy students knows every bone.",
    "Contracts are read here, clause by clause, without opinions.",
)


def with_persona(value: Callable[[planted.Log], str]) -> Callable[[planted.Log], str]:
    """A line that ends in a value, and one of a few that have no word in common."""
    return lambda made: f"{value(made)}\n{PERSONAS[made.last.index * 7 % 4]}"


@pytest.mark.parametrize(
    ("value", "cause"),
    [(clock("Current time: %Y-%m-%dT%H:%M:%S"), Cause.CLOCK), (planted.request_id, Cause.NONCE)],
    ids=["clock", "id"],
)
def test_a_value_before_a_line_that_varies_is_named(
    value: Callable[[planted.Log], str], cause: Cause
) -> None:
    first, second = sorted(learn(log([at_top(with_persona(value))])), key=lambda slot: slot.offset)
    assert (first.cause, second.cause) == (cause, Cause.VARIANT)
    assert first.after == second.before == ""
    assert {one.value for one in second.seen} == set(PERSONAS) or all(
        any(one.value in persona for persona in PERSONAS) for one in second.seen
    )
    assert first.pattern


def test_text_of_several_lines_that_was_looked_up_stays_one() -> None:
    def looked_up(made: planted.Log) -> str:
        words = ["harbour", "mill", "tram", "ferry", "lock", "bridge", "crane", "quay"]
        return "\n".join(
            f"The {made.random.choice(words)} {made.random.choice(words)} of {made.random.choice(words)} is old."
            for _ in range(3)
        )

    slots = learn(log([at_top(looked_up)]))
    assert {slot.cause for slot in slots} <= {Cause.MEMORY, Cause.UNKNOWN}
