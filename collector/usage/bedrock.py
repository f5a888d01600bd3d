"""Amazon Bedrock: Converse, and the metrics that end a stream of InvokeModel.

Source: Bedrock API reference (TokenUsage, ConverseMetrics) and user guide, which spell the cache counts in three ways.
`inputTokens` leaves out cached and written ones, `totalTokens` has them.
"""

from __future__ import annotations

from functools import partial

from collector.usage.style import Row, Style, milliseconds

_ms = partial(Row, read=milliseconds)
_STREAM = "amazon-bedrock-invocationMetrics"
_PARTS = ("=cached_tokens", "=created_tokens")

STYLE = Style(
    "bedrock",
    marks=("usage.inputTokens", f"{_STREAM}.inputTokenCount"),
    rows=(
        Row("cached_tokens", ("usage.cacheReadInputTokens",)),
        Row("cached_tokens", ("usage.cacheReadInputTokenCount",)),
        Row("cached_tokens", ("usage.cacheReadInputTokensCount",)),
        Row("cached_tokens", (f"{_STREAM}.cacheReadInputTokenCount",)),
        Row("created_tokens", ("usage.cacheWriteInputTokens",)),
        Row("created_tokens", ("usage.cacheWriteInputTokenCount",)),
        Row("created_tokens", ("usage.cacheWriteInputTokensCount",)),
        Row("created_tokens", (f"{_STREAM}.cacheWriteInputTokenCount",)),
        Row("prompt_tokens", ("usage.inputTokens",), also=_PARTS, trap="inputTokens leaves out both parts"),
        Row("prompt_tokens", (f"{_STREAM}.inputTokenCount",), also=_PARTS),
        Row("completion_tokens", ("usage.outputTokens",)),
        Row("completion_tokens", (f"{_STREAM}.outputTokenCount",)),
        _ms("e2e_us", ("metrics.latencyMs",)),
        _ms("e2e_us", (f"{_STREAM}.invocationLatency",)),
        _ms("ttft_us", (f"{_STREAM}.firstByteLatency",)),
    ),
)
