"""What senders may take of the gRPC door: size, time, turns, and who may send at all."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from benchmarks.spans import METHOD, export_request
from collector.otlp.grpc import WORKERS, OtlpGrpcReceiver
from collector.otlp.intake import Limits
from collector.sink import Entry
from collector.spool import Spool
from collector.tally import Tally
from tests.collector.grpc_door import call, eventually, listening, refusal


def test_a_full_spool_asks_to_come_back_later(tmp_path: Path) -> None:
    box = Spool(tmp_path, limit_bytes=400_000)
    with listening(box) as receiver:
        call(receiver, export_request(1))
        error = refusal(receiver, export_request(2))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        status = rpc_status.from_call(error)
        retry = error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.ToTimedelta().total_seconds() > 0
        batch = box.seal("traces", 1, 1)
        assert batch
        box.done(batch)
        call(receiver, export_request(2))
    assert box.pending() == {"traces": 512}


def test_the_stock_exporter_waits_out_a_full_spool(tmp_path: Path) -> None:
    tally = Tally()
    box = Spool(tmp_path, tally, limit_bytes=1000)
    with listening(box, tally) as receiver:
        box.put([Entry("traces", bytes(900), 1)])
        blocker = box.seal("traces", 1, 1)
        assert blocker
        threading.Timer(1.0, box.done, [blocker]).start()
        provider = TracerProvider()
        provider.add_span_processor(
            SimpleSpanProcessor(OTLPSpanExporter(receiver.endpoint, insecure=True, timeout=20))
        )
        provider.get_tracer("t").start_span("patient", attributes={"x": "y" * 200}).end()
        provider.shutdown()
    assert tally.snapshot()["traces"].accepted == 2
    assert box.pending() == {"traces": 1}


def test_oversized_requests_are_refused_compressed_or_not(tmp_path: Path) -> None:
    with listening(Spool(tmp_path), limits=Limits(message_bytes=100_000)) as receiver:
        big = export_request(1)
        assert len(big) > 100_000 > len(gzip.compress(bytes(10**6)))
        assert refusal(receiver, big).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        bomb = refusal(receiver, bytes(10**7), compression=grpc.Compression.Gzip)
        assert bomb.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        call(receiver, export_request(2, spans=10), compression=grpc.Compression.Gzip)


def test_senders_wait_for_each_other_and_are_not_refused(tmp_path: Path) -> None:
    """gRPC's own refusal has no RetryInfo: to the specification it would mean that the data is lost."""
    spool, opened = Spool(tmp_path), threading.Event()

    class Slow:
        def put(self, entries: Any) -> int:
            assert opened.wait(30)
            return spool.put(entries)

    with listening(Slow()) as receiver:
        channels = [
            grpc.insecure_channel(receiver.endpoint, options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in range(100)
        ]
        under_way = [
            channel.unary_unary(METHOD).future(export_request(seed, spans=2), timeout=60)
            for seed, channel in enumerate(channels)
        ]
        eventually(lambda: receiver.intake.under_way == WORKERS)
        opened.set()
        answers = [future.result() for future in under_way]
        for channel in channels:
            channel.close()
    assert answers == [b""] * 100
    assert spool.pending() == {"traces": 200}


def test_a_token_is_demanded(tmp_path: Path) -> None:
    with listening(Spool(tmp_path), token="s3cret") as receiver:
        body = export_request(1, spans=1)
        for metadata in ([], [("authorization", "Bearer wrong")]):
            assert refusal(receiver, body, metadata=metadata).code() is grpc.StatusCode.UNAUTHENTICATED
        call(receiver, body, metadata=[("authorization", "Bearer s3cret")])


@contextmanager
def stuck(receiver: OtlpGrpcReceiver, count: int) -> Iterator[list[grpc.Future]]:
    """Calls that never send their message."""
    with ExitStack() as stack:
        never = threading.Event()
        stack.callback(never.set)

        def nothing() -> Iterator[bytes]:
            never.wait(60)
            yield from ()

        yield [
            stack.enter_context(grpc.insecure_channel(receiver.endpoint))
            .stream_unary(METHOD)
            .future(nothing())
            for _ in range(count)
        ]


def test_senders_that_never_send_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.otlp.grpc.MESSAGE_S", 0.2)
    with listening(Spool(tmp_path)) as receiver, stuck(receiver, 3 * WORKERS) as calls:
        assert call(receiver, export_request(1)) == ExportTraceServiceResponse()
        eventually(lambda: all(call.done() for call in calls))
        assert {call.code() for call in calls} == {grpc.StatusCode.CANCELLED}


def test_without_a_token_nobody_is_waited_for(tmp_path: Path) -> None:
    with listening(Spool(tmp_path), token="s3cret") as receiver, stuck(receiver, 3 * WORKERS) as calls:
        eventually(lambda: all(call.done() for call in calls))
        assert {call.code() for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
