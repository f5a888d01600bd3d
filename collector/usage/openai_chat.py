"""OpenAI chat completions, and what speaks that API: vLLM, SGLang, llama.cpp, most gateways.

Source: OpenAI API reference; telemetry atlas 1.3 and 2; LiteLLM issue 13207. `prompt_tokens` includes cached ones.
`prompt_tokens_details` is null where a server does not count (vLLM without --enable-prompt-tokens-details, SGLang
without --enable-cache-report): unknown, never 0.
"""

from __future__ import annotations

from collector.usage.style import Row, Style

_DETAILS = "usage.prompt_tokens_details"

STYLE = Style(
    "openai-chat",
    marks=("usage.prompt_tokens", "usage.completion_tokens", _DETAILS),
    rows=(
        Row(
            "prompt_tokens",
            ("usage.prompt_tokens",),
            trap="cached ones included; subtract to get the computed",
        ),
        Row("cached_tokens", (f"{_DETAILS}.cached_tokens",), trap="local and external hits together on vLLM"),
        Row("created_tokens", (f"{_DETAILS}.cache_write_tokens",)),
        Row("created_tokens", (f"{_DETAILS}.created_cache_tokens",), trap="vLLM's name"),
        Row("created_tokens", (f"{_DETAILS}.cache_creation_tokens",), trap="LiteLLM's name"),
        Row("completion_tokens", ("usage.completion_tokens",), trap="reasoning tokens included"),
    ),
)
