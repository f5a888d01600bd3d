"""A gRPC door on loopback, and a sender that speaks to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from benchmarks.spans import METHOD
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.tally import Tally


@contextmanager
def listening(sink: Any, tally: Tally | None = None, **options: Any) -> Iterator[OtlpGrpcReceiver]:
    receiver = OtlpGrpcReceiver(sink, tally or Tally(), "127.0.0.1:0", **options)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop(0)


def call(receiver: OtlpGrpcReceiver, payload: bytes, **options: Any) -> ExportTraceServiceResponse:
    with grpc.insecure_channel(receiver.endpoint) as channel:
        return ExportTraceServiceResponse.FromString(
            channel.unary_unary(METHOD)(payload, timeout=10, **options)
        )


def refusal(receiver: OtlpGrpcReceiver, payload: bytes, **options: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as refused:
        call(receiver, payload, **options)
    return refused.value


def eventually(check: Callable[[], bool], timeout_s: float = 20) -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)
