"""What is known of a server that was asked over HTTP: what it is, what it tells, and the flag that opens the rest."""

from __future__ import annotations

import ipaddress
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cachemodel.address import bearer_key, server_url
from cachemodel.content import ContentHasher
from cachemodel.errors import UserError
from collector.fetch import FetchError, Response, get
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.scrape import Target
from collector.series import LastSample, Resolver
from collector.sink import Entry, Sink
from collector.source import Source

if TYPE_CHECKING:
    from collector.kv.stream import Position
    from collector.resume import Stored


SERVICE_NAME = "OTEL_SERVICE_NAME=NAME"
"""In a flag: `with_service` puts the server's name in."""


@dataclass(frozen=True, slots=True)
class Capability:
    """One signal. seen: None where nothing that can be asked tells; flag: what opens it, empty where nothing does or
    nothing has to."""

    signal: str
    seen: bool | None
    evidence: str
    flag: str = ""


@dataclass(frozen=True, slots=True)
class KvSource:
    """A publisher of KV events as the server names it. topic: empty where it publishes under none; connects: whether it
    connects to who listens at `events`, None where vLLM's rule tells."""

    rank: int
    events: str
    replay: str
    topic: str
    connects: bool | None = None


@dataclass(frozen=True, slots=True)
class Visit:
    """What a source needs that is opened for a server of that name.

    token: bearer token, empty for none. interval_s: between polls. stored: lets it take up what an earlier run left
    off, None where that is not known. window: which times are kept. hasher: of the installation.
    """

    server: str
    token: str
    interval_s: float
    sink: Sink
    stored: Stored | None = None
    window: Window = DEFAULT_WINDOW
    hasher: ContentHasher = field(kw_only=True)

    def target(self, url: str) -> Target:
        """What to ask at `url`, as this visit asks."""
        return Target(self.server, url, self.interval_s, token=self.token, window=self.window)

    def samples(self) -> Mapping[int, LastSample]:
        """The newest samples of the server's series that are stored, by fingerprint."""
        return self.stored.samples(self.server) if self.stored else {}

    def kv_positions(self, rank: int) -> Mapping[str, Position]:
        """Where the KV streams of a rank stand in the store, by source."""
        return self.stored.kv_positions(self.server, rank) if self.stored else {}


@dataclass(frozen=True, slots=True)
class Door:
    """Another way into a server than /metrics, KV events and OTLP, such as an endpoint to poll.

    open: makes the source. drains: whether reading takes the data from whoever else reads there, so that it wants
    consent.
    """

    name: str
    open: Callable[[Visit], Source]
    drains: bool = False


LineReader = Callable[[str, float], Sequence[Entry]]
"""Reads the lines of a server's own log one after the other: from a line and the time now (Unix seconds), what it means
as entries, none for a line that means nothing. May remember earlier lines."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A server that was recognised.

    facts: what it says of its cache, in its own words; notes: what to mind when reading this version's numbers;
    metrics_url: empty where it has no Prometheus metrics; resolve: gives those their canonical names; doors: what else
    can be read; log_reader: makes a reader of its log for a server of that name, None where no
    log is understood; service, instance: `service.name` and `service.instance.id` of its spans, empty where it does not
    tell.
    """

    url: str
    kind: str
    version: str
    models: tuple[str, ...]
    facts: Mapping[str, str]
    capabilities: tuple[Capability, ...]
    notes: tuple[str, ...]
    kv_sources: tuple[KvSource, ...]
    metrics_url: str
    resolve: Resolver
    doors: tuple[Door, ...] = ()
    log_reader: Callable[[str], LineReader] | None = None
    service: str = ""
    instance: str = ""


Detector = Callable[["Probe", str], Detection | None]
"""Recognises one kind of server behind a probe. The text is the address (host:port) where spans would be received."""


class Probe:
    """Asks one server, each path once."""

    def __init__(self, url: str, api_key: str = "", timeout_s: float = 3.0) -> None:
        self.url = server_url(url)
        self._api_key = bearer_key(api_key)
        self._timeout_s = timeout_s
        self._answers: dict[str, Response] = {}

    def get(self, path: str) -> Response:
        """The answer, whatever its status. Raises UserError where there is none."""
        if path not in self._answers:
            try:
                self._answers[path] = get(self.url + path, timeout_s=self._timeout_s, token=self._api_key)
            except FetchError as error:
                raise UserError(f"{self.url}: {error}; is the server up, and is this its address?") from error
        return self._answers[path]

    @property
    def locked(self) -> dict[str, int]:
        """The addresses asked so far that want a key, with the status that said so."""
        statuses = {self.url + path: answer.status for path, answer in self._answers.items()}
        return {address: status for address, status in statuses.items() if status in (401, 403)}

    def text(self, path: str) -> bytes:
        """The body; empty for any status but 200."""
        answer = self.get(path)
        return answer.body if answer.status == 200 else b""

    def models(self) -> list[dict[str, Any]]:
        """The models of /v1/models, each as the server describes it."""
        data = self.json("/v1/models").get("data")
        return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []

    def json(self, path: str) -> dict[str, Any]:
        """The body as a JSON object; empty where it is anything else."""
        try:
            value = json.loads(self.text(path))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant by, or reach, an address of that host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def with_service(detection: Detection, service: str) -> Detection:
    """The detection with that `service.name` in its flags, where they leave it open."""
    name = f"OTEL_SERVICE_NAME={shlex.quote(service)}"
    rows = (replace(row, flag=row.flag.replace(SERVICE_NAME, name)) for row in detection.capabilities)
    return replace(detection, capabilities=tuple(rows))


def receiver(url: str, otlp: str) -> str:
    """Where the server at `url` can send spans that are received at `otlp` (host:port)."""
    host, _, port = otlp.rpartition(":")
    local = is_loopback(urlsplit(url).hostname or "")
    return otlp if local or not is_loopback(host) else f"THIS-MACHINE:{port}"


def kv_addresses(url: str) -> dict[str, str]:
    """Where the server at `url` may publish KV events, and replay them, as in a --kv-events-config.

    The ports follow from the server's own, and leave room for ranks on consecutive ones: servers of one host that are
    all set up so are not in each other's way.
    """
    parts = urlsplit(url)
    host = "127.0.0.1" if is_loopback(parts.hostname or "") else "*"
    number = (parts.port or (443 if parts.scheme == "https" else 80)) % 10_000
    return {
        "endpoint": f"tcp://{host}:{10_000 + number}",
        "replay_endpoint": f"tcp://{host}:{20_000 + number}",
    }


def attached_with(kv_events_config: Mapping[str, object]) -> str:
    """What a flag for KV events needs on our side; empty where the publisher binds and tells where.

    A publisher at a concrete address connects: hitmap has to listen there, and does so only where a person says it.
    """
    endpoint, replay = kv_events_config["endpoint"], kv_events_config["replay_endpoint"]
    if "*" in str(endpoint):
        return ""
    return f", then hitmap attach --kv-events {endpoint} --replay {replay}"
