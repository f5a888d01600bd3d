"""Gemini and Vertex AI: `usageMetadata`, in the camel case of the API or the snake case of its Python package.

Source: Gemini API reference (UsageMetadata). The prompt includes the cached part (billed once: LiteLLM issue 14849). A
count of zero is left out of the JSON, and so is one that was not taken: a missing cachedContentTokenCount is unknown.
"""

from __future__ import annotations

from collector.usage.style import Row, Style

_NEW, _PYTHON = "usageMetadata", "usage_metadata"

STYLE = Style(
    "gemini",
    marks=(f"{_NEW}.promptTokenCount", f"{_NEW}.totalTokenCount", f"{_PYTHON}.prompt_token_count"),
    rows=(
        Row(
            "prompt_tokens",
            (f"{_NEW}.promptTokenCount",),
            also=(f"{_NEW}.toolUsePromptTokenCount",),
            trap="results of tools that Google ran itself are counted apart",
        ),
        Row("cached_tokens", (f"{_NEW}.cachedContentTokenCount",)),
        Row(
            "completion_tokens",
            also=(f"{_NEW}.candidatesTokenCount", f"{_NEW}.thoughtsTokenCount"),
            trap="thoughts are generated too, and not among the candidates",
        ),
        Row(
            "prompt_tokens",
            (f"{_PYTHON}.prompt_token_count",),
            also=(f"{_PYTHON}.tool_use_prompt_token_count",),
        ),
        Row("cached_tokens", (f"{_PYTHON}.cached_content_token_count",)),
        Row(
            "completion_tokens",
            also=(f"{_PYTHON}.candidates_token_count", f"{_PYTHON}.thoughts_token_count"),
        ),
    ),
)
