"""Prompt and response text in spans, logs and metrics: found fast, taken out unless somebody asked to keep it.

hitmap keeps no text of prompts and responses. Instrumented applications send it all the same, under the names in
`text_names`: as attributes of whatever has attributes, in maps inside those, and in GenAI events. It goes as a
whole and is counted; where its holder has a `dropped_attributes_count`, there too. Most requests have none: numpy looks
for the names in the bytes, wherever they stand, and only a request in which something like one is found is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.otlp.text_names import GEN_AI, PLAIN_IN_EVENTS, PLAIN_KEYS, TEXT_KEYS

_REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_MOST_DROPPED = 2**32 - 1  # dropped_attributes_count is a uint32
_FEW = 100  # each removal moves all that follow; from here on, what stays is copied
_LONGEST_REMEMBERED = 100  # characters of a key

# -- the search in the bytes -------------------------------------------------------------------------------------------

# Keys stand in a message in one piece, however their tags and lengths are written. A dot is rare in all the rest, so
# around every dot seven bytes are looked at: two before it, four behind it.
_DOT = ord(".")
_BEFORE, _BEHIND = 2, 4
_SEVEN_BYTES = np.uint64((1 << 56) - 1)
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(64 - 14)
_MARGIN = 8  # bytes that are looked at before and behind a dot, at the most
_PIECE = 1 << 18  # bytes searched at a time: what numpy makes of them takes some fifty times as much


def _word(seven: bytes) -> int:
    return int.from_bytes(seven, "little")


def _around_last_dot(name: str) -> bytes:
    """The bytes of a name that the search goes by. Raises ValueError if no dot has four characters behind it."""
    dot = name.rindex(".", 0, len(name) - _BEHIND)
    return name[dot - _BEFORE : dot + 1 + _BEHIND].encode()


def _slot(words: np.ndarray) -> np.ndarray:
    """A number below 2 ** 14 for each word."""
    return (words * _MIX) >> _SHIFT


_WORDS = frozenset(_word(_around_last_dot(name)) for name in TEXT_KEYS)
_MAY_BE_WORD = np.zeros(1 << 14, bool)
_MAY_BE_WORD[_slot(np.array(list(_WORDS), np.uint64))] = True
_GEN_AI_WORD = np.uint64(_word(GEN_AI.encode()))
# The name of a span event has the tag 0x12, or 0x00 at the end of that if written longer, or two bytes of length.
_BEFORE_EVENT_NAME = np.array([byte in (0x12, 0) or byte >= 0x80 for byte in range(256)])
_TAG_TO_DOT = 2 + len(GEN_AI) - 1


def may_hold_text(payload: bytes, spans: bool = False) -> bool:
    """Whether a serialised OTLP message may have one of the names in it or, if of `spans`, a GenAI event.

    False means that it has none, in whatever form it was written. Other bytes may make it true as well.
    """
    padded = np.frombuffer(bytes(_MARGIN) + payload + bytes(_MARGIN), np.uint8)
    return any(
        _may_hold_text(padded[start : start + _PIECE + 2 * _MARGIN], spans)
        for start in range(0, len(payload), _PIECE)
    )


def _may_hold_text(piece: np.ndarray, spans: bool) -> bool:
    """The same for the dots in a piece, but for those in the margins at both its ends."""
    words = np.ndarray((len(piece) - 7,), "<u8", piece, 0, (1,))  # one at every byte
    dots = np.flatnonzero(piece[_MARGIN:-_MARGIN] == _DOT)
    around = words[dots + (_MARGIN - _BEFORE)] & _SEVEN_BYTES
    if not _WORDS.isdisjoint(around[_MAY_BE_WORD[_slot(around)]].tolist()):
        return True
    if not spans:
        return False
    tags = dots + (_MARGIN - _TAG_TO_DOT)
    names = tags[_BEFORE_EVENT_NAME.take(piece.take(tags))] + 2
    return bool((words[names] & _SEVEN_BYTES == _GEN_AI_WORD).any())


# -- what is taken out -------------------------------------------------------------------------------------------------


def without_text(kind: str, payload: bytes) -> tuple[bytes, int]:
    """An export request of `kind` without the text in it, and in how many places there was some.

    A request without text, or one that cannot be parsed, comes back as it is.
    """
    # events in logs may be named by an attribute's value, which looks like a key
    is_event = kind == "logs" and GEN_AI.encode() in payload
    if not is_event and not may_hold_text(payload, spans=kind == "traces"):
        return payload, 0
    try:
        request = _REQUESTS[kind].FromString(payload)
    except DecodeError:
        return payload, 0
    places = _strip(request)
    return (request.SerializeToString() if places else payload), places


def _strip(message: Any) -> int:
    """Take the text out of a message and all below it; how many places there were."""
    in_event = _is_genai_event(message)
    places = 0
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type == KeyValue.DESCRIPTOR:
            places += _strip_attributes(message, value, in_event)
        elif field.message_type == AnyValue.DESCRIPTOR:  # the body of a record
            places += _strip_body(message) if in_event else _strip_value(value)
        else:
            places += sum(map(_strip, value if field.is_repeated else (value,)))
    return places


def _is_genai_event(message: Any) -> bool:
    if message.DESCRIPTOR == Span.Event.DESCRIPTOR:
        return bool(message.name.startswith(GEN_AI))
    return message.DESCRIPTOR == LogRecord.DESCRIPTOR and any(
        name.startswith(GEN_AI) for name in _event_names(message)
    )


def _event_names(record: Any) -> Iterable[str]:
    """Before LogRecord had a field for it, the name of an event was an attribute."""
    yield record.event_name
    for attribute in record.attributes:
        if attribute.key == "event.name":
            yield attribute.value.string_value


def _strip_attributes(holder: Any, attributes: Any, in_event: bool) -> int:
    dropped, nested = _strip_list(attributes, in_event)
    if dropped and "dropped_attributes_count" in holder.DESCRIPTOR.fields_by_name:
        holder.dropped_attributes_count = min(holder.dropped_attributes_count + dropped, _MOST_DROPPED)
    return dropped + nested


def _strip_list(entries: Any, in_event: bool = False) -> tuple[int, int]:
    """Take the text out of attributes or entries of a map: how many went, and how many places in those that stay."""
    goes = [not _is_plain(entry) if in_event else _is_text(entry.key) for entry in entries]
    dropped = sum(goes)
    if dropped > _FEW:
        kept = [entry for entry, gone in zip(entries, goes, strict=True) if not gone]
        del entries[:]
        entries.extend(kept)
    elif dropped:
        for i in reversed([i for i, gone in enumerate(goes) if gone]):
            del entries[i]
    return dropped, sum(_strip_value(entry.value) for entry in entries)


def _strip_value(value: Any) -> int:
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return sum(_strip_list(value.kvlist_value.values))
    if kind == "array_value":
        return sum(map(_strip_value, value.array_value.values))
    return 0


def _strip_body(record: Any) -> int:
    """Leave of a GenAI event's body what is not text."""
    kind = record.body.WhichOneof("value")
    if kind == "kvlist_value":
        return sum(_strip_list(record.body.kvlist_value.values, in_event=True))
    record.ClearField("body")
    return int(kind is not None)


def _is_text(key: str) -> bool:
    return _is_known_text(key) if len(key) <= _LONGEST_REMEMBERED else _is_known_text.__wrapped__(key)


@lru_cache(4096)  # the same few keys stand in every span
def _is_known_text(key: str) -> bool:
    return key.startswith(TEXT_KEYS) and not PLAIN_KEYS.fullmatch(key)


def _is_plain(entry: Any) -> bool:
    """Whether an attribute or field of a GenAI event may stay: known by name, and no place for maps."""
    return bool(PLAIN_IN_EVENTS.fullmatch(entry.key)) and not _holds_maps(entry.value)


def _holds_maps(value: Any) -> bool:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return any(map(_holds_maps, value.array_value.values))
    return bool(kind == "kvlist_value")
