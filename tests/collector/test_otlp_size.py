"""How large a request becomes is known before it is parsed."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from benchmarks.spans import export_request
from collector.otlp.intake import MOST_PARSED, SIGNALS, Intake, Limits, OversizedError
from collector.otlp.size import ParsedSize
from collector.tally import Tally

SIZE = ParsedSize(signal.request.DESCRIPTOR for signal in SIGNALS)
TRACES, METRICS = ExportTraceServiceRequest.DESCRIPTOR, ExportMetricsServiceRequest.DESCRIPTOR
MANY = 100_000


def part(tag: int, inner: bytes) -> bytes:
    length, rest = bytearray(), len(inner)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([tag, *length, rest]) + inner


def in_scope(inner: bytes) -> bytes:
    """Spans or metrics, in one resource and scope."""
    return part(0x0A, part(0x12, inner))


def in_span(inner: bytes) -> bytes:
    return in_scope(part(0x12, inner))


def in_value(inner: bytes) -> bytes:
    return in_span(part(0x4A, part(0x12, inner)))


BOMBS = {
    "resources": b"\x0a\0" * MANY,
    "scopes": part(0x0A, b"\x12\0" * MANY),
    "spans": in_scope(b"\x12\0" * MANY),
    "spans with lengths longer than needed": in_scope(b"\x12\x80\0" * MANY),
    "spans with tags longer than needed": in_scope(b"\x92\0\0" * MANY),
    "attributes": in_span(b"\x4a\0" * MANY),
    "attributes with empty values": in_span(b"\x4a\x02\x12\0" * MANY),
    "events": in_span(b"\x5a\0" * MANY),
    "links": in_span(b"\x6a\0" * MANY),
    "items of an array": in_value(part(0x2A, b"\x0a\0" * MANY)),
    "items of a map": in_value(part(0x32, b"\x0a\0" * MANY)),
    "items of an array in an array": in_value(part(0x2A, part(0x0A, part(0x2A, b"\x0a\0" * MANY)))),
}
METRIC_BOMBS = {
    "metrics": in_scope(b"\x12\0" * MANY),
    "points": in_scope(part(0x12, part(0x2A, b"\x0a\0" * MANY))),
    "exemplars": in_scope(part(0x12, part(0x2A, part(0x0A, b"\x2a\0" * MANY)))),
    "bucket counts": in_scope(part(0x12, part(0x52, part(0x0A, part(0x42, part(0x12, b"\1" * MANY)))))),
}


@pytest.mark.parametrize(
    ("message", "bomb"),
    [
        *(pytest.param(TRACES, bomb, id=name) for name, bomb in BOMBS.items()),
        *(pytest.param(METRICS, bomb, id=name) for name, bomb in METRIC_BOMBS.items()),
    ],
)
def test_many_tiny_parts_are_found(message: Any, bomb: bytes) -> None:
    assert SIZE.exceeds(message, bomb, MOST_PARSED * len(bomb))


@pytest.mark.parametrize("spans", [2000, 4000])
def test_usual_requests_pass_up_to_the_limit(spans: int) -> None:
    payload = export_request(1, spans=spans)
    assert not SIZE.exceeds(TRACES, payload, MOST_PARSED * len(payload))


def test_arrays_in_arrays_without_end_take_no_time_without_end() -> None:
    """Each level of nesting is read once; past the parser's own limit nobody looks."""
    value = AnyValue()
    inner = value
    for _ in range(90):
        inner = inner.array_value.values.add()
    deep = in_value(value.SerializeToString())
    assert not SIZE.exceeds(TRACES, deep, 96 * len(deep) - 1)
    data = b""
    for _ in range(5000):
        data = part(0x0A, part(0x2A, data))
    SIZE.exceeds(TRACES, in_value(part(0x2A, data)), 100)


@given(st.binary(max_size=400), st.integers(0, 2000))
def test_any_bytes_get_an_answer(data: bytes, most: int) -> None:
    for signal in SIGNALS:
        assert SIZE.exceeds(signal.request.DESCRIPTOR, data, most) in (True, False)


@given(st.binary(max_size=60))
def test_what_is_refused_does_take_that_much(data: bytes) -> None:
    """Never more is counted than the parser makes: each part is at least the least there is."""
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.attributes.add(key="k").value.bytes_value = data
    payload = request.SerializeToString()
    # a request, a resource, a scope, a span, an attribute and its value
    assert not SIZE.exceeds(TRACES, payload, 6 * 192)
    assert SIZE.exceeds(TRACES, payload, 300)


def test_a_bomb_is_refused_without_the_memory_it_asks_for() -> None:
    class Box:
        def put(self, entries: Any) -> int:
            raise AssertionError("nothing is to be stored")

    tally = Tally()
    intake = Intake(Box(), tally, Limits(message_bytes=1 << 20), None)
    tracemalloc.start()
    try:
        for bomb in BOMBS.values():
            with pytest.raises(OversizedError, match="smaller batches"):
                intake.take(SIGNALS[0], bomb * (900_000 // len(bomb)))
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    assert tally.snapshot()["traces"].rejected == {"malformed request": len(BOMBS)}
