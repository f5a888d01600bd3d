"""Tells a webhook. A receiver that does not answer is tried again, a few times only; its token and the path of its URL,
which may be one, are in no message."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from analysis.alerts.alertmanager import Event, payload
from cachemodel.errors import UsageError, UserError
from store.client import LOOPBACK

WAITS_S = (0.5, 2.0)
"""Before the second and the third try."""
TIMEOUT_S = 5.0
MOST_EVENTS = 100
"""In one message; more are sent in several."""
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})


class NotDelivered(UserError):
    """The receiver did not take it."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Webhook:
    """url: http(s). token: sent as a bearer token, empty for none."""

    url: str
    token: str = ""
    waits_s: tuple[float, ...] = WAITS_S
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            good = False
        if not good:
            raise UsageError("--webhook takes a URL such as http://127.0.0.1:9093/hook")
        if parts.username or parts.password:
            raise UsageError("--webhook takes no user or password in its URL: give $HITMAP_WEBHOOK_TOKEN")
        if any(ord(char) <= 32 or ord(char) == 127 for char in self.token + self.url):
            raise UsageError(
                "the URL of --webhook or $HITMAP_WEBHOOK_TOKEN has blanks or control characters in it"
            )

    def __repr__(self) -> str:
        return f"Webhook({self.name})"

    @property
    def name(self) -> str:
        """What may be shown of it: scheme, host and port."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}"

    def tell(self, events: Sequence[Event], stopping: threading.Event | None = None) -> None:
        """Post the events, if there are any. Raises NotDelivered. stopping: ends the waits between tries."""
        for begin in range(0, len(events), MOST_EVENTS):
            body = json.dumps(payload(events[begin : begin + MOST_EVENTS]), allow_nan=False).encode()
            self._post(body, stopping or threading.Event())

    def _opener(self) -> urllib.request.OpenerDirector:
        """The environment's http_proxy is not asked for what runs on this machine."""
        direct = [urllib.request.ProxyHandler({})] if urlsplit(self.url).hostname in LOOPBACK else []
        return urllib.request.build_opener(_NoRedirect, *direct)

    def _post(self, body: bytes, stopping: threading.Event) -> None:
        for wait_s in (*self.waits_s, None):
            said, later = self._try(body)
            if not said:
                return
            if not later or wait_s is None or stopping.wait(wait_s):
                break
        raise NotDelivered(f"the webhook at {self.name} did not take the alerts: {said}")

    def _try(self, body: bytes) -> tuple[str, bool]:
        """What went wrong, empty if nothing, and whether it may go better later."""
        headers = {"content-type": "application/json", "user-agent": "hitmap"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url, body, headers, method="POST")  # noqa: S310 - http(s), as checked
        try:
            with self._opener().open(request, timeout=self.timeout_s) as answer:
                answer.read(1024)
            return "", False
        except urllib.error.HTTPError as error:
            with error:
                return f"it answers {error.code}", error.code in _LATER
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            return (getattr(reason, "strerror", None) or type(reason).__name__), True
