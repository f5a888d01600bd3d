"""OTLP/HTTP over a real socket: what a sender is told."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from benchmarks.spans import export_request
from cachemodel.errors import UserError
from collector.otlp.body import MOST_MEMBERS, zstd
from collector.otlp.http import OtlpHttpReceiver
from collector.otlp.intake import MALFORMED, Limits
from collector.sink import Backpressure, Entry
from collector.spool import Spool
from collector.tally import Tally
from tests.collector.otlp import JSON, PROTOBUF, Answer, as_json, http_door, send

SMALL = Limits(message_bytes=100_000)


class Full:
    """A sink without room."""

    def put(self, entries: Sequence[Entry]) -> int:
        raise Backpressure(2.0)


def status_of(answer: Answer) -> tuple[int, int, str]:
    """HTTP status, code and message of an error, whichever form it is in."""
    if answer.headers["content-type"] == PROTOBUF:
        status = Status.FromString(answer.body)
        return answer.status, status.code, status.message
    told = json.loads(answer.body)
    return answer.status, told["code"], told["message"]


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        (None, bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("GZIP", lambda data: gzip.compress(data[:1000]) + gzip.compress(data[1000:])),
        ("deflate", zlib.compress),
        ("zstd", zstd.compress),
        ("zstd", lambda data: zstd.compress(data[:1000]) + zstd.compress(data[1000:])),
    ],
)
@pytest.mark.parametrize("content_type", [PROTOBUF, JSON, "Application/JSON; charset=utf-8"])
def test_every_encoding_and_form_of_a_request_is_the_same_request(
    tmp_path: Path, encoding: str | None, compress: Any, content_type: str
) -> None:
    payload = export_request(1, spans=20)
    body = payload if content_type == PROTOBUF else as_json(ExportTraceServiceRequest.FromString(payload))
    spool = Spool(tmp_path)
    with http_door(spool) as receiver:
        headers = {"content_encoding": encoding} if encoding else {}
        answer = send(receiver, compress(body), content_type=content_type, **headers)
    empty = (b"", PROTOBUF) if content_type == PROTOBUF else (b"{}", JSON)
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, *empty)
    batch = spool.seal("traces", 100, 1 << 20)
    assert batch
    assert (batch.rows, spool.payload(batch)) == (20, payload)


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
def test_partial_success_says_how_many_and_why(tmp_path: Path, content_type: str) -> None:
    request = ExportTraceServiceRequest.FromString(export_request(1, spans=3))
    request.resource_spans[0].scope_spans[0].spans[1].start_time_unix_nano = 1
    body = request.SerializeToString() if content_type == PROTOBUF else as_json(request)
    spool = Spool(tmp_path)
    with http_door(spool) as receiver:
        answer = send(receiver, body, content_type=content_type)
    assert answer.status == 200
    if content_type == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
        told = {"rejectedSpans": str(partial.rejected_spans), "errorMessage": partial.error_message}
    else:
        told = json.loads(answer.body)["partialSuccess"]
    assert told == {"rejectedSpans": "1", "errorMessage": "1 x time is too long ago"}
    assert spool.pending() == {"traces": 2}


def test_chunked_bodies_and_many_requests_on_one_connection(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    bodies = [export_request(seed, spans=5) for seed in range(20)]
    with http_door(spool) as receiver, socket.create_connection(("127.0.0.1", receiver.port)) as sender:
        for body in bodies:
            sender.sendall(
                b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for part in (body[:7], body[7:]):
                sender.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            sender.sendall(b"0\r\n\r\n")
            assert sender.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
    assert spool.pending() == {"traces": 100}


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
def test_a_request_that_offers_http_2_is_stored_once(tmp_path: Path, content_type: str) -> None:
    """As Java's HttpClient sends it unless told otherwise, and curl --http2."""
    body = export_request(1, spans=5)
    if content_type == JSON:
        body = as_json(ExportTraceServiceRequest.FromString(body))
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAMAAABkAAQBAAAA"}
    spool = Spool(tmp_path)
    with http_door(spool) as receiver:
        assert send(receiver, body, content_type=content_type, **offer).status == 200
    assert spool.pending() == {"traces": 5}


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"body": b"\xff\xff"}, (400, Code.INVALID_ARGUMENT, "not an ExportTraceServiceRequest")),
        ({"body": b"xxx", "content_encoding": "gzip"}, (400, Code.INVALID_ARGUMENT, "no valid gzip")),
        ({"body": b"xxx", "content_encoding": "deflate"}, (400, Code.INVALID_ARGUMENT, "no valid deflate")),
        ({"body": b"x" * 9, "content_encoding": "zstd"}, (400, Code.INVALID_ARGUMENT, "no valid zstd")),
        (
            {"body": gzip.compress(b"{}")[:-1], "content_encoding": "gzip"},
            (400, Code.INVALID_ARGUMENT, "ends inside"),
        ),
        ({"path": "/v1/trace"}, (404, Code.NOT_FOUND, "/v1/traces, /v1/metrics, /v1/logs")),
        ({"path": "/"}, (404, Code.NOT_FOUND, "/v1/traces")),
        ({"method": "GET"}, (405, Code.UNIMPLEMENTED, "POST")),
        ({"method": "PUT"}, (405, Code.UNIMPLEMENTED, "POST")),
        ({"body": bytes(200_000)}, (413, Code.RESOURCE_EXHAUSTED, "100000 bytes")),
        (
            {"body": gzip.compress(bytes(10**8)), "content_encoding": "gzip"},
            (413, Code.RESOURCE_EXHAUSTED, "decompressed"),
        ),
        (
            {"body": zstd.compress(bytes(10**8)), "content_encoding": "zstd"},
            (413, Code.RESOURCE_EXHAUSTED, "decompressed"),
        ),
        (
            {"body": gzip.compress(b"") * (MOST_MEMBERS + 1), "content_encoding": "gzip"},
            (400, Code.INVALID_ARGUMENT, "pieces"),
        ),
        ({"content_encoding": "br"}, (415, Code.INVALID_ARGUMENT, "'br'")),
        ({"content_encoding": "gzip, gzip"}, (415, Code.INVALID_ARGUMENT, "gzip, gzip")),
    ],
)
def test_refusals_have_a_status_in_the_form_of_the_request(
    tmp_path: Path, content_type: str, request_: dict[str, Any], expected: tuple[int, int, str]
) -> None:
    with http_door(Spool(tmp_path), limits=SMALL) as receiver:
        answer = send(receiver, **({"body": b"", "content_type": content_type} | request_))
        status, code, message = status_of(answer)
        assert (status, code) == expected[:2]
        assert expected[2] in message
        assert answer.headers["content-type"] == content_type
        assert "retry-after" not in answer.headers, "it is for good"
        assert send(receiver, b"").status == 200, "the door stays open"


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/protobuf", "multipart/form-data"])
def test_other_content_types_are_refused(tmp_path: Path, content_type: str | None) -> None:
    with http_door(Spool(tmp_path)) as receiver:
        answer = send(receiver, b"", content_type=content_type)
    assert status_of(answer)[:2] == (415, Code.INVALID_ARGUMENT)
    assert answer.headers["accept"] == "application/x-protobuf, application/json"


def test_malformed_requests_are_counted(tmp_path: Path) -> None:
    tally = Tally()
    with http_door(Spool(tmp_path, tally), tally, limits=SMALL) as receiver:
        send(receiver, b"\xff")
        send(receiver, b"{", "/v1/logs", content_type=JSON)
        send(receiver, b"\xff", "/v1/logs", content_encoding="gzip")
        send(receiver, bytes(200_000), "/v1/metrics")
    counted = {kind: dict(told.rejected) for kind, told in tally.snapshot().items()}
    assert counted == {"traces": {MALFORMED: 1}, "logs": {MALFORMED: 2}, "metrics": {MALFORMED: 1}}


@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
def test_a_full_spool_asks_to_come_back_later(content_type: str) -> None:
    body = export_request(1, spans=1)
    if content_type == JSON:
        body = as_json(ExportTraceServiceRequest.FromString(body))
    with http_door(Full()) as receiver:
        answer = send(receiver, body, content_type=content_type)
    assert status_of(answer)[:2] == (503, Code.UNAVAILABLE)
    assert answer.headers["retry-after"] == "2"


def test_a_failing_sink_is_an_error_in_the_form_of_the_request() -> None:
    class Broken:
        def put(self, entries: Sequence[Entry]) -> int:
            raise RuntimeError("secret")

    with http_door(Broken()) as receiver:
        answer = send(receiver, export_request(1, spans=1))
        assert status_of(answer) == (500, Code.INTERNAL, "the collector failed; its log says why")
        assert send(receiver, b"").status == 200


def test_a_token_is_demanded(tmp_path: Path) -> None:
    with http_door(Spool(tmp_path), token="s3cret") as receiver:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            answer = send(receiver, b"", **headers)
            assert status_of(answer)[:2] == (401, Code.UNAUTHENTICATED)
            assert answer.headers["www-authenticate"] == "Bearer"
        assert send(receiver, b"", authorization="Bearer s3cret").status == 200


def test_browsers_get_nothing(tmp_path: Path) -> None:
    page = {"origin": "https://evil.example"}
    with http_door(Spool(tmp_path)) as receiver:
        preflight = send(receiver, b"", method="OPTIONS", access_control_request_method="POST", **page)
        assert preflight.status == 405
        answers = [preflight, send(receiver, b"", **page), send(receiver, b"", method="GET", **page)]
        assert not [name for a in answers for name in a.headers if name.startswith("access-control")]
        # a name of the attacker's own that resolves to this machine
        assert status_of(send(receiver, b"", host="evil.example:4318"))[:2] == (421, Code.PERMISSION_DENIED)
        for host in ("localhost:4318", "LOCALHOST", "127.0.0.1", "[::1]:4318"):
            assert send(receiver, b"", host=host).status == 200


@pytest.mark.parametrize(
    ("address", "token", "status"), [("127.0.0.2:0", None, 421), ("127.0.0.2:0", "s3cret", 200)]
)
def test_who_shows_a_token_may_use_any_host_name(
    tmp_path: Path, address: str, token: str | None, status: int
) -> None:
    receiver = OtlpHttpReceiver(Spool(tmp_path), Tally(), address, token=token)
    receiver.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.2", receiver.port, timeout=30)
        headers = {"host": "collector.example", "authorization": f"Bearer {token}", "content-type": PROTOBUF}
        connection.request("POST", "/v1/traces", b"", headers)
        assert connection.getresponse().status == status
        connection.close()
    finally:
        receiver.stop(1)


def test_a_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UserError, match=r"OTLP/HTTP .*in use"),
    ):
        OtlpHttpReceiver(Spool(tmp_path), Tally(), f"127.0.0.1:{taken.getsockname()[1]}")
