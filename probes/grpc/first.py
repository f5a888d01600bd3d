"""The first message of a stream of requests, seen as it passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Told = Callable[[Any], None]


class _Stream:
    """What is not iteration goes to the stream itself."""

    def __init__(self, stream: Any, told: Told) -> None:
        self._stream = stream
        self._told: Told | None = told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _seen(self, message: Any) -> Any:
        if self._told is not None:
            self._told(message)
            self._told = None
        return message


class _Sync(_Stream):
    def __iter__(self) -> _Sync:
        return self

    def __next__(self) -> Any:
        return self._seen(next(self._stream))


class _Async(_Stream):
    def __aiter__(self) -> _Async:
        return self

    async def __anext__(self) -> Any:
        return self._seen(await self._stream.__anext__())


def first_of(stream: Any, told: Told) -> Any:
    """The same stream, which calls `told` with its first message. None (a caller that writes by hand) stays None."""
    if stream is None:
        return None
    if hasattr(stream, "__aiter__"):
        return _Async(stream.__aiter__(), told)
    return _Sync(iter(stream), told)
