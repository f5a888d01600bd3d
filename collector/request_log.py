"""Reads request logs: one JSON object a line, with what a response said of itself. Pure; the tail is log_tail.

A line is a record that some client wrote around a response, or the response itself; a streamed response may be there as
a list of its chunks or as the text of the event stream. What it says of tokens and times is read by collector.usage.
Neither prompt nor response text is kept here; what the prompt was is for collector.chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from cachemodel.prompts.fields import field as at
from collector import usage
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.sink import Entry
from collector.usage import stream
from collector.usage.style import Record, Usage, number, seconds

LABEL_FIELDS = ("phase", "experiment", "arm", "tenant", "template", "tag")
MAX_LINE_BYTES = 16 << 20
MAX_TEXT = 256  # characters of an id or a label: longer ones are content, not names

_TIMES = ("time", "timestamp", "startTime", "start_time", "sent_at", "started_at", "request_time")
_OWN_TIMES = ("created", "created_at", "createTime")

TOO_LONG, NOT_JSON, NOT_AN_OBJECT = "line is too long", "line is no JSON", "line is no JSON object"
NO_ID, NO_TIME, IMPLAUSIBLE = "no response id", "no time", "time is years off"
CANARY, CANARY_MARK = "canary of hitmap's own", "hitmap-canary"
# Where a canary's mark may stand in a line: its id, and, where a server gives ids of its own, who asked.
_USERS = ("user", "end_user", "user_id", "metadata.user", "metadata.user_id")
_MARKED = (
    *("request_id", "client_request_id", "response_id"),
    *(f"{place}{name}" for place in ("", "body.", "request.", "request.body.") for name in _USERS),
)

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow(Usage):
    """A row of `request_usage`. time: Unix seconds at which the request was sent; client_*: as the client saw it."""

    time: float
    server: str
    model: str
    request_id: str
    client_ttft_us: int | None
    client_e2e_us: int | None
    finish_reason: str
    labels: dict[str, str]

    def entry(self) -> Entry:
        """The row for a sink. The same line gives the same bytes, so that a log read again adds nothing."""
        return Entry("usage", msgspec.json.encode(self) + b"\n", 1)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that makes no row; `reason` is one of a few fixed phrases."""

    reason: str


def parse_line(
    line: bytes, server: str, now_s: float, label_fields: Sequence[str] = (), window: Window = DEFAULT_WINDOW
) -> UsageRow | Rejected:
    """Read one line of the log of `server`: decode_line, then usage_row."""
    record = decode_line(line)
    if isinstance(record, Rejected):
        return record
    return usage_row(record, server, now_s, label_fields, window)


def decode_line(line: bytes) -> Record | Rejected:
    """The JSON object of a line."""
    if len(line) > MAX_LINE_BYTES:
        return Rejected(TOO_LONG)
    try:
        record = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Rejected(NOT_JSON)
    return record if isinstance(record, dict) else Rejected(NOT_AN_OBJECT)


def usage_row(
    record: Record,
    server: str,
    now_s: float,
    label_fields: Sequence[str] = (),
    window: Window = DEFAULT_WINDOW,
) -> UsageRow | Rejected:
    """The row of a line of the log of `server`.

    now_s: the time, in Unix seconds, against which that of the request must be plausible by `window`. label_fields:
    fields kept as labels besides LABEL_FIELDS.
    """
    response = _response(record)
    if is_canary(record, response):
        return Rejected(CANARY)
    request_id = _request_id(record, response)
    if not request_id:
        return Rejected(NO_ID)
    sent = _sent(record, response)
    if sent is None:
        return Rejected(NO_TIME)
    if not window.holds(sent, now_s):
        return Rejected(IMPLAUSIBLE)
    return UsageRow(
        **usage.read(response),
        time=round(sent, 6),
        server=server,
        model=_text(response, "model", "modelVersion") or _text(record, "body.model"),
        request_id=request_id,
        client_ttft_us=seconds(record.get("ttft_s")),
        client_e2e_us=seconds(record.get("total_s")),
        finish_reason=_finish_reason(record, response),
        labels=_labels(record, (*LABEL_FIELDS, *label_fields)),
    )


def is_canary(record: Record, response: Record) -> bool:
    """Whether the request was one of hitmap's own, which is no traffic."""
    told = (response.get("id"), *(at(record, place) for place in _MARKED))
    return any(isinstance(name, str) and CANARY_MARK in name for name in told)


def _response(record: Record) -> Record:
    """The response in a record, put together where it was streamed; the record itself where it is one."""
    told = record.get("response")
    if isinstance(told, str):
        return stream.joined(stream.events(told)) or record
    if isinstance(told, list):
        return stream.joined(told) or record
    if not isinstance(told, dict) or not told:
        return record
    body = told.get("body")  # results of OpenAI's batches, and of vLLM's run-batch, wrap it once more
    return body if isinstance(body, dict) and body else told


def _request_id(record: Record, response: Record) -> str:
    """What the server called the request, or else what the client did."""
    own = _text(response, "id", "responseId", "meta_info.id", "ResponseMetadata.RequestId")
    return _text(record, "response_id") or own or _text(record, "request_id")


def _sent(record: Record, response: Record) -> float | None:
    """Unix seconds at which the request was sent, or the nearest thing the line tells.

    What the record says goes before what the response does: `created` is in whole seconds. Of several times in a record
    one with a fraction of a second goes before one without.
    """
    sent = record.get("sent_unix_ns")
    if isinstance(sent, (int, float)) and number(sent) is not None:
        return sent // 1000 / 1e6  # in whole microseconds first: a float cannot tell Unix nanoseconds apart
    told = [moment for name in _TIMES if (moment := _moment(record.get(name))) is not None]
    own = [moment for name in _OWN_TIMES if (moment := _moment(response.get(name))) is not None]
    return next((moment for moment in told if moment % 1), next(iter([*told, *own]), None))


def _moment(value: object) -> float | None:
    """Unix seconds of a time: a number of them, of milli-, micro- or nanoseconds, or ISO 8601."""
    if (moment := number(value)) is not None:
        unit = next((unit for unit in (1e9, 1e6, 1e3) if abs(moment) >= 1e8 * unit), 1.0)
        return moment / unit
    if not isinstance(value, str):
        return None
    try:
        told = datetime.fromisoformat(value)
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _finish_reason(record: Record, response: Record) -> str:
    told = _text(record, "finish_reason") or _text(response, "finish_reason", "stop_reason", "stopReason")
    for name in ("choices", "candidates"):
        choices = response.get(name)
        if not told and isinstance(choices, list) and choices and isinstance(choices[0], dict):
            told = _text(choices[0], "finish_reason", "finishReason")
    told = told or _text(response, "meta_info.finish_reason.type")
    return told or ("abort" if record.get("client_aborted") is True else "")


def _labels(record: Record, names: Sequence[str]) -> dict[str, str]:
    """The fields that are there and short enough to be names."""
    labels = {}
    for name in names:
        value = record.get(name)
        if isinstance(value, bool):
            value = str(value).lower()
        if isinstance(value, (str, int, float)) and 0 < len(text := str(value)) <= MAX_TEXT:
            labels[name] = text
    return labels


def _text(record: Record, *places: str) -> str:
    """The first of the places that holds a text of believable length."""
    for place in places:
        value = at(record, place)
        if isinstance(value, str) and 0 < len(value) <= MAX_TEXT:
            return value
    return ""
