"""`hitmap collect` as a person starts it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.running import Running
from benchmarks.spans import METHOD, export_request
from cachemodel.errors import UsageError
from collector.otlp.http import OtlpHttpReceiver
from collector.otlp.intake import SIGNALS
from collector.spool import Spool
from collector.tally import Tally
from hitmap.commands._collector_options import checked
from hitmap.doors import Doors
from tests.conftest import Database


def collect(home: Path, dsn: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hitmap", "collect", "--store", dsn, "--spool", str(home), *options],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_stores_what_it_received_and_ends_when_told(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.start_collector()
        with grpc.insecure_channel(running.endpoint) as channel:
            channel.unary_unary(METHOD)(export_request(1), timeout=10)
        assert running.collector
        running.collector.send_signal(signal.SIGTERM)
        assert running.collector.wait(30) == 0
        client = running.client()
        assert client.command("SELECT count() FROM otel_traces") == 512, "the end writes what is waiting"
        client.close()


def lines_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """What a process says until a line has the word in it."""
    assert process.stderr
    lines: list[str] = []
    while not lines or word not in lines[-1]:
        line = process.stderr.readline()
        assert line, lines
        lines.append(line)
    return lines


@contextmanager
def collecting(dsn: str, spool: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "hitmap", "collect", "--store", dsn, "--spool", str(spool), *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def post(address: str, body: bytes, token: str = "") -> int:
    request = urllib.request.Request(
        f"http://{address}/v1/traces", body, {"content-type": "application/x-protobuf"}
    )
    if token:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_both_doors_and_their_token(db: Database, tmp_path: Path) -> None:
    options = ("--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--token", "s3cret")
    with collecting(db.dsn, tmp_path, *options) as process:
        (line,) = lines_until(process, "memory stays below")
        found = re.search(r"OTLP/gRPC on (\S+); OTLP/HTTP on (\S+);", line)
        assert found, line
        with grpc.insecure_channel(found[1]) as channel:
            channel.unary_unary(METHOD)(
                export_request(1, spans=3), timeout=30, metadata=[("authorization", "Bearer s3cret")]
            )
        assert post(found[2], export_request(2, spans=4)) == 401
        assert post(found[2], export_request(2, spans=4), "s3cret") == 200
    assert db.client.command("SELECT count() FROM otel_traces") == 7


def test_a_door_that_was_not_asked_for_may_be_taken(db: Database, tmp_path: Path) -> None:
    """Another collector has 4318, say: said in a line, and gRPC goes on."""
    with ExitStack() as stack:
        with suppress(OSError):  # somebody else has it, which is as good
            stack.enter_context(socket.create_server(("127.0.0.1", 4318)))
        process = stack.enter_context(collecting(db.dsn, tmp_path, "--otlp-grpc", "127.0.0.1:0"))
        first, second = lines_until(process, "in use")
        assert "OTLP/gRPC on" in first
        assert "OTLP/HTTP on" not in first
        assert "4318 for OTLP/HTTP" in second


@pytest.mark.parametrize("off", ["grpc", "http"])
def test_a_door_can_stay_closed(db: Database, tmp_path: Path, off: str) -> None:
    other = {"grpc": "http", "http": "grpc"}[off]
    with collecting(db.dsn, tmp_path, f"--otlp-{off}", "off", f"--otlp-{other}", "127.0.0.1:0") as process:
        (line,) = lines_until(process, "memory stays below")
    assert [name for name in ("OTLP/gRPC", "OTLP/HTTP") if name in line] == [
        {"http": "OTLP/HTTP", "grpc": "OTLP/gRPC"}[other]
    ]


@pytest.mark.parametrize(("capture", "kept"), [((), False), (("--capture", "full"), True)])
def test_text_is_kept_only_when_asked_for(
    db: Database, tmp_path: Path, capture: tuple[str, ...], kept: bool
) -> None:
    request = ExportTraceServiceRequest.FromString(export_request(1, spans=1))
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key="gen_ai.input.messages").value.string_value = "the patient"
    with collecting(
        db.dsn, tmp_path, "--otlp-grpc", "off", "--otlp-http", "127.0.0.1:0", *capture
    ) as process:
        (line,) = lines_until(process, "memory stays below")
        address = line.partition("OTLP/HTTP on ")[2].partition(";")[0]
        assert post(address, request.SerializeToString()) == 200
    attributes = db.client.query("SELECT SpanAttributes FROM otel_traces").result_rows[0][0]
    assert ("gen_ai.input.messages" in attributes) is kept


def test_the_status_line_says_what_was_not_kept(tmp_path: Path) -> None:
    receiver = OtlpHttpReceiver(Spool(tmp_path), Tally(), "127.0.0.1:0")
    doors = Doors({"OTLP/HTTP": receiver}, {})
    assert doors.text_note() == ""
    request = ExportTraceServiceRequest.FromString(export_request(1, spans=1))
    request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="gen_ai.prompt")
    receiver.intake.take(SIGNALS[0], request.SerializeToString())
    assert doors.text_note() == "; 1 prompt and response texts not kept (--capture full keeps them)"
    receiver.stop()


@pytest.mark.parametrize("address", ["0.0.0.0:4317", "192.0.2.1:4317", "[::]:4317", "somewhere:4317"])
def test_off_loopback_a_token_is_needed(address: str) -> None:
    with pytest.raises(UsageError, match="token"):
        checked({"otlp_http": address})
    assert checked({"otlp_http": address, "token": "secret"}).otlp_http == address


@pytest.mark.parametrize("address", ["127.0.0.1:4317", "localhost:0", "[::1]:4317", "off"])
def test_on_loopback_no_token_is_needed(address: str) -> None:
    assert checked({"otlp_grpc": address}).otlp_grpc == address


@pytest.mark.parametrize("address", ["4317", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999", ""])
def test_a_malformed_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        checked({"otlp_grpc": address})


def test_what_is_wrong_is_said_in_one_line(store_server: object, tmp_path: Path) -> None:
    dsn = store_server.dsn  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = collect(tmp_path, dsn, "--otlp-grpc", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "in use" in ended.stderr
    ended = collect(tmp_path, dsn, "--otlp-grpc", "off", "--otlp-http", "off")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "nothing to receive" in ended.stderr
    ended = collect(tmp_path, "http://127.0.0.1:1/x", "--otlp-grpc", "127.0.0.1:0")
    assert ended.returncode == 1
    assert "no store answers" in ended.stderr.splitlines()[-1]
