"""A line of a log as the prompts that it holds. Pure.

The request stands under `body`, `request` or `request_body`, or is the line itself, with the response and its usage
beside it. Requests that the server refused were never computed, and canaries are hitmap's own: neither is a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachemodel.prompts import telemetry
from cachemodel.prompts.answer import is_refused, response_of, text_of, token_ids
from cachemodel.prompts.chat import messages_of, read_chat
from cachemodel.prompts.fields import Record, field, number
from cachemodel.prompts.model import Part, Prompt
from cachemodel.prompts.otlp import has_items
from cachemodel.prompts.plain import Told, are_tokens, read_plain, read_turns, token_part, turns_of
from cachemodel.prompts.record import about, body_of, is_canary, request_id
from cachemodel.prompts.telemetry import Conversations
from cachemodel.prompts.usage import counts

REFUSED, NO_PROMPT, CANARY = "refused by the server", "no prompt in the line", "canary of hitmap's own"
TOO_DEEP, NO_RECORD = "nested too deep", "line is no JSON object"
_RESPONSES = {"instructions", "tools", "previous_response_id", "conversation", "max_output_tokens"}
"""Fields that tell a request to the Responses API, whose `input` is a user's message, from a line with just a text."""
_IDS = ("prompt_token_ids", "body.prompt_token_ids", "body.input_ids", "response.prompt_token_ids")


def read(
    record: Mapping[str, Any], name: str, server: str = "", talks: Conversations | None = None
) -> list[Prompt] | str:
    """The prompts of a record, or a fixed phrase that says why there are none.

    name: the request's where the record gives it none, such as file and line. server: of which the log is. talks: where
    messages wait that are told one a log record; the list is empty where one was put there. Several prompts of one
    request have ids of their own; the count of tokens that they share is told of none of them.
    """
    try:
        if has_items(record) and (told := telemetry.read(record, name, server, talks)) is not None:
            return told
        return _read(record, name, server)
    except RecursionError:
        return TOO_DEEP


def read_value(
    value: object, name: str, server: str = "", talks: Conversations | None = None
) -> list[Prompt] | str:
    """The prompts of a whole line: a record, a text, a list of token ids or of messages."""
    if isinstance(value, str) or are_tokens(value):
        value = {"prompt": value}
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        value = {"conversations" if "from" in value[0] else "messages": value}
    return read(value, name, server, talks) if isinstance(value, dict) else NO_RECORD


def _read(record: Record, name: str, server: str) -> list[Prompt] | str:
    response = response_of(record)
    if is_canary(record, response):
        return CANARY
    prompt_tokens, cached_tokens = counts(response)
    waited = number(record.get("ttft_s"))
    if is_refused(record, computed=bool(prompt_tokens) or (waited is not None and 0 <= waited <= 1e6)):
        return REFUSED
    body = body_of(record)
    told = _told(record, body)
    if not told:
        return NO_PROMPT
    beside = about(record, body, response, server)
    own = request_id(record, response) or name
    if told[0].suffix:
        if told[0].suffix.startswith("/") and not beside["session"]:
            beside["session"] = own  # the turns of one conversation
        prompt_tokens = cached_tokens = None
    answer = text_of(record, response) if len(told) == 1 else None
    return [
        Prompt(
            request_id=own + one.suffix,
            parts=one.parts,
            marks=one.marks,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            response=one.response if one.response is not None else answer,
            reply=token_ids(response) if len(told) == 1 else (),
            body=body,
            **beside,
        )
        for one in told
    ]


def _told(record: Record, body: Record) -> list[Told]:
    """The prompts of a request in whichever form it is. What is said in messages goes before the ids of its tokens."""
    if found := messages_of(body):
        out = read_chat(body, *found)
        return [Told(tuple(out.parts), tuple(out.marks))] if out.parts else []
    if found := turns_of(body):
        return read_turns(body, *found)
    if isinstance(body.get("input"), str) and _RESPONSES & body.keys():
        message = {"role": "user", "content": body["input"]}
        out = read_chat(body, "input", [message])
        parts = [_at_input(part) for part in out.parts]
        return [Told(tuple(parts), tuple(out.marks))]
    if told := read_plain(body):
        return told
    for place in _IDS:
        if are_tokens(ids := field(record, place)):
            return [Told((token_part(place, ids),), ())]
    return []


def _at_input(part: Part) -> Part:
    """A user's text that is the whole `input`, at its place."""
    return Part("input", part.role, part.kind, part.text, 0) if part.message == 0 else part
