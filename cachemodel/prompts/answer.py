"""The response beside a request: put together where it was streamed, whether it is a refusal, and its text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cachemodel.prompts.fields import Record

GIVEN_UP = (408, 499, 504)
"""Statuses of who did not wait: a client's time-out, nginx's for a client that left, a gateway's time-out."""
_WAITED = (
    *("timeout", "timed out", "time-out", "cancel", "abort", "disconnect", "closed", "reset", "broken pipe"),
)
_STATUS = ("status", "status_code", "http_status", "http_status_code", "statusCode")
_TELLING = frozenset((*_STATUS, "error", "object", "type"))
_ONCE = ("id", "responseId", "model", "modelVersion", "created", "created_at", "createTime")
_GROWING = (
    *("usage", "usageMetadata", "usage_metadata", "timings", "meta_info", "sglext"),
    *("metrics", "amazon-bedrock-invocationMetrics"),
)
_LAST = ("tokens_evaluated", "tokens_predicted")
_decode = msgspec.json.Decoder().decode


def response_of(record: Record) -> Record:
    """The response in a record, put together where it was streamed; the record itself where it is one."""
    told = record.get("response")
    if isinstance(told, str):
        return joined(events(told)) or record
    if isinstance(told, list):
        return joined(told) or record
    if not isinstance(told, dict) or not told:
        return record
    body = told.get("body")  # results of OpenAI's batches, and of vLLM's run-batch, wrap it once more
    return body if isinstance(body, dict) and body else told


def events(text: str) -> Iterator[Any]:
    """The JSON of each `data:` line of an event stream."""
    for line in text.splitlines():
        told = line.lstrip()
        if told.startswith("data:") and (event := decoded(told[5:])) is not None:
            yield event


def decoded(text: str) -> Any:
    """The value that JSON text is; None where it is none."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def joined(chunks: Iterable[Any]) -> dict[str, Any]:
    """One response out of the chunks of its stream; its text is under `text`."""
    whole: dict[str, Any] = {}
    said: list[str] = []
    for chunk in chunks:
        for part in _places_in(chunk):
            for name in _ONCE:
                if part.get(name):
                    whole.setdefault(name, part[name])
            for name in _GROWING:
                if isinstance(part.get(name), dict):
                    told = {key: value for key, value in part[name].items() if value is not None}
                    whole[name] = {**whole.get(name, {}), **told}
            for name in _LAST:
                if part.get(name):
                    whole[name] = part[name]
            said += [part[name] for name in ("text", "content") if isinstance(part.get(name), str)]
        if isinstance(chunk, dict) and isinstance(chunk.get("delta"), str):  # of the Responses API
            said.append(chunk["delta"])
    if whole and any(said):
        whole["text"] = "".join(said)
    return whole


def _places_in(chunk: Any) -> Iterator[dict[str, Any]]:
    """A chunk and what it wraps: a message or delta (Anthropic), a response (Responses API), a choice and its delta."""
    if not isinstance(chunk, dict):
        return
    yield chunk
    choices = chunk.get("choices") or chunk.get("candidates")
    choice = choices[0] if isinstance(choices, list) and choices else None
    delta = choice.get("delta") if isinstance(choice, dict) else None
    for inner in (chunk.get("message"), chunk.get("response"), chunk.get("delta"), choice, delta):
        if isinstance(inner, dict):
            yield inner


def text_of(record: Record, response: Record) -> str | None:
    """What was answered, as text; None where the record does not tell it."""
    for name in ("response_text", "completion", "output_text"):
        if isinstance(told := record.get(name), str):
            return told
    if isinstance(told := record.get("response"), str) and response is record:
        return told
    choices = response.get("choices") or response.get("candidates")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice = choices[0]
        message = choice.get("message") or choice.get("content")
        inner = message.get("content") or message.get("parts") if isinstance(message, dict) else message
        return _text(inner if inner is not None else choice.get("text"))
    if response is record:
        return None
    content = response.get("content")
    output = response.get("output")
    if isinstance(output, list):
        content = [
            block
            for item in output
            if isinstance(item, dict) and isinstance(item.get("content"), list)
            for block in item["content"]
        ]
    return _text(content if content is not None else response.get("text"))


def token_ids(response: Record) -> tuple[int, ...]:
    """The tokens of what was answered: vLLM's `return_token_ids` puts them into the choice, SGLang's native API beside
    the text; none where they are not told."""
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    for told in (choice.get("token_ids"), response.get("output_ids")):
        if isinstance(told, list) and told and all(type(one) is int and 0 <= one < 1 << 32 for one in told):
            return tuple(told)
    return ()


def _text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    said = [
        block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    return "".join(said) if said else None


def is_refused(record: Record, *, computed: bool) -> bool:
    """Whether the server refused the request, so that its prompt was never computed.

    Lines say so by an HTTP status, or by an error in the place of an answer. What a client or a gateway gave up on is
    no refusal. computed: whether the line tells of tokens, in or out.
    """
    places = [place for place in _answers(record) if not place.keys().isdisjoint(_TELLING)]
    statuses = [status for place in places for status in _statuses(place)]
    if any(status >= 400 and status not in GIVEN_UP for status in statuses):
        return True
    if computed or record.get("client_aborted") is True or any(status in GIVEN_UP for status in statuses):
        return False
    errors = [(error, record.get("error_kind")) for place in places if (error := _error(place))]
    return bool(errors) and not any(word in str(error).lower() for error in errors for word in _WAITED)


def _answers(record: Record) -> Iterator[Record]:
    """The record, its response and what that wraps; of a streamed response the chunk that it begins with."""
    yield record
    told = record.get("response")
    if isinstance(told, str):
        first = next(events(told), None)
        told = first if first is not None else decoded(told) if told.lstrip().startswith("{") else None
    if isinstance(told, list):
        told = told[0] if told else None
    if isinstance(told, dict):
        yield told
        if isinstance(body := told.get("body"), dict):
            yield body


def _statuses(place: Record) -> Iterator[int]:
    """HTTP statuses; an error's own code is one where it is a number of such."""
    error = place.get("error")
    told = [place[name] for name in _STATUS if name in place]
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
