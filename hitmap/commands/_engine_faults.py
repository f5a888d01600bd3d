"""Asks a reference engine for its faults, or for others."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, NamedTuple

from cachemodel.errors import UsageError, UserError
from cachemodel.printable import printable

_PATH = "/v1/admin/faults"
_ANSWER_BYTES = 1 << 20
_TIMEOUT_S = 10
_STRANGE = (ValueError, LookupError, TypeError, RecursionError, HTTPException, OSError)  # no engine's answer
_OF_THE_ENGINE = (400, 401, 403)  # statuses whose words are for whoever asked


class On(NamedTuple):
    """A fault that is on."""

    id: int
    spec: str


def ask(
    method: str, url: str, token: str | None, spec: str | None = None, *, fault: int | None = None
) -> list[On]:
    """The faults that are on afterwards. POST switches `spec` on, DELETE `fault` off (or all), GET none.

    Raises UsageError where the engine refuses the specification, UserError where no engine answers.
    """
    body = None if spec is None else spec.encode(errors="replace")
    headers = {"content-type": "text/plain", **({"authorization": f"Bearer {token}"} if token else {})}
    path = _PATH if fault is None else f"{_PATH}?id={fault}"
    try:
        request = urllib.request.Request(url + path, body, headers, method=method)  # noqa: S310 - http, as server_url
        with urllib.request.build_opener(_Direct).open(request, timeout=_TIMEOUT_S) as answer:
            told = json.loads(answer.read(_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        raise _refusal(url, error) from None
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise UserError(f"no hitmap engine at {url}: {reason}") from None
    try:
        return [On(int(fault["id"]), printable(str(fault["spec"]), lines=False)) for fault in told["faults"]]
    except _STRANGE:
        raise UserError(f"no hitmap engine at {url}: it answers something else") from None


def _refusal(url: str, error: urllib.error.HTTPError) -> UserError:
    try:
        told = json.loads(error.read(_ANSWER_BYTES))["error"]
        said, refused_spec = str(told["message"]), told["param"] == "spec"
    except _STRANGE:
        said, refused_spec = "", False
    if said and error.code in _OF_THE_ENGINE:
        return UsageError(said) if refused_spec else UserError(said)
    return UserError(f"no hitmap engine at {url}: it answers {error.code}")


class _Direct(urllib.request.HTTPRedirectHandler):
    """The token is for the server that was named, and for no other that it points to."""

    def redirect_request(self, *_: Any) -> None:
        return None
