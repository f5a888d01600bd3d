"""JSON lines in which what many have is kept once: a system prompt, a tool's definition, the messages of a history.

Each item of the lists that requests repeat is looked up by its own bytes before it is decoded; requests with the
same messages then share the objects, which nobody may change.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

LISTS = frozenset(
    ("messages", "tools", "functions", "input", "contents", "conversations", "documents", "system")
)
BODIES = frozenset(("body", "request", "request_body"))
_SHORTEST = 64  # bytes: what is shorter costs more to look up than it saves
_MOST_BYTES = 64 << 20
_MOST_IDS = 1 << 20  # different numbers that are kept once: more than any vocabulary has
_NEW = object()
_LONE_SURROGATE = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u])|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)

_value = msgspec.json.Decoder().decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class SharedDecoder:
    """Decodes lines.

    most_bytes: of JSON that is remembered. mended: how many lines had broken UTF-8 or half a surrogate pair, which is
    U+FFFD now.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.mended = 0
        self._most, self._held = most_bytes // 2, 0
        self._young: dict[bytes, Any] = {}  # what was asked for since `old` was young
        self._old: dict[bytes, Any] = {}
        self._ids: dict[int, int] = {}

    def decode(self, line: bytes) -> Any:
        """The line's value. Raises msgspec.DecodeError and RecursionError."""
        try:
            return self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            mended = line.decode(errors="replace").encode()
            mended = _LONE_SURROGATE.sub(lambda found: found[1] or rb"\ufffd", mended)
            if mended == line:
                raise
        value = self._decode(mended)
        self.mended += 1
        return value

    def _decode(self, line: bytes) -> Any:
        if not line.startswith(b"{"):
            return _value(line)
        return self._object(line)

    def _object(self, told: Any) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for name, raw in _fields(told).items():
            start = bytes(memoryview(raw)[:1])
            if name in LISTS and start == b"[":
                whole[name] = [self._shared(item) for item in _items(raw)]
            elif name in BODIES and start == b"{":
                whole[name] = self._object(raw)
            elif name in LISTS:
                whole[name] = self._shared(raw)
            else:
                whole[name] = self._shared_ids(_value(raw)) if start == b"[" else _value(raw)
        return whole

    def _shared_ids(self, value: list[Any]) -> list[Any]:
        """A list of numbers, such as ids of tokens, of which each takes four times the place of a reference to it."""
        if len(self._ids) > _MOST_IDS or set(map(type, value)) != {int}:
            return value
        return list(map(self._ids.setdefault, value, value))

    def _shared(self, raw: msgspec.Raw) -> Any:
        """The value of some bytes; the one that was given before for the same bytes, if that is not long ago."""
        key = bytes(raw)
        if len(key) < _SHORTEST:
            return _value(key)
        if (found := self._young.get(key, _NEW)) is not _NEW:
            return found
        value = self._old.get(key, _NEW)
        if value is _NEW:
            value = _value(key)
        self._held += len(key)
        if self._held > self._most:
            self._old, self._young, self._held = self._young, {}, len(key)
        self._young[key] = value
        return value
