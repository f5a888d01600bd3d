"""OTLP's JSON form: what it becomes in protobuf, against protobuf's own mapping and the specification's rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.otlp.check import MalformedError
from collector.otlp.json import REQUESTS, is_too_fine, to_protobuf
from tests.collector.otlp import as_json
from tests.conftest import DATA

EXAMPLES = DATA.parent.parent.parent / "shared" / "traces" / "otlp-json"


def span_of(**fields: Any) -> Any:
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [fields]}]}]}).encode()
    request = ExportTraceServiceRequest.FromString(to_protobuf(ExportTraceServiceRequest, text))
    return request.resource_spans[0].scope_spans[0].spans[0]


def value_of(value: Any) -> Any:
    return span_of(attributes=[{"key": "k", "value": value}]).attributes[0].value


def test_ids_are_hex_in_either_case() -> None:
    span = span_of(traceId="5B8EFFF798038103D269B633813FC60C", spanId="eee19b7ec3c1b174", parentSpanId="")
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert span.span_id.hex() == "eee19b7ec3c1b174"
    assert span.parent_span_id == b""


@pytest.mark.parametrize("number", [0, 1, 1_795_953_914_000_000_001, 2**64 - 1])
def test_64_bit_integers_are_numbers_or_text(number: int) -> None:
    assert span_of(startTimeUnixNano=number).start_time_unix_nano == number
    assert span_of(startTimeUnixNano=str(number)).start_time_unix_nano == number


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ({"intValue": "-9223372036854775808"}, "int_value", -(2**63)),
        ({"intValue": 5}, "int_value", 5),
        ({"doubleValue": 0.1}, "double_value", 0.1),
        ({"doubleValue": 3}, "double_value", 3.0),
        ({"doubleValue": "-Infinity"}, "double_value", float("-inf")),
        ({"boolValue": False}, "bool_value", False),
        ({"stringValue": ""}, "string_value", ""),
        ({"stringValue": "grün\u2028\0"}, "string_value", "grün\u2028\0"),
        ({"bytesValue": "AP8="}, "bytes_value", b"\0\xff"),
    ],
)
def test_values_have_their_type(value: dict[str, Any], field: str, expected: Any) -> None:
    read = value_of(value)
    assert (read.WhichOneof("value"), getattr(read, field)) == (field, expected)


def test_what_is_unknown_or_null_is_ignored() -> None:
    span = span_of(name="n", kind=2, unknown={"deep": [1, {}]}, parent_span_id="ff", status=None, flags=None)
    assert (span.name, span.kind, span.parent_span_id) == ("n", 2, b""), "snake_case is not OTLP's JSON"
    assert not span.HasField("status")


def test_zero_that_was_said_is_not_missing() -> None:
    text = b"""{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","histogram":{"dataPoints":[
        {"count":"0","sum":0,"bucketCounts":["0",1],"explicitBounds":[0.5]}, {"count":1}]}},
        {"name":"g","gauge":{"dataPoints":[{"asInt":"0"},{"asDouble":0}]}}]}]}]}"""
    metrics = (
        ExportMetricsServiceRequest.FromString(to_protobuf(ExportMetricsServiceRequest, text))
        .resource_metrics[0]
        .scope_metrics[0]
        .metrics
    )
    said, missing = metrics[0].histogram.data_points
    assert (said.HasField("sum"), missing.HasField("sum")) == (True, False)
    assert list(said.bucket_counts) == [0, 1]
    assert [p.WhichOneof("value") for p in metrics[1].gauge.data_points] == ["as_int", "as_double"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}{}", "trailing"),
        (b"\xff", "malformed"),
        (b'{"resourceSpans":[null]}', "$.resourceSpans[0]"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz"}]}]}]}', "spans[0].traceId"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":5}]}]}]}', "spans[0].traceId"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"kind":"SPAN_KIND_SERVER"}]}]}]}', "spans[0].kind"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":-1}]}]}]}', "range"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"kind":4294967296}]}]}]}', "range"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"\\ud800"}]}]}]}', ""),
        (b'{"resourceSpans":' + b"[" * 100_000, ""),
        (
            b'{"resourceSpans":[{"resource":{"attributes":[{"value":'
            + b'{"arrayValue":{"values":[' * 20_000
            + b"]}}" * 20_000
            + b"}]}}]}",
            "recursion",
        ),
    ],
)
def test_a_fault_is_said_with_its_place(text: bytes, why: str) -> None:
    with pytest.raises(MalformedError) as refused:
        to_protobuf(ExportTraceServiceRequest, text)
    assert "ExportTraceServiceRequest in JSON" in str(refused.value)
    assert why in str(refused.value)


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_text_is_read_or_malformed(text: bytes) -> None:
    for request in REQUESTS:
        try:
            request.FromString(to_protobuf(request, text))
        except MalformedError:
            continue


# -- round trips -------------------------------------------------------------------------------------------------------

_texts = st.text(max_size=8)
_u64, _i64 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
_floats = st.floats(allow_nan=False)
_scalar = st.one_of(
    st.builds(lambda v: {"string_value": v}, _texts),
    st.builds(lambda v: {"int_value": v}, _i64),
    st.builds(lambda v: {"double_value": v}, _floats),
    st.builds(lambda v: {"bool_value": v}, st.booleans()),
    st.builds(lambda v: {"bytes_value": v}, st.binary(max_size=5)),
    st.just({}),
)
_value = st.recursive(
    _scalar,
    lambda inner: st.builds(lambda v: {"array_value": {"values": v}}, st.lists(inner, max_size=3)),
    max_leaves=5,
)
_attributes = st.lists(st.fixed_dictionaries({"key": _texts, "value": _value}), max_size=3)
_event = st.fixed_dictionaries({"time_unix_nano": _u64, "name": _texts, "attributes": _attributes})
_link = st.fixed_dictionaries(
    {"trace_id": st.binary(max_size=16), "span_id": st.binary(max_size=8), "attributes": _attributes}
)
_span = st.fixed_dictionaries(
    {
        "trace_id": st.binary(max_size=17),
        "span_id": st.binary(max_size=9),
        "name": _texts,
        "start_time_unix_nano": _u64,
        "end_time_unix_nano": _u64,
        "attributes": _attributes,
    },
    optional={
        "parent_span_id": st.binary(max_size=8),
        "kind": st.integers(0, 6),
        "flags": st.integers(0, 2**32 - 1),
        "events": st.lists(_event, max_size=2),
        "links": st.lists(_link, max_size=2),
        "status": st.fixed_dictionaries({"code": st.integers(0, 2), "message": _texts}),
    },
)
_record = st.fixed_dictionaries(
    {"time_unix_nano": _u64, "body": _value, "attributes": _attributes, "event_name": _texts},
    optional={"trace_id": st.binary(max_size=16), "severity_number": st.integers(0, 24)},
)
_number = st.fixed_dictionaries(
    {"time_unix_nano": _u64, "attributes": _attributes}, optional={"as_int": _i64}
)
_exponential = st.fixed_dictionaries(
    {
        "count": _u64,
        "scale": st.integers(-20, 20),
        "positive": st.fixed_dictionaries(
            {"offset": st.integers(-9, 9), "bucket_counts": st.lists(_u64, max_size=4)}
        ),
    },
    optional={"sum": _floats, "min": _floats},
)
_metric = st.one_of(
    st.builds(lambda p: {"gauge": {"data_points": p}}, st.lists(_number, max_size=3)),
    st.builds(
        lambda p: {"exponential_histogram": {"data_points": p, "aggregation_temporality": 2}},
        st.lists(_exponential, max_size=3),
    ),
)


@given(st.lists(_span, max_size=3))
@settings(max_examples=150)
def test_spans_come_back_as_they_were(spans: list[dict[str, Any]]) -> None:
    request = ExportTraceServiceRequest(resource_spans=[{"scope_spans": [{"spans": spans}]}])
    assert_comes_back(request)


@given(st.lists(_record, max_size=3))
def test_records_come_back_as_they_were(records: list[dict[str, Any]]) -> None:
    request = ExportLogsServiceRequest(resource_logs=[{"scope_logs": [{"log_records": records}]}])
    assert_comes_back(request)


@given(st.lists(_metric, max_size=3))
def test_metrics_come_back_as_they_were(metrics: list[dict[str, Any]]) -> None:
    request = ExportMetricsServiceRequest(resource_metrics=[{"scope_metrics": [{"metrics": metrics}]}])
    assert_comes_back(request)


def assert_comes_back(request: Any) -> None:
    kind = type(request)
    assert kind.FromString(to_protobuf(kind, as_json(request))) == request


def test_a_recording_comes_back_byte_for_byte(run1: Path) -> None:
    bodies = [file.read_bytes() for file in sorted(run1.glob("otlp/*.bin"))]
    assert bodies
    for body in bodies:
        assert (
            to_protobuf(ExportTraceServiceRequest, as_json(ExportTraceServiceRequest.FromString(body)))
            == body
        )


@pytest.mark.parametrize(
    ("name", "request_", "expected"),
    [
        ("trace", ExportTraceServiceRequest, ["a server span", "my.service"]),
        ("logs", ExportLogsServiceRequest, ["Example log record", "my.service"]),
        ("events", ExportLogsServiceRequest, ["browser.page_view", "Free Online GUID Generator"]),
        ("metrics", ExportMetricsServiceRequest, ["my.counter", "my.exponential.histogram"]),
    ],
)
def test_the_official_examples_are_read_whole(name: str, request_: Any, expected: list[str]) -> None:
    file = EXAMPLES / f"{name}.json"
    if not file.exists():
        pytest.skip(f"the example {file.name} of opentelemetry-proto is not in this checkout")
    text = file.read_bytes()
    read = request_.FromString(to_protobuf(request_, text))
    assert all(word in str(read) for word in expected)
    assert _leaves(json.loads(as_json(read))) == _leaves(json.loads(text)), "every value is there"


def _leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return sorted(leaf for item in value.values() for leaf in _leaves(item))
    if isinstance(value, list):
        return sorted(leaf for item in value for leaf in _leaves(item))
    text = str(value).lower().removesuffix(".0")  # numbers may be text
    return [] if text in ("0", "false", "") else [text]  # defaults are left out


def test_texts_that_would_take_too_much_are_known_before() -> None:
    usual = as_json(
        ExportTraceServiceRequest(resource_spans=[{"scope_spans": [{"spans": [{"name": "x"}] * 1000}]}])
    )
    assert not is_too_fine(usual, len(usual))
    fine = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 100_000 + b"{}]}]}]}"
    assert is_too_fine(fine, len(fine))
