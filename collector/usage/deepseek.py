"""DeepSeek's API: OpenAI's with hits and misses of its disk cache beside the total.

Source: DeepSeek API guide (context caching): prompt_tokens = prompt_cache_hit_tokens + prompt_cache_miss_tokens.
"""

from __future__ import annotations

from collector.usage.style import Row, Style

_HIT, _MISS = "usage.prompt_cache_hit_tokens", "usage.prompt_cache_miss_tokens"

STYLE = Style(
    "deepseek",
    marks=(_HIT, _MISS),
    rows=(
        Row("cached_tokens", (_HIT,)),
        Row("prompt_tokens", (_HIT, _MISS)),
        Row("completion_tokens", ("usage.completion_tokens",)),
    ),
)
