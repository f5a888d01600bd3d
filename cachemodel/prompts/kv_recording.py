"""Lines of a recording of KV events: the frames of one ZeroMQ message each, base64, under `frames_b64`. Pure.

A message is [topic, sequence number, payload] as published, with an empty frame before it as a publisher's replay
socket answers; the end of such an answer has the number -1 and no payload.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from cachemodel.kv_events import DecodeError, decode_batch
from cachemodel.prompts.kv import Chains

FIELD = "frames_b64"
NO_FRAMES, NO_EVENTS = "frames of no KV-event message", "message tells no KV events"
TWICE = "message told before"
_SEQ_BYTES = 8
_END = b"\xff" * _SEQ_BYTES


def is_recorded(value: object) -> bool:
    """Whether a line's value is a message of a recording."""
    return isinstance(value, dict) and isinstance(value.get(FIELD), list)


class Recording:
    """The messages of one recording, in its order. chains: what they tell. messages: that were read; missing: that were
    not in it, by their numbers; late: that came after a later one."""

    def __init__(self, server: str = "") -> None:
        self.chains = Chains(server)
        self.messages = self.missing = self.late = 0
        self._seen: dict[bytes, dict[int, int]] = {}
        self._spans: dict[bytes, _Span] = {}

    def read(self, record: Mapping[str, Any], place: str) -> str:
        """Take a line in; a fixed phrase that says why nothing came of it, empty where it did."""
        try:
            frames = [b64decode(frame, validate=True) for frame in record[FIELD]]
        except (binascii.Error, ValueError, TypeError):
            return NO_FRAMES
        if len(frames) not in (3, 4) or len(frames[-2]) != _SEQ_BYTES or (len(frames) == 4 and frames[0]):
            return NO_FRAMES
        topic, number, payload = frames[-3:]
        if number == _END and not payload:
            return ""
        try:
            batch = decode_batch(payload)
        except DecodeError:
            return NO_EVENTS
        if self._is_known(topic, int.from_bytes(number, "big"), payload):
            return TWICE
        self.messages += 1
        self.chains.add(batch, place, topic)
        return ""

    def _is_known(self, topic: bytes, number: int, payload: bytes) -> bool:
        """Whether the same message was there under this number. Another one under it is a publisher that began anew."""
        seen, digest = self._seen.setdefault(topic, {}), hash(payload)
        if seen.get(number) == digest:
            return True
        span = self._spans.get(topic)
        if span is None or number in span.numbers:  # the first, or a publisher that began anew
            span = self._spans[topic] = _Span(number)
        missing, late = span.take(number)
        self.missing += missing
        self.late += late
        seen[number] = digest
        return False


class _Span:
    """The numbers that a publisher gave its messages, from the first one recorded on; `last` is the latest."""

    def __init__(self, first: int) -> None:
        self.first = self.last = first
        self.numbers: set[int] = set()

    def take(self, number: int) -> tuple[int, int]:
        """How many more are missing with this one, and whether it came late, and was taken for missing until then. Who
        begins anew begins at 0, and nothing is known to be missing before the first."""
        between = range(self.last + 1, number)
        missing = len(between)
        if missing:
            missing -= (
                sum(one in between for one in self.numbers)
                if missing > len(self.numbers)
                else sum(one in self.numbers for one in between)
            )
        found = int(self.first < number < self.last)
        late = int(0 < number < self.last)
        self.numbers.add(number)
        if number < self.first:
            self.first = self.last = number
        self.last = max(self.last, number)
        return missing - found, late
