"""Moves a recording in time by one constant, so that order and durations stay; ids stay too.

With a shift of 0 every body is returned as it was recorded, byte for byte: whoever has seen it recognises it.
"""

from __future__ import annotations

import re

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# Samples whose value is a point in time, in Unix seconds.
_TIME_SAMPLE = re.compile(r"^(?:[a-zA-Z_:][\w:]*_created|process_start_time_seconds)$")
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\})? (?P<value>\S+)$")
_LOG_TIME = re.compile(rb'("\w+_unix_ns": ?)(\d+)')


def shift_export(body: bytes, shift_ns: int) -> bytes:
    """An OTLP trace export with every span and event moved."""
    if not shift_ns:
        return body
    request = ExportTraceServiceRequest.FromString(body)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                span.start_time_unix_nano += shift_ns
                span.end_time_unix_nano += shift_ns
                for event in span.events:
                    event.time_unix_nano += shift_ns
    return bytes(request.SerializeToString())


def shift_kv(payload: bytes, shift_ns: int) -> bytes:
    """A KV-event batch, in either form, with its time moved."""
    if not shift_ns:
        return payload
    batch = msgspec.msgpack.decode(payload)
    batch["ts" if isinstance(batch, dict) else 0] += shift_ns / 1e9
    return msgspec.msgpack.encode(batch)


def shift_log(line: bytes, shift_ns: int) -> bytes:
    """A line of the request log with every `*_unix_ns` moved."""
    if not shift_ns:
        return line
    return _LOG_TIME.sub(lambda found: found[1] + str(int(found[2]) + shift_ns).encode(), line)


def shift_metrics(text: str, taken_ns: int, shift_ns: int) -> str:
    """A /metrics text whose samples say when they were taken (milliseconds), so that the scraper's clock and the speed
    of the play do not matter."""
    stamp = (taken_ns + shift_ns) // 1_000_000
    lines = []
    for line in text.rstrip("\n").split("\n"):  # label values may hold other line ends
        found = _SAMPLE.match(line)
        if not found:
            lines.append(line)
            continue
        value = found["value"]
        if shift_ns and _TIME_SAMPLE.match(found["name"]):
            value = repr(float(value) + shift_ns / 1e9)
        lines.append(f"{found['name']}{found['labels'] or ''} {value} {stamp}")
    return "\n".join(lines) + "\n"
