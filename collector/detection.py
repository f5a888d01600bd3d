"""What is known of a server that was asked over HTTP: what it is, what it tells, and the flag that opens the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cachemodel.errors import UserError
from collector.fetch import FetchError, Response, get
from collector.series import Resolver


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
    """A publisher of KV events as the server names it. topic: empty where it publishes under none."""

    rank: int
    events: str
    replay: str
    topic: str


@dataclass(frozen=True, slots=True)
class Detection:
    """A server that was recognised.

    facts: what it says of its cache, in its own words; notes: what to mind when reading this version's numbers;
    resolve: gives its metrics their canonical names.
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


class Probe:
    """Asks one server, each path once."""

    def __init__(self, url: str, api_key: str = "", timeout_s: float = 3.0) -> None:
        self.url = base_url(url)
        self._api_key = api_key
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

    def text(self, path: str) -> bytes:
        """The body; empty for any status but 200."""
        answer = self.get(path)
        return answer.body if answer.status == 200 else b""

    def json(self, path: str) -> dict[str, Any]:
        """The body as a JSON object; empty where it is anything else."""
        try:
            value = json.loads(self.text(path))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def base_url(url: str) -> str:
    """The address that paths are appended to, from what people type."""
    url = url if "://" in url else f"http://{url}"
    url = url.rstrip("/").removesuffix("/metrics").removesuffix("/v1")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UserError(f"{url} is not the address of a server: give one such as http://127.0.0.1:8000")
    return url
