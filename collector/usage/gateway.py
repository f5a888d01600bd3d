"""Gateways that put Anthropic's cache counts beside OpenAI's names, as LiteLLM does.

Source: LiteLLM issues 13207 and 14849, pull request 23342. What `prompt_tokens` includes changed with versions and call
types: both parts, reads only, or neither. The parts tell where it cannot be all of them.
"""

from __future__ import annotations

from collector.usage.style import Found, Record, Row, Style

_READ, _WRITTEN = "usage.cache_read_input_tokens", "usage.cache_creation_input_tokens"


def _add_what_is_left_out(found: Found, response: Record) -> None:
    prompt, read, written = (found.get(f"{part}_tokens", 0) for part in ("prompt", "cached", "created"))
    if "prompt_tokens" in found and prompt < read + written:
        found["prompt_tokens"] = prompt + written + (read if prompt < read else 0)


STYLE = Style(
    "gateway",
    marks=(_READ, _WRITTEN),
    within="usage.prompt_tokens",
    rows=(
        Row("cached_tokens", (_READ,)),
        Row("created_tokens", (_WRITTEN,)),
        Row("prompt_tokens", ("usage.prompt_tokens",), trap="may leave out written ones, or all cached ones"),
        Row("completion_tokens", ("usage.completion_tokens",)),
    ),
    settle=_add_what_is_left_out,
)
