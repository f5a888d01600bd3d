"""Generated tokens as text, a delta at a time, with an end at stop strings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """Text of tokens that come one after the other; it never splits a character."""

    def push(self, ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class TextStream:
    """Deltas that add up to the text before the stop string that is complete first, or to the whole text.

    What could be the beginning of a stop string is held back until it is known. Of two that are complete at the same
    character, the longer counts. How the tokens are cut into pushes makes no difference.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._stop = stop
        self._held = ""
        self.stopped = False

    def push(self, ids: Sequence[int]) -> str:
        """What these tokens add to the text; empty from the stop string on."""
        return "" if self.stopped else self._next(self._detokenizer.push(ids))

    def finish(self) -> str:
        """The rest, after the last token."""
        if self.stopped:
            return ""
        delta = self._next(self._detokenizer.finish())
        rest, self._held = self._held, ""
        return delta + rest

    def _next(self, delta: str) -> str:
        if not self._stop:
            return delta
        text = self._held + delta
        found = [(start + len(stop), start) for stop in self._stop if (start := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        decided = len(text) - self._undecided(text)
        self._held = text[decided:]
        return text[:decided]

    def _undecided(self, text: str) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stop)) - 1)
        return next((n for n in range(longest, 0, -1) if any(s.startswith(text[-n:]) for s in self._stop)), 0)


class StopWatch:
    """Whether a stop string is complete, asked a token at a time on the core's thread (`Request.stops`)."""

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str]) -> None:
        self._stream = TextStream(detokenizer, stop)

    def __call__(self, token_id: int) -> bool:
        self._stream.push((token_id,))
        return self._stream.stopped
