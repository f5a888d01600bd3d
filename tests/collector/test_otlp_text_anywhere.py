"""Prompt and response text is found wherever it stands in a message, and however that was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from collector.otlp.text import may_hold_text, without_text
from collector.otlp.text_names import TEXT_KEYS
from collector.otlp.values import varint
from tests.collector.test_otlp_text import SECRET, SPELLINGS, middle_span, request_with

Keys = list[tuple[str, bool]]


def attributes_of(keys: Keys, keep_text: bool) -> list[KeyValue]:
    """Attributes with these keys, the last one inside a list of maps of another."""
    made = [
        KeyValue(key=key, value=AnyValue(string_value=SECRET))
        for key, is_text in keys
        if keep_text or not is_text
    ]
    deepest = made.pop() if keys and (keep_text or not keys[-1][1]) else None
    outer = KeyValue(key="metadata")
    inner = outer.value.kvlist_value.values.add(key="list").value.array_value.values.add().kvlist_value
    inner.values.add(key="plain").value.int_value = 7
    if deepest is not None:
        inner.values.append(deepest)
    return [*made, outer]


class Requests:
    """The three kinds of request, whole or as they ought to come back, with `keys` at every place for attributes."""

    def __init__(self, places: list[Keys], keep_text: bool) -> None:
        self._places, self._keep_text = iter(places), keep_text

    def _fill(self, holder: Any, name: str = "attributes") -> None:
        keys = next(self._places)
        getattr(holder, name).extend(attributes_of(keys, self._keep_text))
        if not self._keep_text and "dropped_attributes_count" in holder.DESCRIPTOR.fields_by_name:
            holder.dropped_attributes_count += sum(is_text for _, is_text in keys[:-1])

    def _around(self, rows: Any, scopes: str) -> Any:
        self._fill(rows.resource)
        scope = getattr(rows, scopes).add(schema_url="x")
        self._fill(scope.scope)
        return scope

    def traces(self) -> bytes:
        request = ExportTraceServiceRequest()
        span = self._around(request.resource_spans.add(), "scope_spans").spans.add(name="gen_ai.x")
        self._fill(span)
        self._fill(span.events.add(name="retry"))
        self._fill(span.links.add(trace_id=b"1" * 16))
        return bytes(request.SerializeToString())

    def logs(self) -> bytes:
        request = ExportLogsServiceRequest()
        record = self._around(request.resource_logs.add(), "scope_logs").log_records.add(time_unix_nano=1)
        self._fill(record)
        record.body.kvlist_value.SetInParent()
        self._fill(record.body.kvlist_value, "values")
        return bytes(request.SerializeToString())

    def metrics(self) -> bytes:
        request = ExportMetricsServiceRequest()
        metrics = self._around(request.resource_metrics.add(), "scope_metrics").metrics
        for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
            metric = metrics.add(name="gen_ai.client.token.usage")
            point = getattr(metric, kind).data_points.add(time_unix_nano=1)
            self._fill(metric, "metadata")
            self._fill(point)
            if kind != "summary":
                self._fill(point.exemplars.add(as_double=1.5), "filtered_attributes")
        return bytes(request.SerializeToString())


MOST_PLACES = 2 + 5 * 3
NAMES = SPELLINGS + [(name, True) for name in TEXT_KEYS] + [("gen_ai.prompt." + "0" * 20_000, True)]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(NAMES), max_size=3), min_size=MOST_PLACES, max_size=MOST_PLACES),
    st.sampled_from(["traces", "logs", "metrics"]),
)
def test_text_anywhere_goes_and_all_the_rest_stays_byte_for_byte(places: list[Keys], kind: str) -> None:
    payload = getattr(Requests(places, True), kind)()
    ought = getattr(Requests(places, False), kind)()
    used = {"traces": 5, "logs": 4, "metrics": 2 + 5 * 3 - 1}[kind]
    count = sum(is_text for keys in places[:used] for _, is_text in keys)
    assert without_text(kind, payload) == (ought, count)


@given(st.sampled_from(TEXT_KEYS), st.binary(max_size=40), st.binary(max_size=40))
def test_a_name_is_seen_among_any_bytes(name: str, before: bytes, after: bytes) -> None:
    assert may_hold_text(before + name.encode() + after)


@pytest.mark.parametrize("before", range(2**18 - 30, 2**18 + 10))
def test_a_name_is_seen_across_the_ends_of_pieces(before: int) -> None:
    assert may_hold_text(b"." * before + b"llm.function_call")
    assert may_hold_text(b"." * before + b"\x12\x0dgen_ai.choice", spans=True)
    assert not may_hold_text(b"." * before + b"\x0a\x0dgen_ai.choosy" + bytes(100), spans=True)


def test_a_full_count_of_dropped_attributes_stays_full() -> None:
    request = ExportTraceServiceRequest.FromString(request_with(["input.value"]))
    request.resource_spans[0].scope_spans[0].spans[1].dropped_attributes_count = 2**32 - 1
    kept, texts = without_text("traces", request.SerializeToString())
    assert (texts, middle_span(kept).dropped_attributes_count) == (1, 2**32 - 1)


@pytest.mark.parametrize("every", [1, 2, 50])
def test_of_many_attributes_the_right_ones_stay(every: int) -> None:
    keys = ["ai.value" if i % every == 0 else f"plain{i}" for i in range(1000)]
    kept, texts = without_text("traces", request_with(keys))
    plain = [key for key in keys if key != "ai.value"]
    assert texts == middle_span(kept).dropped_attributes_count == len(keys) - len(plain)
    assert [a.key for a in middle_span(kept).attributes if not a.key.startswith("gen_ai.")] == plain


# -- unusual wire forms ------------------------------------------------------------------------------------------------


def field(number: int, data: bytes, tag_bytes: int = 1, length_bytes: int = 1) -> bytes:
    """A length-delimited field, its tag and length written with more bytes than they need."""
    return longer(number << 3 | 2, tag_bytes) + longer(len(data), length_bytes) + data


def longer(number: int, size: int) -> bytes:
    short = varint(number)
    if size <= len(short):
        return short
    return short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * (size - len(short) - 1) + b"\0"


SPELT = AnyValue(string_value=SECRET).SerializeToString()


@pytest.mark.parametrize("value_first", [False, True])
@pytest.mark.parametrize("tag_bytes", [1, 2, 5])
@pytest.mark.parametrize("length_bytes", [1, 2, 3, 5])
@pytest.mark.parametrize("event", [b"", b"gen_ai.user.message", b"gen_ai." + b"x" * 200])
def test_unusual_wire_forms_hide_nothing(
    value_first: bool, tag_bytes: int, length_bytes: int, event: bytes
) -> None:
    name = b"content" if event else b"gen_ai.prompt"
    parts = [field(1, name, tag_bytes, length_bytes), field(2, SPELT)]
    attribute = b"".join(reversed(parts) if value_first else parts)
    if event:
        parts = [field(2, event, tag_bytes, length_bytes), field(3, attribute)]
        span = field(11, b"".join(reversed(parts) if value_first else parts))
    else:
        span = field(9, attribute)
    payload = field(1, field(2, field(2, span)))
    assert SECRET.encode() in payload
    kept, texts = without_text("traces", payload)
    assert (texts, SECRET.encode() in kept) == (1, False)
