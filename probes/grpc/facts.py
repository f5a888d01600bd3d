"""cache.key and cache.hit of a call: from a message field, trailing metadata, or what the user's function says."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

MAX_KEY = 256
"""Characters of cache.key that are kept."""

KeyOf = str | Callable[[Any], Any]
"""Dotted path of a field of the (first) request message, or a function of that message."""
HitOf = str | Callable[[dict[str, Any], Any], bool | None]
"""Key of trailing metadata, or a function of the trailing metadata and the response: of a stream its last message; None
on failure, for streams on clients, and on async clients."""

_YES = {"1", "true", "hit", "yes"}
_NO = {"0", "false", "miss", "no"}


class Facts:
    """Reads both. Nothing raises: what fails is counted through `lose` under a reason and is None."""

    def __init__(self, cache_key: KeyOf | None, cache_hit: HitOf | None, lose: Callable[[str], None]) -> None:
        if cache_key == "" or cache_hit == "":
            raise ValueError("cache_key and cache_hit are a name or a function; None switches them off")
        self._key: Callable[[Any], Any] | None = (
            operator.attrgetter(cache_key) if isinstance(cache_key, str) else cache_key
        )
        self._key_reason = "cache_key_field" if isinstance(cache_key, str) else "cache_key_callback"
        self._hit = cache_hit
        self._lose = lose
        self.wants_request = cache_key is not None
        self.wants_response = callable(cache_hit)

    def key(self, request: Any) -> str | None:
        """None where the message does not say: a field that is unset, an empty text."""
        if self._key is None:
            return None
        try:
            value = self._key(request)
            if value is None or value == "" or value == b"":
                return None
            if isinstance(value, bytes):
                value = value[:MAX_KEY].decode("utf-8", "backslashreplace")
            return str(value)[:MAX_KEY]
        except Exception:  # the user's function, on the user's message: the call itself must not notice
            self._lose(self._key_reason)
            return None

    def hit(self, trailing: Iterable[tuple[str, Any]] | None, response: Any) -> bool | None:
        """None where neither metadata nor the function says."""
        if self._hit is None:
            return None
        if isinstance(self._hit, str):
            return self._said(trailing) if trailing else None
        try:
            said = self._hit(dict(trailing or ()), response)
            return None if said is None else bool(said)
        except Exception:  # as above
            self._lose("cache_hit_callback")
            return None

    def _said(self, trailing: Iterable[tuple[str, Any]]) -> bool | None:
        for key, value in trailing:
            if key != self._hit:
                continue
            word = (
                (value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)).strip().lower()
            )
            if word in _YES:
                return True
            if word not in _NO:
                self._lose("cache_hit_value")
                return None
            return False
        return None
