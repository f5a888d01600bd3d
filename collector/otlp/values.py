"""Arrays and maps in attributes and log bodies: found fast, turned into JSON text as the attribute columns hold them.

Most requests have none, and asking upb for every attribute would cost more than all the rest of the receipt. So numpy
searches the wire bytes first. An attribute with an array or a map reads

    0x12 <length of the value> <0x2a or 0x32> <length of the array or map> ...

where both lengths end at the same byte. The few places with such tags at such a distance are decoded in full.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

_VALUE = 0x12  # KeyValue.value = 2, length-delimited
_ARRAY, _KVLIST = 0x2A, 0x32  # AnyValue.array_value = 5, kvlist_value = 6
_LENGTH_BYTES = 4  # a length that fits a message is a varint of up to four bytes


def has_nested(payload: bytes) -> bool:
    """Whether a serialised OTLP message has an attribute that is an array or a map.

    True whenever there is one, given lengths in their shortest form, as all encoders write them. A coincidence of
    bytes may make it true as well.
    """
    data = np.frombuffer(payload, np.uint8)
    outer = np.flatnonzero(data[:-1] == _VALUE)
    long = data[outer + 1] >= 0x80
    for places, distances in ((outer[~long], (2,)), (outer[long], range(3, 2 + _LENGTH_BYTES))):
        for distance in distances:
            tag = data.take(places + distance, mode="clip")
            for at in places[(tag == _ARRAY) | (tag == _KVLIST)].tolist():
                if _is_nested(payload, at, at + distance):
                    return True
    return False


def _is_nested(payload: bytes, outer: int, inner: int) -> bool:
    """Whether the lengths after the tags at `outer` and `inner` belong together."""
    length = shift = 0
    for at in range(inner + 1, min(inner + 2 + _LENGTH_BYTES, len(payload))):
        length |= (payload[at] & 0x7F) << shift
        shift += 7
        if payload[at] < 0x80:
            return payload[outer + 1 : inner] == varint(at - inner + 1 + length)
    return False


def varint(number: int) -> bytes:
    """Protobuf's base-128 form of a number of 0 or more."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def flatten(message: Message) -> None:
    """Replace every array or map value below `message` by its JSON text."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for child in value if field.is_repeated else (value,):
            if not isinstance(child, AnyValue):
                flatten(child)
            elif child.WhichOneof("value") in ("array_value", "kvlist_value"):
                child.string_value = json.dumps(plain(child), ensure_ascii=False, separators=(",", ":"))


def plain(value: AnyValue) -> Any:
    """An AnyValue as what JSON can say: bytes as base64, numbers that JSON lacks as text."""
    match value.WhichOneof("value"):
        case "array_value":
            return [plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {item.key: plain(item.value) for item in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value":
            return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
        case None:
            return None
        case kind:
            return getattr(value, kind)
