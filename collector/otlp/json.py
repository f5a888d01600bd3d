"""OTLP's JSON form, turned into the protobuf form that everything behind the door reads; and answers turned back.

The form is protobuf's own JSON mapping with four differences: trace and span ids are hex, enums are numbers only, keys
are in lowerCamelCase only, and unknown keys are ignored. 64-bit integers may be numbers or text. Source: the OTLP
specification, section "JSON Protobuf Encoding".

No Python runs for each value: msgspec reads the text into structures made from OTLP's own descriptors, and protobuf
takes those into a copy of the messages whose fields go by their JSON names; on the wire the copy is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.otlp.check import MalformedError
from collector.otlp.size import reachable

REQUESTS = (ExportTraceServiceRequest, ExportMetricsServiceRequest, ExportLogsServiceRequest)
OBJECT_BYTES = 350  # of an object in the text while it is a structure, a dictionary and a message: measured
# what a text that is not refused takes at most, in bytes of it; numbers are the dearest: "0," becomes some 48 bytes
TIMES_THE_TEXT = 24


class HexId(bytes):
    """A trace or span id, hex in the text."""


_SCALARS: dict[int, type] = {
    FieldDescriptor.CPPTYPE_STRING: str,
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
    FieldDescriptor.CPPTYPE_FLOAT: float,
}
_IDS = frozenset({"trace_id", "span_id", "parent_span_id"})


def to_protobuf(request: type[Message], text: bytes) -> bytes:
    """The protobuf form of a request of the type `request`; raises MalformedError with the place of the fault."""
    name = request.DESCRIPTOR.full_name
    try:
        values = msgspec.to_builtins(_DECODERS[name].decode(text), builtin_types=(bytes,), enc_hook=bytes)
        data: bytes = _COPIES[name](**values).SerializeToString()
    except (ValueError, TypeError, RecursionError, EncodeError) as error:
        raise MalformedError(f"not an {request.DESCRIPTOR.name} in JSON: {error}") from None
    return data


def is_too_fine(text: bytes, most_bytes: int) -> bool:
    """Whether a text has so many objects that turning it into protobuf may take more than `TIMES_THE_TEXT` times
    `most_bytes`."""
    return (text.count(b"{") + text.count(b"[")) * OBJECT_BYTES > TIMES_THE_TEXT * most_bytes


def from_message(message: Message) -> bytes:
    """An answer as JSON: it has no ids, so that protobuf's own mapping does."""
    return msgspec.json.encode(MessageToDict(message))


def _to_id(kind: type, text: Any) -> HexId:
    if kind is not HexId or not isinstance(text, str):
        raise ValueError("expected hex digits")
    return HexId.fromhex(text)


def _scalar(field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return HexId if field.name in _IDS else bytes
    return _SCALARS.get(field.cpp_type, int)


def _structures(types: Iterable[Descriptor]) -> dict[str, type]:
    """A structure for each message type. They name each other by the names they have in this module, as AnyValue holds
    AnyValues."""
    made = {}
    for message in types:
        fields = []
        for field in message.fields:
            kind = _name(field.message_type) if field.message_type else _scalar(field)
            name = kind if isinstance(kind, str) else kind.__name__
            fields.append(
                (field.json_name, f"list[{name}] | None" if field.is_repeated else f"{name} | None", None)
            )
        made[message.full_name] = msgspec.defstruct(
            _name(message), fields, module=__name__, omit_defaults=True, gc=False
        )
    return made


def _name(message: Descriptor) -> str:
    return f"_{message.full_name}".replace(".", "_")


def _rename_fields(copy: DescriptorProto, message: Descriptor) -> None:
    for field in copy.field:
        field.name = message.fields_by_name[field.name].json_name
    for nested in copy.nested_type:
        _rename_fields(nested, message.nested_types_by_name[nested.name])


def _copies(types: Iterable[Descriptor]) -> dict[str, Any]:
    """The same messages, with fields that go by their JSON names."""
    pool = DescriptorPool()
    added: set[str] = set()

    def add(file: Any) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for needed in file.dependencies:
            add(needed)
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        for message in copy.message_type:
            _rename_fields(message, file.message_types_by_name[message.name])
        pool.AddSerializedFile(copy.SerializeToString())

    names = []
    for message in types:
        add(message.file)
        names.append(message.full_name)
    return {name: GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


_TYPES = reachable(request.DESCRIPTOR for request in REQUESTS)
_COPIES = _copies(_TYPES.values())
_STRUCTURES = _structures(_TYPES.values())
globals().update({structure.__name__: structure for structure in _STRUCTURES.values()})
_DECODERS: dict[str, Any] = {
    name: msgspec.json.Decoder(_STRUCTURES[name], strict=False, dec_hook=_to_id)
    for name in (request.DESCRIPTOR.full_name for request in REQUESTS)
}
