"""Answers are worked out once for all who wait, kept for a while, and nobody is held up by them."""

from __future__ import annotations

import threading

import pytest

from cachemodel.errors import UserError
from dashboard.answers import AT_ONCE, Answers


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Left(Exception):
    """A page that is let go of."""


def patient(seconds: float) -> None:
    threading.Event().wait(0.001)


def leave(seconds: float) -> None:
    raise Left


def test_an_answer_is_kept_for_its_time_and_no_longer() -> None:
    clock, asked = Clock(), []
    answers = Answers(60, 8, clock)

    def get(key: str) -> int:
        return answers.get(key, lambda: asked.append(key) or len(asked), patient)  # type: ignore[func-returns-value]

    assert [get("a"), get("b"), get("a")] == [1, 2, 1]
    clock.seconds += 59
    assert get("a") == 1
    clock.seconds += 2
    assert get("a") == 3
    answers.forget()
    assert get("a") == 4


def test_who_asks_for_the_same_waits_for_the_same() -> None:
    answers, go, begun = Answers(60, 8), threading.Event(), []

    def work() -> str:
        begun.append(1)
        assert go.wait(20)
        return "answer"

    with pytest.raises(Left):  # a filter was changed
        answers.get("a", work, leave)

    def meanwhile(seconds: float) -> None:
        go.set()
        patient(seconds)

    assert answers.get("a", work, meanwhile) == "answer"
    assert begun == [1]


def test_what_nobody_waits_for_any_longer_is_not_begun() -> None:
    answers, go, begun = Answers(60, 8), threading.Event(), []
    full = threading.Semaphore(0)

    def long() -> None:
        full.release()
        assert go.wait(20)

    for key in range(AT_ONCE):
        with pytest.raises(Left):
            answers.get(key, long, leave_when(full))
    with pytest.raises(Left):
        answers.get("late", lambda: begun.append("late"), leave)
    go.set()
    answers.get("last", lambda: begun.append("last"), patient)
    assert begun == ["last"]


def leave_when(begun: threading.Semaphore):  # type: ignore[no-untyped-def]
    def meanwhile(seconds: float) -> None:
        assert begun.acquire(timeout=20)
        raise Left

    return meanwhile


def test_an_error_is_told_and_not_kept() -> None:
    answers = Answers(60, 8)

    def fail() -> str:
        raise UserError("no store")

    for _ in range(2):
        with pytest.raises(UserError, match="no store"):
            answers.get("a", fail, patient)
    assert answers.get("a", lambda: "there again", patient) == "there again"


def test_of_many_the_oldest_go() -> None:
    answers, asked = Answers(60, 2), []
    for key in (1, 2, 3, 3, 2, 1):
        answers.get(key, lambda key=key: asked.append(key), patient)  # type: ignore[misc]
    assert asked == [1, 2, 3, 1]
