"""How much memory would a request take once it is parsed? Asked before it is parsed.

An empty span is two bytes on the wire and some 170 in memory, so the size of a request says little. Counting its
parts (spans, attributes, values ...) with the real parser would take what is to be saved. So they are counted level by
level with another schema, in which every part is plain bytes: the C parser finds where parts begin and end and makes
nothing of them. All parts of one type, one after the other, are again a valid message of that type, whose repeated
fields are those of all: a level costs one call, however many parts it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

DEPTH = 100  # protobuf's own limit: what nests deeper is refused by the parser
_NUMBER_BYTES = 8  # of a number in a list, which may be one byte on the wire
_TEXT = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def reachable(roots: Iterable[Descriptor]) -> dict[str, Descriptor]:
    """The message types that `roots` are made of, themselves included, by full name."""
    found: dict[str, Descriptor] = {}
    waiting = list(roots)
    while waiting:
        message = waiting.pop()
        if message.full_name not in found:
            found[message.full_name] = message
            waiting += [field.message_type for field in message.fields if field.message_type]
    return found


def object_bytes(message: Descriptor) -> int:
    """About what upb, protobuf's C library, takes for one message of this type: measured, it is within a tenth."""
    fields = [field for field in message.fields if field.containing_oneof is None]
    return 24 + 16 * len(message.oneofs) + sum(16 if field.type in _TEXT else 8 for field in fields)


class ParsedSize:
    """Measures requests of the types `roots`."""

    def __init__(self, roots: Iterable[Descriptor]) -> None:
        self._types = reachable(roots)
        self._bytes = {name: object_bytes(message) for name, message in self._types.items()}
        self._outlines = _outlines(self._types.values())
        # the shortest part there is has a tag and a length
        self._highest_ratio = max(self._bytes.values()) // 2

    def exceeds(self, message: Descriptor, payload: bytes, most_bytes: int) -> bool:
        """Whether a serialised `message` would take more than `most_bytes`.

        What is no such message may get either answer: the parser stops at the first fault, and so does this.
        """
        if len(payload) * self._highest_ratio <= most_bytes:
            return False
        total = 0
        level = {message.full_name: payload}
        for _ in range(DEPTH):
            below: dict[str, list[bytes]] = {}
            for name, data in level.items():
                try:
                    outline = self._outlines[name].FromString(data)
                except DecodeError:
                    return False
                for field in self._types[name].fields:
                    if _is_list_of_numbers(field):
                        total += _NUMBER_BYTES * sum(map(len, getattr(outline, field.name)))
                    elif field.message_type:
                        parts = getattr(outline, field.name)
                        total += len(parts) * self._bytes[field.message_type.full_name]
                        if total <= most_bytes and parts:
                            below.setdefault(field.message_type.full_name, []).extend(parts)
                if total > most_bytes:
                    return True
            if not below:
                return False
            level = {name: b"".join(parts) for name, parts in below.items()}
        return False


def _is_list_of_numbers(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated and field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_INT64))


def _outlines(types: Iterable[Descriptor]) -> dict[str, Any]:
    """Message classes that know of each type its parts and its lists of numbers, as bytes."""
    file = FileDescriptorProto(name="outlines.proto", package="outlines", syntax="proto3")
    for message in types:
        outline = file.message_type.add(name=message.full_name.replace(".", "_"))
        for field in message.fields:
            if field.message_type or _is_list_of_numbers(field):
                outline.field.add(
                    name=field.name,
                    number=field.number,
                    type=FieldDescriptorProto.TYPE_BYTES,
                    label=FieldDescriptorProto.LABEL_REPEATED,
                )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        message.full_name: GetMessageClass(
            pool.FindMessageTypeByName(f"outlines.{message.full_name.replace('.', '_')}")
        )
        for message in types
    }
