"""OpenAI's Responses API, and vLLM's of the same name.

Source: OpenAI API reference. In vLLM cached_tokens stayed 0 for a time because nothing filled it in (issue 23363): what
the response says is kept, and that it cannot be true shows in the counters of the server.
"""

from __future__ import annotations

from collector.usage.style import Row, Style

_DETAILS = "usage.input_tokens_details"

STYLE = Style(
    "openai-responses",
    marks=("usage.input_tokens", "usage.output_tokens", _DETAILS),
    rows=(
        Row(
            "prompt_tokens",
            ("usage.input_tokens",),
            trap="cached ones included, unlike Anthropic's of that name",
        ),
        Row("cached_tokens", (f"{_DETAILS}.cached_tokens",)),
        Row("created_tokens", (f"{_DETAILS}.cache_write_tokens",)),
        Row("completion_tokens", ("usage.output_tokens",), trap="reasoning tokens included"),
    ),
)
