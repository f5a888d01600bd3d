"""Where points go, as a person or OpenTelemetry's environment says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UsageError, UserError
from probes.daemon.endpoint import endpoint

ALL, METRICS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


@pytest.mark.parametrize(
    ("to", "target", "tls", "url"),
    [
        (None, "127.0.0.1:4317", False, ""),
        ("collector:4317", "collector:4317", False, ""),
        ("[::1]:4317", "[::1]:4317", False, ""),
        ("https://otlp.example:4317", "otlp.example:4317", True, ""),
        ("https://otlp.example", "otlp.example:443", True, ""),
        ("collector:4318", "collector:4318", False, "http://collector:4318/v1/metrics"),
        ("https://otlp.example/v1/metrics", "otlp.example:443", True, "https://otlp.example:443/v1/metrics"),
        ("http://[::1]:4318/", "[::1]:4318", False, "http://[::1]:4318/v1/metrics"),
        ("http://gateway:80/otlp/mine", "gateway:80", False, "http://gateway:80/otlp/mine"),
    ],
)
def test_addresses(to: str | None, target: str, tls: bool, url: str) -> None:
    found = endpoint(to, [], {})
    assert (found.target, found.tls, found.url) == (target, tls, url)


def test_the_environment_is_as_opentelemetry_has_it() -> None:
    assert endpoint(None, [], {ALL: "http://a:4317"}).target == "a:4317"
    assert endpoint(None, [], {ALL: "http://a:4317", METRICS: "http://b:4317"}).target == "b:4317"
    assert endpoint("c:4317", [], {ALL: "http://a:4317"}).target == "c:4317"
    assert endpoint(None, [], {ALL: "http://a/otlp"}).url == "http://a:80/otlp/v1/metrics"
    assert endpoint(None, [], {METRICS: "http://a/otlp"}).url == "http://a:80/otlp"
    http = {ALL: "http://a:4444", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert endpoint(None, [], http).url == "http://a:4444/v1/metrics"
    assert endpoint("c:4444", [], http).url == ""  # what is said of another address is not said of this


def test_headers(tmp_path: Path) -> None:
    told = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20a%3D,X-Scope=one, "}
    assert endpoint(None, [], told).headers == {"authorization": "Bearer a=", "x-scope": "one"}
    own = endpoint(None, ["Authorization=Bearer b"], told)
    assert own.headers == {"authorization": "Bearer b", "x-scope": "one"}
    assert "Bearer" not in repr(own), "a token is in no log"


@pytest.mark.parametrize(
    "header", ["authorization", "=x", "a b=c", "a=", "a=\n", "a=ü", "ü=a", "a\r\nb=c", "trace-bin=x"]
)
def test_a_header_that_gRPC_would_refuse_is_refused_at_once(header: str) -> None:
    with pytest.raises(UsageError):
        endpoint(None, [header], {})


def test_a_certificate_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        endpoint(None, [], {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "none.pem")})


@pytest.mark.parametrize(
    "address", ["collector", "ftp://a:1", "a:b", "a:99999", ":4317", "http://", "a b:1", "a:1\n", "[::1:4317"]
)
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(UserError, match="is no address of a collector"):
        endpoint(address, [], {})


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_clear_error(address: str) -> None:
    try:
        found = endpoint(address or "x", [], {})
    except UserError:
        return
    host, _, port = found.target.rpartition(":")
    assert host
    assert 0 < int(port) < 65536
