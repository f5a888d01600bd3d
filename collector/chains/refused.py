"""Whether the server refused a request, so that its prompt was never computed. Pure.

Lines say so by an HTTP status under several names, on the record or on the response that it wraps (results of OpenAI's
batches and of vLLM's run-batch), or by an error in its place. What a client or a gateway gave up on is no refusal: the
server was on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collector.usage import stream
from collector.usage.style import Record

GIVEN_UP = (408, 499, 504)
"""Statuses of who did not wait: a client's time-out, nginx's for a client that left, a gateway's time-out."""
_WAITED_WORDS = (
    "timeout",
    "timed out",
    "time-out",
    "cancel",
    "abort",
    "disconnect",
    "closed",
    "reset",
    "broken pipe",
)
_STATUS = ("status", "status_code", "http_status", "http_status_code", "statusCode")


def is_refused(record: Record, *, computed: bool) -> bool:
    """computed: whether the line tells of tokens, in or out."""
    places = list(_places(record))
    statuses = [status for place in places for status in _statuses(place)]
    if any(status >= 400 and status not in GIVEN_UP for status in statuses):
        return True
    if computed or record.get("client_aborted") is True or any(status in GIVEN_UP for status in statuses):
        return False
    errors = [(error, record.get("error_kind")) for place in places if (error := _error(place))]
    return bool(errors) and not any(_was_waited_for(error) for error in errors)


def _places(record: Record) -> Iterator[Record]:
    """The record, its response and what that wraps; of a streamed response the chunk that it begins with."""
    yield record
    told = record.get("response")
    if isinstance(told, str):
        told = list(stream.events(told)) or [_object(told)]
    if isinstance(told, list):
        told = told[0] if told else None
    if isinstance(told, dict):
        yield told
        if isinstance(body := told.get("body"), dict):
            yield body


def _object(text: str) -> Any:
    """The JSON object that a text is; None where it is none."""
    return stream.decoded(text) if text.lstrip().startswith("{") else None


def _statuses(place: Record) -> Iterator[int]:
    """HTTP statuses; an error's own code is one where it is a number of such."""
    error = place.get("error")
    told = [place.get(name) for name in _STATUS]
    if isinstance(error, dict):
        told += [error.get(name) for name in ("code", "status", *_STATUS)]
    if place.get("object") == "error":
        told.append(place.get("code"))
    for value in told:
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 100 <= value < 600:
            yield value


def _error(place: Record) -> object:
    """What stands in the place of an answer; nothing where there is one."""
    if place.get("object") == "error" or place.get("type") == "error":
        return place.get("message") or place.get("error") or True
    return place.get("error")


def _was_waited_for(error: object) -> bool:
    """Whether an error is that of who did not wait any longer."""
    told = str(error).lower()
    return any(word in told for word in _WAITED_WORDS)
