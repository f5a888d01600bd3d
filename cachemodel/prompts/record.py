"""What stands beside a prompt in a record: whose it is, when it was sent, and what its cache depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from cachemodel.prompts.fields import Record, first_text, moment, name_of, number
from cachemodel.prompts.text import compact, intern

CANARY_MARK = "hitmap-canary"
BODIES = ("body", "request", "request_body")

_TIMES = ("time", "timestamp", "startTime", "start_time", "sent_at", "started_at", "request_time")
_OWN_TIMES = ("created", "created_at", "createTime")
_SESSIONS = (
    *("session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "threadId"),
    *("chat_id", "chatId", "litellm_session_id", "session", "conversation"),
)
_USERS = ("user", "end_user", "user_id", "userId", "safety_identifier")
_HEADERS = ("headers", "request_headers", "req_headers")
_SESSION_HEADERS = tuple(
    f"{prefix}{what}-id"
    for prefix in ("x-", "", "helicone-", "x-litellm-")
    for what in ("session", "conversation", "thread", "chat")
)
_MARKED, _MARKED_USERS = ("request_id", "client_request_id", "response_id"), ("user", "end_user", "user_id")
_WHO = (*_MARKED_USERS, "metadata")
_ISOLATING = ("cache_salt", "extra_key", "lora_path", "lora_name", "adapter_id", "lora", "lora_request")
MAX_ISOLATION = 4096  # characters of one option


class About(TypedDict):
    """The fields of Prompt that are the same for all prompts of a record."""

    session: str
    user: str
    time: float | None
    server: str
    model: str
    isolation: str
    reads_off: str


def body_of(record: Record) -> Record:
    """The request in a record; the record itself where it is one."""
    for name in BODIES:
        if isinstance(told := record.get(name), dict):
            inner = told.get("body")  # gateways wrap it with method and headers
            return inner if name != "body" and isinstance(inner, dict) else told
    return record


def about(record: Record, body: Record, response: Record, server: str) -> About:
    """What a record tells beside its prompt."""
    places = (record, body) if body is not record else (record,)
    if any("metadata" in place for place in places):
        told = (place.get("metadata") for place in places)
        places = (*places, *(metadata for metadata in told if isinstance(metadata, dict)))
    return About(
        session=_first(places, _SESSIONS) or _header(record),
        user=_first(places, _USERS),
        time=sent(record, response),
        server=server or name_of(record.get("server")),
        model=intern(
            first_text(response, ("model", "modelVersion"))
            or first_text(body, ("model",))
            or first_text(record, ("model",))
        ),
        isolation=isolation(body),
        reads_off=reads_off(body),
    )


def _first(places: tuple[Record, ...], names: tuple[str, ...]) -> str:
    for place in places:
        if place.keys().isdisjoint(names):
            continue
        for name in names:
            if name in place:
                told = place[name]
                if found := name_of(told.get("id") if isinstance(told, dict) else told):
                    return found
    return ""


def _header(record: Record) -> str:
    """The session that a request's headers name."""
    for place in (record, *map(record.get, BODIES)):
        if not isinstance(place, dict) or place.keys().isdisjoint(_HEADERS):
            continue
        for name in _HEADERS:
            if isinstance(headers := place.get(name), dict):
                lower = {key.lower(): value for key, value in headers.items()}
                for wanted in _SESSION_HEADERS:
                    told = lower.get(wanted)
                    if found := name_of(told[0] if isinstance(told, list) and told else told):
                        return found
    return ""


def request_id(record: Record, response: Record) -> str:
    """What the server called the request, or else what the client did."""
    own = first_text(response, ("id", "responseId", "meta_info.id", "ResponseMetadata.RequestId"))
    return (
        first_text(record, ("response_id",))
        or own
        or first_text(record, ("request_id", "client_request_id", "custom_id", "id"))
    )


def is_canary(record: Record, response: Record) -> bool:
    """Whether the request was one of hitmap's own, which is no traffic: by its ids, or by who asked."""
    told = [response.get("id"), *map(record.get, _MARKED)]
    request = record.get("request")
    inner = request.get("body") if isinstance(request, dict) else None
    for place in (record, record.get("body"), request, inner):
        if isinstance(place, dict) and not place.keys().isdisjoint(_WHO):
            told += map(place.get, _MARKED_USERS)
            if isinstance(metadata := place.get("metadata"), dict):
                told += [metadata.get("user"), metadata.get("user_id")]
    return CANARY_MARK in "\n".join([name for name in told if isinstance(name, str)])


def sent(record: Record, response: Record) -> float | None:
    """Unix seconds at which the request was sent, or the nearest thing the line tells.

    What the record says goes before what the response does: `created` is in whole seconds. Of several times in a record
    one with a fraction of a second goes before one without.
    """
    nanoseconds = record.get("sent_unix_ns")
    if isinstance(nanoseconds, (int, float)) and number(nanoseconds) is not None:
        # in whole microseconds first: a float cannot tell Unix nanoseconds apart
        return round(float(nanoseconds // 1000) / 1e6, 6)
    told = [time for name in _TIMES if name in record and (time := moment(record[name])) is not None]
    fine = next((time for time in told if time % 1), None)
    if fine is None:
        told += [time for name in _OWN_TIMES if (time := moment(response.get(name))) is not None]
        fine = told[0] if told else None
    return None if fine is None else round(fine, 6)


def isolation(body: Record) -> str:
    """The options that keep a request's blocks from others, each with its value; empty for none."""
    if body.keys().isdisjoint(_ISOLATING):
        return ""
    return intern(" ".join(f"{name}={_short(body[name])}" for name in _ISOLATING if body.get(name)))


def _short(value: object) -> str:
    return (value if isinstance(value, str) else compact(value))[:MAX_ISOLATION]


def reads_off(body: Mapping[str, object]) -> str:
    """The option that keeps the cache from being read, empty for none.

    vLLM reads none where the logprobs of the prompt are wanted (echo wants them with logprobs), or where it is told not
    to; llama.cpp where it is told not to.
    """
    if body.get("prompt_logprobs") is not None:
        return "prompt_logprobs"
    if body.get("echo") is True and body.get("logprobs") is not None:
        return "echo"
    if body.get("skip_reading_prefix_cache") is True:
        return "skip_reading_prefix_cache"
    return "cache_prompt" if body.get("cache_prompt") is False else ""
