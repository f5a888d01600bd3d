"""Damaged requests by every door, and many senders at once: nothing half written, nothing twice, nobody dead."""

from __future__ import annotations

import gzip
import http.client
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.spans import METHOD, export_request
from collector.otlp.body import zstd
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.otlp.http import OtlpHttpReceiver
from collector.pipeline import Pipeline
from collector.spool import Spool
from collector.tally import Tally
from collector.writer import Flush
from tests.collector.otlp import JSON, PROTOBUF, as_json, http_door, is_served, send
from tests.collector.support import wait_until
from tests.conftest import Database

SPANS = 8  # a request
FORMS = [(PROTOBUF, ""), (PROTOBUF, "gzip"), (PROTOBUF, "zstd"), (JSON, ""), (JSON, "gzip")]
COMPRESS = {"": bytes, "gzip": gzip.compress, "zstd": zstd.compress}


def body_of(payload: bytes, content_type: str, encoding: str) -> bytes:
    if content_type == JSON:
        payload = as_json(ExportTraceServiceRequest.FromString(payload))
    return COMPRESS[encoding](payload)


def damaged(rnd: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(rnd.randint(0, 4)):
        data[rnd.randrange(len(data))] = rnd.randrange(256)
    if rnd.random() < 0.3:
        at = rnd.randrange(len(data))
        data[at:at] = rnd.randbytes(rnd.randint(1, 9))
    if rnd.random() < 0.3:
        del data[rnd.randrange(len(data)) :]
    return bytes(data)


@pytest.mark.parametrize(("content_type", "encoding"), FORMS)
def test_damaged_requests_are_taken_in_whole_or_refused(
    tmp_path: Path, content_type: str, encoding: str
) -> None:
    rnd, statuses = random.Random(11), Counter[int]()
    tally = Tally()
    spool = Spool(tmp_path, tally)
    headers = {"content_encoding": encoding} if encoding else {}
    accepted = 0
    with http_door(spool, tally) as receiver:
        for seed in range(150):
            body = damaged(rnd, body_of(export_request(seed, SPANS), content_type, encoding))
            answer = send(receiver, body, content_type=content_type, **headers)
            statuses[answer.status] += 1
            told = tally.snapshot()["traces"].accepted if "traces" in tally.snapshot() else 0
            assert (told > accepted) <= (answer.status == 200), "stored means acknowledged"
            accepted = told
        assert send(receiver, body_of(export_request(999, SPANS), content_type, encoding),
                    content_type=content_type, **headers).status == 200  # fmt: skip
    assert set(statuses) <= {200, 400, 413}
    assert statuses[400] > 20
    assert statuses[200] > 5
    assert spool.pending() == {"traces": accepted + SPANS}


def test_damaged_http_never_ends_the_door(tmp_path: Path) -> None:
    rnd = random.Random(3)
    whole = (
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    with http_door(Spool(tmp_path)) as receiver:
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as sender:
                sender.sendall(damaged(rnd, whole))
                if rnd.random() < 0.5:
                    sender.shutdown(socket.SHUT_WR)
        wait_until(lambda: is_served(receiver))


class Senders:
    """Many senders that repeat, give up in the middle and try again, by every door. Counts what was acknowledged."""

    def __init__(self, grpc_at: str, http_at: str) -> None:
        self.grpc_at, self.http_at = grpc_at, http_at
        self.acknowledged: set[int] = set()
        self.refused = 0

    def run(self, number: int, seeds: list[int]) -> None:
        rnd = random.Random(number)
        with grpc.insecure_channel(self.grpc_at) as channel:
            export = channel.unary_unary(METHOD)
            for seed in seeds:
                payload = export_request(seed, SPANS)
                while seed not in self.acknowledged:
                    by_grpc = rnd.random() < 0.4
                    if self._by_grpc(export, payload) if by_grpc else self._by_http(rnd, payload):
                        self.acknowledged.add(seed)
                    else:
                        time.sleep(0.02)

    def _by_grpc(self, export: grpc.UnaryUnaryMultiCallable, payload: bytes) -> bool:
        try:
            export(payload, timeout=30)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            self.refused += 1
            return False
        return True

    def _by_http(self, rnd: random.Random, payload: bytes) -> bool:
        content_type, encoding = rnd.choice(FORMS)
        body = body_of(payload, content_type, encoding)
        headers = {"content-type": content_type} | ({"content-encoding": encoding} if encoding else {})
        host, _, port = self.http_at.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            if rnd.random() < 0.2:  # gives up in the middle
                connection.putrequest("POST", "/v1/traces")
                for name, value in {**headers, "content-length": str(len(body))}.items():
                    connection.putheader(name, value)
                connection.endheaders(body[: len(body) // 2])
                return False
            connection.request("POST", "/v1/traces", body, headers)
            if rnd.random() < 0.2:  # leaves before the answer: nobody knows
                return False
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        assert answer.status in (200, 503), answer.status
        self.refused += answer.status == 503
        return answer.status == 200


def test_what_is_acknowledged_is_stored_exactly_once(db: Database, tmp_path: Path) -> None:
    """With a spool that is full again and again."""
    pipeline = Pipeline(db.dsn, tmp_path, spool_limit_bytes=40_000, flush=Flush(age_s=0.05))
    receivers = [
        kind(pipeline.sink, pipeline.tally, "127.0.0.1:0") for kind in (OtlpGrpcReceiver, OtlpHttpReceiver)
    ]
    for receiver in receivers:
        receiver.start()
    senders = Senders(*(receiver.endpoint for receiver in receivers))
    threads = [
        threading.Thread(target=senders.run, args=(n, list(range(n * 15, n * 15 + 15)))) for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for receiver in receivers:
        receiver.stop(2)
    assert pipeline.close(60)
    assert len(senders.acknowledged) == 90
    assert senders.refused > 0, "the spool was full at times"
    counts = db.client.query(
        "SELECT count(), uniqExact(SpanId), uniqExact(TraceId) FROM otel_traces"
    ).result_rows
    assert counts == [(90 * SPANS,) * 3]
