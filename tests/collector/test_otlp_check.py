"""Checks of OTLP requests: what is refused, what is rewritten, and that no bytes whatever break them."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from benchmarks.spans import export_request
from collector.otlp import check as otlp_check
from collector.otlp.check import MalformedError, Window, check_logs, check_metrics, check_traces
from collector.otlp.values import flatten, has_nested, plain, varint

NOW = time.time_ns()
EVER = Window(max_age_s=100 * 365 * 86400)
CHECKS = {
    check_traces: ExportTraceServiceRequest,
    check_logs: ExportLogsServiceRequest,
    check_metrics: ExportMetricsServiceRequest,
}


def trace_request(*spans: dict[str, Any]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for i, fields in enumerate(spans):
        usual = {
            "trace_id": bytes(15) + bytes([i + 1]),
            "span_id": bytes(7) + bytes([i + 1]),
            "name": f"span {i}",
            "start_time_unix_nano": NOW - 10**9,
            "end_time_unix_nano": NOW,
        }
        scope.spans.add(**(usual | fields))
    return request


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"trace_id": b"short"}, otlp_check.BAD_TRACE_ID),
        ({"trace_id": b""}, otlp_check.BAD_TRACE_ID),
        ({"span_id": bytes(16)}, otlp_check.BAD_SPAN_ID),
        ({"end_time_unix_nano": NOW - 2 * 10**9}, otlp_check.NEGATIVE),
        ({"end_time_unix_nano": 0}, otlp_check.NEGATIVE),
        ({"start_time_unix_nano": 0}, otlp_check.TOO_OLD),
        ({"start_time_unix_nano": NOW // 1000, "end_time_unix_nano": NOW // 1000 + 1}, otlp_check.TOO_OLD),
        ({"start_time_unix_nano": NOW, "end_time_unix_nano": NOW + 10**15}, otlp_check.TOO_NEW),
        ({"start_time_unix_nano": 2**64 - 2, "end_time_unix_nano": 2**64 - 1}, otlp_check.TOO_NEW),
    ],
)
def test_a_bad_span_is_taken_out_and_the_others_stay(fault: dict[str, Any], reason: str) -> None:
    checked = check_traces(trace_request({}, fault, {}).SerializeToString(), Window())
    assert checked.rejected == {reason: 1}
    assert checked.rows == 2
    kept = ExportTraceServiceRequest.FromString(checked.payload).resource_spans[0].scope_spans[0].spans
    assert [span.name for span in kept] == ["span 0", "span 2"]


def test_sound_spans_pass_as_they_came() -> None:
    payload = export_request(1)
    checked = check_traces(payload, Window())
    assert (checked.payload, checked.rows, checked.rejected) == (payload, 512, {})


def test_recorded_requests_pass_as_they_came(run1: Path) -> None:
    bodies = [file.read_bytes() for file in sorted(run1.glob("otlp/*.bin"))]
    checked = [check_traces(body, EVER) for body in bodies]
    assert [c.payload for c in checked] == bodies
    assert sum(c.rows for c in checked) == 187, "175 requests and the spans of the server's start"


def test_points_and_records_are_checked_one_by_one() -> None:
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    for when in (NOW, 0, NOW):
        metric.gauge.data_points.add(time_unix_nano=when)
    checked = check_metrics(metrics.SerializeToString(), Window())
    assert (checked.rows, checked.rejected) == (2, {otlp_check.TOO_OLD: 1})

    logs = ExportLogsServiceRequest()
    scope = logs.resource_logs.add().scope_logs.add()
    scope.log_records.add(time_unix_nano=NOW)
    scope.log_records.add(observed_time_unix_nano=NOW)
    scope.log_records.add()
    checked = check_logs(logs.SerializeToString(), Window())
    assert (checked.rows, checked.rejected) == (2, {otlp_check.TOO_OLD: 1})


@pytest.mark.parametrize("check", CHECKS)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_checked_or_called_malformed(check: Any, data: bytes) -> None:
    try:
        checked = check(data, EVER)
    except MalformedError:
        with pytest.raises(DecodeError):
            CHECKS[check].FromString(data)
    else:
        CHECKS[check].FromString(checked.payload)


def test_mutated_requests_never_raise_anything_else() -> None:
    rnd, refused = random.Random(7), 0
    for seed in range(400):
        data = bytearray(export_request(seed, spans=4))
        for _ in range(rnd.randint(1, 4)):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
        if rnd.random() < 0.3:
            del data[rnd.randrange(len(data)) :]
        try:
            assert check_traces(bytes(data), Window()).rows <= 8
        except MalformedError:
            refused += 1
    assert 50 < refused < 400


def test_text_that_is_no_utf8_is_malformed() -> None:
    payload = trace_request({"name": "AAAA"}).SerializeToString().replace(b"AAAA", b"\xff\xfe\xfd\xfc")
    with pytest.raises(MalformedError):
        check_traces(payload, Window())


# -- values that are arrays or maps ----------------------------------------------------------------------------------

scalars = st.one_of(
    st.builds(lambda v: AnyValue(string_value=v), st.text(max_size=300)),
    st.builds(lambda v: AnyValue(int_value=v), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda v: AnyValue(double_value=v), st.floats()),
    st.builds(lambda v: AnyValue(bool_value=v), st.booleans()),
    st.builds(lambda v: AnyValue(bytes_value=v), st.binary(max_size=40)),
    st.just(AnyValue()),
)


def _array(items: list[AnyValue]) -> AnyValue:
    value = AnyValue()
    value.array_value.values.extend(items)
    return value


def _map(items: dict[str, AnyValue]) -> AnyValue:
    value = AnyValue()
    value.kvlist_value.SetInParent()
    for key, item in items.items():
        value.kvlist_value.values.add(key=key).value.CopyFrom(item)
    return value


nested = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(_array, st.lists(inner, max_size=6)),
        st.builds(_map, st.dictionaries(st.text(max_size=9), inner, max_size=4)),
    ),
    max_leaves=20,
)


def request_with(values: list[AnyValue]) -> ExportTraceServiceRequest:
    request = trace_request({})
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for i, value in enumerate(values):
        span.attributes.add(key=f"key{i}").value.CopyFrom(value)
    return request


@given(st.lists(nested, max_size=5))
@settings(max_examples=150)
def test_nested_values_are_always_found_and_become_json(values: list[AnyValue]) -> None:
    request = request_with(values)
    payload = request.SerializeToString()
    kinds = [value.WhichOneof("value") for value in values]
    if {"array_value", "kvlist_value"} & set(kinds):
        assert has_nested(payload)
    checked = check_traces(payload, Window())
    after = (
        ExportTraceServiceRequest.FromString(checked.payload)
        .resource_spans[0]
        .scope_spans[0]
        .spans[0]
        .attributes
    )
    for kind, value, attribute in zip(kinds, values, after, strict=True):
        if kind in ("array_value", "kvlist_value"):
            assert json.loads(attribute.value.string_value) == plain(value)
        else:
            assert attribute.value.SerializeToString() == value.SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 100, 125, 126, 127, 128, 129, 16_380, 16_384, 2_097_150, 2_097_160])
def test_nested_values_of_every_length_are_found(size: int) -> None:
    for value in (
        _array([AnyValue(string_value="x" * size)]),
        _map({"k": AnyValue(bytes_value=bytes(size))}),
    ):
        assert has_nested(request_with([value]).SerializeToString())


def test_nested_values_are_found_in_events_links_and_resources() -> None:
    value = _array([AnyValue(int_value=1)])
    for place in ("events", "links", "resource"):
        request = trace_request({})
        resource = request.resource_spans[0]
        span = resource.scope_spans[0].spans[0]
        holder = resource.resource if place == "resource" else getattr(span, place).add()
        holder.attributes.add(key="k").value.CopyFrom(value)
        checked = ExportTraceServiceRequest.FromString(
            check_traces(request.SerializeToString(), Window()).payload
        )
        assert b"[1]" in checked.SerializeToString()


def test_usual_requests_are_not_rewritten() -> None:
    assert sum(has_nested(export_request(seed)) for seed in range(20)) <= 1


@given(st.integers(0, 2**35))
def test_varint_is_protobufs(number: int) -> None:
    assert AnyValue(int_value=number).SerializeToString() == b"\x18" + varint(number)


def test_flatten_reaches_log_bodies() -> None:
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=NOW)
    record.body.CopyFrom(_map({"a": AnyValue(double_value=float("nan")), "b": AnyValue(bytes_value=b"\0")}))
    flatten(logs)
    assert record.body.string_value == '{"a":"nan","b":"AA=="}'
