"""Spans on their way out: to the collector's own door, and to one that is not there."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from cachemodel.errors import UserError
from collector.spool import Spool
from collector.tally import Tally
from engine.config import EngineConfig
from engine.telemetry import Telemetry, TelemetryConfig, sender
from engine.telemetry.sender import SpanSender, check_endpoint
from engine.telemetry.spans import Tracer
from tests.collector.grpc_door import listening
from tests.collector.support import wait_until
from tests.engine.telemetry.made import request

TRACER = Tracer(Resource.create({"service.name": "e", "service.instance.id": "i"}), "1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_every_request_reaches_the_collector_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path, Tally())
    with listening(spool) as door:
        spans = SpanSender(door.endpoint, TRACER)
        for number in range(600):
            spans.put(request(f"r{number}"))
        spans.close()
    assert dict(spans.counts) == {"sent": 600, "failed": 0, "dropped": 0}
    told = ExportTraceServiceRequest()
    while batch := spool.seal("traces", 1_000_000, 1 << 30):
        told.MergeFromString(spool.payload(batch))
        spool.done(batch)
    spool.close()
    by_name: dict[str, int] = {}
    for resource in told.resource_spans:
        assert {a.key: a.value.string_value for a in resource.resource.attributes}[
            "service.instance.id"
        ] == "i"
        for scope in resource.scope_spans:
            assert scope.scope.name == "hitmap.engine"
            for span in scope.spans:
                by_name[span.name] = by_name.get(span.name, 0) + 1
    assert by_name == {"llm_request": 600, "prefill": 1200} | dict.fromkeys(
        ("frontend", "queue", "prefix_lookup", "load host", "load remote", "decode", "deliver"), 600
    )


def test_a_flush_waits_for_nothing_but_the_sending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sender, "_EVERY_S", 3600)
    spool = Spool(tmp_path, Tally())
    with listening(spool) as door:
        spans = SpanSender(door.endpoint, TRACER)
        for sent in (3, 6, 6):
            if sent > spans.counts["sent"]:
                for number in range(3):
                    spans.put(request(f"r{number}"))
            assert spans.flush(60)
            assert spans.counts["sent"] == sent
        spans.close()
    spool.close()


def test_text_that_is_no_unicode_costs_its_attribute_and_nothing_else(tmp_path: Path) -> None:
    spool = Spool(tmp_path, Tally())
    with listening(spool) as door:
        spans = SpanSender(door.endpoint, Tracer(Resource.create({}), "1", full=True))
        spans.put(request("bad", prompt_text="\ud800"))
        spans.put(request("good", prompt_text="fine"))
        spans.close()
    spool.close()
    assert dict(spans.counts) == {"sent": 2, "failed": 0, "dropped": 0}


def test_an_error_while_sending_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = SpanSender("127.0.0.1:1", TRACER)
    monkeypatch.setattr(spans._exporter, "export", lambda spans: 1 / 0)
    spans.put(request())
    wait_until(lambda: spans.counts["failed"] == 1)
    spans.put(request())
    spans.close()
    assert dict(spans.counts) == {"sent": 0, "failed": 2, "dropped": 0}


def test_a_receiver_that_is_not_there_costs_traces_and_nothing_else() -> None:
    spans = SpanSender(f"127.0.0.1:{free_port()}", TRACER, timeout_s=0.2)
    for number in range(10):
        spans.put(request(f"r{number}"))
    spans.close()
    assert dict(spans.counts) == {"sent": 0, "failed": 10, "dropped": 0}


@pytest.mark.parametrize(
    "endpoint",
    ["here", "a b:4317", ":::", ":4317", "127.0.0.1", "127.0.0.1:99999", "ftp://a:1", "http://a:4317/v1"],
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(UserError, match="give --otlp a HOST:PORT"):
        Telemetry(EngineConfig(), TelemetryConfig(otlp=endpoint, kv_events="tcp://127.0.0.1:*"))


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:4317", "localhost:1", "[::1]:4317", "https://collector.lan:4317"]
)
def test_an_endpoint_need_not_be_there(endpoint: str) -> None:
    check_endpoint(endpoint)


def test_more_than_can_wait_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_MOST_WAITING", 8)
    monkeypatch.setattr(sender, "_BATCH", 1)
    began, go = threading.Event(), threading.Event()

    class Slow(Tracer):
        def spans(self, ended):  # type: ignore[no-untyped-def]
            began.set()
            go.wait(10)
            return []

    spans = SpanSender("127.0.0.1:1", Slow(Resource.create({}), "1"))
    spans.put(request())
    assert began.wait(10)
    for _ in range(20):
        spans.put(request())
    assert spans.counts["dropped"] == 12
    go.set()
    spans.close()
    assert dict(spans.counts) == {"sent": 9, "failed": 0, "dropped": 12}
