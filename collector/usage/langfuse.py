"""Langfuse: `usageDetails` of an exported generation.

Source: Langfuse documentation (token and cost tracking); issues 10592, 12306; codex-observability-plugin issue 22. The
usage types are to be disjoint, so that they add up to the total; integrations that pass on a prompt with its cached
part inside are found out by a total that has no room for the parts.
"""

from __future__ import annotations

from cachemodel.prompts.fields import field as at
from collector.usage.style import Found, Record, Row, Style, tokens

_D = "usageDetails"


def _add_the_parts(found: Found, response: Record) -> None:
    parts = found.get("cached_tokens", 0) + found.get("created_tokens", 0)
    whole = found.get("prompt_tokens")
    total = tokens(at(response, f"{_D}.total"))
    if whole is not None and (total is None or total != whole + found.get("completion_tokens", 0)):
        found["prompt_tokens"] = whole + parts


STYLE = Style(
    "langfuse",
    marks=(f"{_D}.input", f"{_D}.output"),
    rows=(
        Row(
            "prompt_tokens", (f"{_D}.input",), trap="without the cached part, unless the total says otherwise"
        ),
        Row("cached_tokens", (f"{_D}.input_cached_tokens",)),
        Row("cached_tokens", (f"{_D}.cache_read_input_tokens",)),
        Row("created_tokens", (f"{_D}.input_cache_creation",)),
        Row("created_tokens", (f"{_D}.cache_creation_input_tokens",)),
        Row("completion_tokens", (f"{_D}.output",)),
    ),
    settle=_add_the_parts,
)
