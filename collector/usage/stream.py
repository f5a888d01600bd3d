"""A streamed response as if it had come in one piece: its chunks, or the text of the event stream, put together.

Only what tells of the response is kept: no chunk's text. Counts grow along a stream, so a later chunk's replace those
of an earlier one, and a count that a later chunk leaves out stands (Anthropic's cache counts come with the first).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from collector.usage.style import Record

_ONCE = ("id", "responseId", "model", "modelVersion", "created", "created_at", "createTime")
_GROWING = (
    *("usage", "usageMetadata", "usage_metadata", "timings", "metrics", "meta_info", "sglext"),
    "amazon-bedrock-invocationMetrics",
)
_LAST = ("finish_reason", "stop_reason", "stopReason", "tokens_evaluated", "tokens_predicted")
_decode = msgspec.json.Decoder().decode


def events(text: str) -> Iterator[Any]:
    """The JSON of each `data:` line of an event stream; lines that hold none are passed over."""
    for line in text.splitlines():
        # "[DONE]", or a line that was cut, is none
        if line.lstrip().startswith("data:") and (event := decoded(line.lstrip()[5:])) is not None:
            yield event


def decoded(text: str) -> Any:
    """The value that JSON text is; None where it is none."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def joined(chunks: Iterable[Any]) -> Record:
    """One response out of the chunks of its stream."""
    whole: dict[str, Any] = {}
    for chunk in chunks:
        for part in _parts(chunk):
            for name in _ONCE:
                if part.get(name):
                    whole.setdefault(name, part[name])
            for name in _GROWING:
                if isinstance(part.get(name), dict):
                    told = {field: value for field, value in part[name].items() if value is not None}
                    whole[name] = {**whole.get(name, {}), **told}
            for name in _LAST:
                if part.get(name):
                    whole[name] = part[name]
    return whole


def _parts(chunk: Any) -> Iterator[dict[str, Any]]:
    """A chunk and what it wraps: Anthropic's message and delta, the Responses API's response, a choice."""
    if not isinstance(chunk, dict):
        return
    yield chunk
    choices = chunk.get("choices") or chunk.get("candidates")
    choice = choices[0] if isinstance(choices, list) and choices else None
    for inner in (chunk.get("message"), chunk.get("response"), chunk.get("delta"), choice):
        if isinstance(inner, dict):
            yield inner
    if isinstance(choice, dict) and isinstance(choice.get("finishReason"), str):
        yield {"finish_reason": choice["finishReason"]}
