"""What a collector answers, over real sockets, and what becomes of it."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from cachemodel.errors import UserError
from probes.daemon.channel import Channel, Refused, open_channel
from probes.daemon.endpoint import endpoint
from probes.daemon.otlp import export
from probes.reading import Reading
from tests.probes.daemon.receivers import HttpReceiver, Receiver, rejecting

HOST = {None: {"host.name": "h"}}


def request() -> bytes:
    from probes.daemon.deltas import Point

    return export(
        [Point(Reading("hitmap.page_faults", 3, "ebpf", 7), 1, 2, 3)], HOST, "1"
    ).SerializeToString()


def to(address: str, *headers: str, timeout_s: float = 5.0) -> Channel:
    return open_channel(endpoint(address, headers, {}), timeout_s)


def refused(channel: Channel) -> Refused:
    with pytest.raises(Refused) as answer:
        channel.send(request())
    channel.close()
    return answer.value


def test_a_stock_receiver_takes_it_with_its_headers() -> None:
    receiver = Receiver()
    with receiver.listening() as port:
        channel = to(f"127.0.0.1:{port}", "Authorization=Bearer t")
        assert channel.send(request()) == (0, "")
        channel.close()
    assert receiver.headers[0]["authorization"] == "Bearer t"
    assert receiver.taken == [ExportMetricsServiceRequest.FromString(request())]
    assert receiver.values() == [3]


def test_a_partial_success_says_how_many_were_rejected_and_why() -> None:
    receiver = Receiver()
    receiver.answer = lambda _, __: rejecting(2, "older than 400 days")
    with receiver.listening() as port:
        channel = to(f"127.0.0.1:{port}")
        taken = channel.send(request())
        channel.close()
    assert taken == (2, f"127.0.0.1:{port} rejected 2 points: older than 400 days")


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, True),
        (grpc.StatusCode.ABORTED, True),
        (grpc.StatusCode.DATA_LOSS, True),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
        (grpc.StatusCode.UNAUTHENTICATED, False),
        (grpc.StatusCode.UNIMPLEMENTED, False),
        (grpc.StatusCode.INTERNAL, False),
    ],
)
def test_codes_are_final_or_not_as_the_specification_has_them(code: grpc.StatusCode, again: bool) -> None:
    receiver = Receiver()
    receiver.answer = lambda _, context: context.abort(code, "so it is")
    with receiver.listening() as port:
        answer = refused(to(f"127.0.0.1:{port}"))
    assert (answer.again, answer.wait_s) == (again, None)
    assert str(answer) == f"127.0.0.1:{port} answers {code.name}: so it is"


def test_how_long_to_wait_is_read_from_the_status() -> None:
    def full(_: Receiver, context: grpc.ServicerContext) -> None:
        status = status_pb2.Status(code=8, message="full")
        status.details.add().Pack(error_details_pb2.BadRequest())
        delay = Duration(seconds=3, nanos=500_000_000)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        context.abort_with_status(rpc_status.to_status(status))

    receiver = Receiver()
    receiver.answer = full  # type: ignore[assignment]
    with receiver.listening() as port:
        answer = refused(to(f"127.0.0.1:{port}"))
    assert (answer.again, answer.wait_s) == (True, 3.5)


def test_nobody_there_and_a_door_that_speaks_nothing() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, but nobody listens
        port = held.getsockname()[1]
        answer = refused(to(f"127.0.0.1:{port}"))
        assert answer.again
        assert str(answer) == f"127.0.0.1:{port} cannot be reached: Connection refused"
        answer = refused(to(f"http://127.0.0.1:{port}/v1/metrics"))
        assert answer.again
        assert str(answer).endswith("/v1/metrics cannot be reached: [Errno 111] Connection refused")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert refused(to(f"127.0.0.1:{port}", timeout_s=0.5)).again
        assert refused(to(f"http://127.0.0.1:{port}/x", timeout_s=0.5)).again
    assert refused(to("no-such-host.invalid:4317", timeout_s=2)).again


def test_http() -> None:
    receiver = HttpReceiver()
    with receiver.listening() as port:
        assert f"OTLP over HTTP is http://127.0.0.1:{port}/v1/metrics" in str(
            refused(to(f"127.0.0.1:{port}"))
        )
        channel = to(f"http://127.0.0.1:{port}/v1/metrics", "Authorization=Bearer t")
        assert channel.send(request()) == (0, "")
        (method, path, headers, body) = receiver.taken.pop()
        assert (method, path, body) == ("POST", "/v1/metrics", request())
        assert (headers["content-type"], headers["authorization"]) == ("application/x-protobuf", "Bearer t")
        receiver.answers = [(200, {}, rejecting(1).SerializeToString())]
        assert channel.send(request()).rejected == 1
        for status, told, again, wait_s in (
            (429, {"retry-after": "7"}, True, 7.0),
            (503, {}, True, None),
            (503, {"retry-after": "Mon, 30 Nov 2026 00:00:00 GMT"}, True, None),
            (400, {}, False, None),
            (401, {}, False, None),
            (500, {}, False, None),
        ):
            receiver.answers = [(status, told, b"")]
            answer = refused(channel)
            assert (answer.again, answer.wait_s) == (again, wait_s), status
        receiver.answers = [(200, {}, b"<html>it works</html>")]
        answer = refused(channel)
        assert "does not answer as an OTLP collector does" in str(answer)
        assert not answer.again


def test_a_redirect_is_not_followed_as_a_question() -> None:
    """A POST becomes a GET there, whose 200 would say that the points were taken."""
    elsewhere, receiver = HttpReceiver(), HttpReceiver()
    with elsewhere.listening() as other, receiver.listening() as port:
        receiver.answers = [(302, {"location": f"http://127.0.0.1:{other}/v1/metrics"}, b"")]
        answer = refused(to(f"http://127.0.0.1:{port}/v1/metrics"))
    assert "answers 302" in str(answer)
    assert not answer.again
    assert elsewhere.taken == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) of localhost, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-out", str(made[0]), "-keyout", str(made[1])),
        ],
        check=True,
        capture_output=True,
    )
    return made


def test_grpc_with_tls_and_an_authority_of_ones_own(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    receiver = Receiver()
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
    with receiver.listening(credentials=credentials) as port:
        own = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(cert)}
        channel = open_channel(endpoint(f"https://localhost:{port}", ["authorization=Bearer t"], own))
        assert channel.send(request()) == (0, "")
        channel.close()
        assert receiver.headers[0]["authorization"] == "Bearer t"
        assert refused(to(f"https://localhost:{port}")).again, "the system does not trust it"
    assert len(receiver.taken) == 1


def test_https_with_an_authority_of_ones_own(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    receiver = HttpReceiver()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with receiver.listening(tls=context) as port:
        own = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(cert)}
        channel = open_channel(endpoint(f"https://localhost:{port}/v1/metrics", [], own))
        assert channel.send(request()) == (0, "")
        assert "certificate" in str(refused(to(f"https://localhost:{port}/v1/metrics")))
    with pytest.raises(UserError, match="no certificate in PEM form"):
        open_channel(endpoint("https://a/x", [], {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(Path(__file__))}))
