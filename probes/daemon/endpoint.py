"""Where points go: an address of a collector, and what OpenTelemetry's environment variables say of it.

Names: https://opentelemetry.io/docs/specs/otel/protocol/exporter/; those for metrics go before those for all signals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from cachemodel.errors import UsageError, UserError

DEFAULT = "127.0.0.1:4317"
_HTTP_PORT, _HTTP_PATH = 4318, "/v1/metrics"
_HEADER = re.compile(r"[0-9A-Za-z_.-]+")  # of gRPC metadata, which is stricter than HTTP
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """told: as it was given. url: for OTLP over HTTP, empty for gRPC; target: HOST:PORT for gRPC. certificate: of the
    authority that signs the collector's, PEM; None for those that the system trusts."""

    told: str
    url: str
    target: str
    tls: bool
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: bytes | None = field(default=None, repr=False)


def endpoint(to: str | None, headers: Sequence[str], environment: Mapping[str, str]) -> Endpoint:
    """to: HOST:PORT or a URL, in place of the environment's. headers: NAME=VALUE, beside the environment's.

    Port 4318, a path, or http/protobuf in the environment mean OTLP over HTTP. Raises UserError where it is no address.
    """

    def told(name: str) -> str:
        names = (f"OTEL_EXPORTER_OTLP_METRICS_{name}", f"OTEL_EXPORTER_OTLP_{name}")
        return next((environment[one] for one in names if environment.get(one)), "")

    address = to or told("ENDPOINT") or DEFAULT
    split, port = _parsed(address)
    scheme, path = split.scheme or "http", split.path.rstrip("/")
    for_all = not to and not environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    if for_all and path and not path.endswith(_HTTP_PATH):
        path += _HTTP_PATH  # an endpoint of all signals is their common beginning
    http = port == _HTTP_PORT or path or (not to and told("PROTOCOL").startswith("http/"))
    host = f"[{split.hostname}]" if ":" in (split.hostname or "") else split.hostname
    return Endpoint(
        address,
        f"{scheme}://{host}:{port}{path or _HTTP_PATH}" if http else "",
        f"{host}:{port}",
        scheme == "https",
        {**_from_environment(told("HEADERS")), **_pairs(headers)},
        _read(told("CERTIFICATE")),
    )


def _parsed(address: str) -> tuple[SplitResult, int]:
    try:
        split = urlsplit(address if "://" in address else f"//{address}")
        port = split.port or _PORTS.get(split.scheme, 0)
        known = split.scheme in ("", *_PORTS) and split.hostname and port
    except ValueError:
        known = False
    if not known or not address.isprintable() or " " in address:
        raise UserError(f"{address} is no address of a collector: give HOST:PORT such as {DEFAULT}")
    return split, port


def _from_environment(told: str) -> dict[str, str]:
    """`name=value,name=value`, values percent-encoded."""
    return _pairs([unquote(pair) for pair in told.split(",") if pair.strip()])


def _pairs(told: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for one in told:
        name, _, value = (part.strip() for part in one.partition("="))
        if not _HEADER.fullmatch(name) or name.endswith("-bin") or not value:
            raise UsageError("a header is NAME=VALUE, as in authorization='Bearer TOKEN'")
        if not (value.isascii() and value.isprintable()):
            raise UsageError(f"the value of the header {name} must be printable ASCII")
        pairs[name.lower()] = value
    return pairs


def _read(certificate: str) -> bytes | None:
    if not certificate:
        return None
    try:
        return Path(certificate).read_bytes()
    except OSError as error:
        raise UserError(
            f"OTEL_EXPORTER_OTLP_CERTIFICATE: {certificate} cannot be read: {error.strerror}"
        ) from None
