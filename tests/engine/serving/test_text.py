"""The law of stop strings: the text ends before the one that is complete first, however it is cut into tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving.text import StopWatch, TextStream


class Letters:
    """A detokenizer whose tokens are numbers of characters of a text; it keeps the last one back, as real ones may."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def push(self, ids: Sequence[int]) -> str:
        start, self._at = self._at, min(self._at + sum(ids), len(self._text) - 1)
        return self._text[start : self._at]

    def finish(self) -> str:
        return self._text[self._at :]


def expected(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Character by character, without streaming."""
    for end in range(1, len(text) + 1):
        ended = [string for string in stop if text[:end].endswith(string)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


TEXTS = st.text("ab ", min_size=1, max_size=30)
STOPS = st.lists(st.text("ab ", min_size=1, max_size=4), max_size=4)


@given(TEXTS, STOPS, st.lists(st.integers(1, 5), max_size=30))
def test_the_text_ends_before_the_first_stop_string(text: str, stop: list[str], tokens: list[int]) -> None:
    stream = TextStream(Letters(text), stop)
    deltas = [stream.push((token,)) for token in tokens]
    said = "".join(deltas) + stream.finish()
    assert (said, stream.stopped) == expected(text, stop)


@given(TEXTS, STOPS, st.lists(st.integers(1, 5), max_size=30))
def test_nothing_said_is_taken_back_and_nothing_known_is_held(
    text: str, stop: list[str], tokens: list[int]
) -> None:
    """After each token all is out but what may be the beginning of a stop string."""
    stream, said, seen = TextStream(Letters(text), stop), "", 0
    for token in tokens:
        said += stream.push((token,))
        seen = min(seen + token, len(text) - 1)
        if stream.stopped:
            break
        held = text[len(said) : seen]
        assert text.startswith(said)
        assert not held or any(string.startswith(held) and string != held for string in stop)


@given(TEXTS, STOPS.filter(bool), st.lists(st.integers(1, 5), max_size=30))
def test_the_core_is_told_at_the_token_at_which_the_text_ends(
    text: str, stop: list[str], tokens: list[int]
) -> None:
    watch, stream = StopWatch(Letters(text), stop), TextStream(Letters(text), stop)
    for token in tokens:
        stream.push((token,))
        assert watch(token) == stream.stopped


@pytest.mark.parametrize(
    ("text", "stop", "before"),
    [
        ("one\n\ntwo", ["\n\n"], "one"),
        ("abcd", ["abcd", "bc"], "a"),  # "bc" is complete first
        ("xabc", ["c", "abc"], "x"),  # of two at the same place, the longer
        ("aab", ["ab"], "a"),
        ("no end", ["never"], "no end"),
    ],
)
def test_examples(text: str, stop: list[str], before: str) -> None:
    stream = TextStream(Letters(text), stop)
    assert "".join(stream.push((1,)) for _ in text) + stream.finish() == before
