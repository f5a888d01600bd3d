"""Anthropic's Messages API, on Bedrock's InvokeModel and on other servers' /v1/messages too.

Source: Anthropic's prompt caching guide; recorded responses (traceloop/openllmetry). `input_tokens` are those after the
last cache breakpoint: neither read from the cache nor written to it. The prompt is the sum of the three.
"""

from __future__ import annotations

from collector.usage.style import Row, Style

_READ, _WRITTEN = "usage.cache_read_input_tokens", "usage.cache_creation_input_tokens"
_BY_LIFETIME = (
    "usage.cache_creation.ephemeral_5m_input_tokens",
    "usage.cache_creation.ephemeral_1h_input_tokens",
)

STYLE = Style(
    "anthropic",
    marks=(_READ, _WRITTEN, "usage.cache_creation"),
    rows=(
        Row("cached_tokens", (_READ,)),
        Row("created_tokens", (_WRITTEN,)),
        Row(
            "created_tokens",
            also=_BY_LIFETIME,
            trap="the same tokens by lifetime: one or the other, never both",
        ),
        Row(
            "prompt_tokens",
            ("usage.input_tokens",),
            also=("=cached_tokens", "=created_tokens"),
            trap="input_tokens leaves out what was read from the cache or written to it",
        ),
        Row("completion_tokens", ("usage.output_tokens",), trap="of a stream: the last message_delta's"),
    ),
)
