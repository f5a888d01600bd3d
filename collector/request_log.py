"""Reads request logs: one JSON object a line, with what a response said of its tokens. Pure; the tail is log_tail.

A line is a record that some client wrote around a response, or the response itself, of the OpenAI, Anthropic or Gemini
API. Token counts come out in one form: `prompt_tokens` includes cached ones. What is missing stays missing: no cached
count is not a count of 0. Neither prompt nor response text is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from collector.sink import Entry

LABEL_FIELDS = ("phase", "experiment", "arm", "tenant", "template", "tag")
MAX_LINE_BYTES = 16 << 20
MAX_TEXT = 256  # characters of an id or a label: longer ones are content, not names
MAX_TOKENS = 2**32 - 1
MAX_SECONDS = 1e6
_PLAUSIBLE_S = (400 * 86_400, 86_400)  # before and after now

TOO_LONG, NOT_JSON, NOT_AN_OBJECT = "line is too long", "line is no JSON", "line is no JSON object"
NO_ID, NO_TIME, IMPLAUSIBLE = "no response id", "no time", "time is years off"

_decode = msgspec.json.Decoder().decode
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A row of `request_usage`. time: Unix seconds at which the request was sent; durations in microseconds."""

    time: float
    server: str
    model: str
    request_id: str
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
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
    line: bytes, server: str, now_s: float, label_fields: Sequence[str] = ()
) -> UsageRow | Rejected:
    """Read one line of the log of `server`.

    now_s: the time, in Unix seconds, against which that of the request must be plausible. label_fields: fields kept
    as labels besides LABEL_FIELDS.
    """
    if len(line) > MAX_LINE_BYTES:
        return Rejected(TOO_LONG)
    try:
        record = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Rejected(NOT_JSON)
    if not isinstance(record, dict):
        return Rejected(NOT_AN_OBJECT)
    response = _object(record, "response") or record
    own, around = _text(response, "id", "responseId"), _text(record, "request_id")
    request_id = _text(record, "response_id") or own or around
    if not request_id:
        return Rejected(NO_ID)
    sent = _sent(record, response)
    if sent is None:
        return Rejected(NO_TIME)
    if not now_s - _PLAUSIBLE_S[0] <= sent <= now_s + _PLAUSIBLE_S[1]:
        return Rejected(IMPLAUSIBLE)
    prompt, cached, completion = _usage(response)
    return UsageRow(
        time=round(sent, 6),
        server=server,
        model=_text(response, "model", "modelVersion") or _text(_object(record, "body"), "model"),
        request_id=request_id,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        client_ttft_us=_micros(record.get("ttft_s")),
        client_e2e_us=_micros(record.get("total_s")),
        finish_reason=_finish_reason(record, response),
        labels=_labels(record, (*LABEL_FIELDS, *label_fields)),
    )


def _usage(response: Record) -> tuple[int | None, int | None, int | None]:
    """(prompt tokens with cached ones, cached tokens, completion tokens), each None where not told."""
    if gemini := _object(response, "usageMetadata"):
        prompt, cached = (_tokens(gemini.get(f"{part}TokenCount")) for part in ("prompt", "cachedContent"))
        answer, thoughts = (_tokens(gemini.get(f"{part}TokenCount")) for part in ("candidates", "thoughts"))
        return prompt, cached, answer if thoughts is None else _tokens((answer or 0) + thoughts)
    usage = _object(response, "usage")
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        # Anthropic's: input_tokens are those neither read from the cache nor written to it
        read, written = (_tokens(usage.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
        fresh = _tokens(usage.get("input_tokens"))
        prompt = None if fresh is None else _tokens(fresh + (read or 0) + (written or 0))
        return prompt, read, _tokens(usage.get("output_tokens"))
    details = _object(usage, "prompt_tokens_details") or _object(usage, "input_tokens_details")
    return (
        _tokens(usage.get("prompt_tokens", usage.get("input_tokens"))),
        _tokens(details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))),  # DeepSeek's name
        _tokens(usage.get("completion_tokens", usage.get("output_tokens"))),
    )


def _sent(record: Record, response: Record) -> float | None:
    """Unix seconds at which the request was sent, or the nearest thing the line tells."""
    sent = record.get("sent_unix_ns")
    if isinstance(sent, (int, float)) and _number(sent) is not None:
        return sent // 1000 / 1e6  # in whole microseconds first: a float cannot tell Unix nanoseconds apart
    for value in (*map(record.get, ("time", "timestamp")), *map(response.get, ("created", "createTime"))):
        if (seconds := _number(value)) is not None:
            return seconds
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                continue
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _finish_reason(record: Record, response: Record) -> str:
    told = _text(record, "finish_reason") or _text(response, "finish_reason", "stop_reason")
    for name in ("choices", "candidates"):
        choices = response.get(name)
        if not told and isinstance(choices, list) and choices and isinstance(choices[0], dict):
            told = _text(choices[0], "finish_reason", "finishReason")
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


def _object(record: Record, name: str) -> Record:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _text(record: Record, *names: str) -> str:
    """The first of the fields that is a text of believable length."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and 0 < len(value) <= MAX_TEXT:
            return value
    return ""


def _number(value: object) -> float | None:
    """A JSON number as a float; None for what is none, or is beyond the range of one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _tokens(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number <= MAX_TOKENS else None


def _micros(seconds: object) -> int | None:
    number = _number(seconds)
    return round(number * 1e6) if number is not None and 0 <= number <= MAX_SECONDS else None
