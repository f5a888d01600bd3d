"""The words of spans that clients and gateways make: attribute names by convention, and what an input count includes.

Sources: OpenTelemetry semantic conventions for generative AI (semantic-conventions issue 2094, pull request 3163);
OpenLLMetry (opentelemetry-semantic-conventions-ai 0.5.1, issues 2819, 3647, 4060); OpenInference (semantic conventions
0.1.42, pull request 1429); Langfuse issue 12306 for pydantic-ai's; anthropic 2.14.0 for what the SDK itself traces; the
telemetry atlas for vLLM's and SGLang's. Recorded from the packages: tests/data/client-spans.
"""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """One thing that a span tells. names: newest first; of those on a span the first counts."""

    term: str  # what spans.sql calls it
    names: tuple[str, ...]
    number: bool = True
    trap: str = ""


WORDS = (
    Word(
        "model",
        (
            *("gen_ai.response.model", "gen_ai.request.model"),
            *("llm.response.model_name", "llm.model_name", "llm.request.model_name"),
        ),
        number=False,
    ),
    Word(
        "request_id", ("gen_ai.response.id", "gen_ai.request.id"), number=False, trap="OpenInference has none"
    ),
    Word(
        "finish",
        ("gen_ai.response.finish_reasons", "llm.finish_reason", "anthropic.message.stop_reason"),
        number=False,
        trap="the first is a JSON list",
    ),
    Word("provider", ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"), number=False),
    Word(
        "input",
        (
            *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
            "llm.token_count.prompt",
        ),
        trap="may leave out cached tokens: see INPUT_RULES",
    ),
    Word(
        "output",
        (
            *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
            "llm.token_count.completion",
        ),
    ),
    Word("total", ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total")),
    Word(
        "cached",
        (
            *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
            *("gen_ai.usage.cached_tokens", "gen_ai.usage.input_tokens.cached"),
            *("gen_ai.usage.input_cached_tokens", "gen_ai.usage.details.cache_read_tokens"),
            *("llm.token_count.prompt_details.cache_read", "llm.token_count.prompt_details.cache_input"),
        ),
        trap="left out when zero by many: a missing count is unknown",
    ),
    Word(
        "written",
        (
            *("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
            *("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_write_input_tokens"),
            "gen_ai.usage.details.cache_write_tokens",
            "llm.token_count.prompt_details.cache_write",
        ),
    ),
    Word("reasoning", ("llm.token_count.completion_details.reasoning",)),
    Word(
        "ttft",
        (
            *("gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token"),
            "gen_ai.response.time_to_first_chunk",
        ),
        trap="seconds",
    ),
    Word("e2e", ("gen_ai.latency.e2e",)),
    Word("queue", ("gen_ai.latency.time_in_queue",)),
    Word("prefill", ("gen_ai.latency.time_in_model_prefill",)),
    Word("decode", ("gen_ai.latency.time_in_model_decode",)),
)

OLD_CACHE_NAMES = (
    *("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    "gen_ai.usage.cache_write_input_tokens",
)
NEW_CACHE_NAMES = (
    *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
    "gen_ai.usage.cache_write.input_tokens",
)
EXCLUSIVE_PROVIDERS = ("anthropic", "aws.bedrock", "aws_bedrock", "aws")
ADDS_THEM_UP = ("opentelemetry.instrumentation.anthropic",)
# SDKs that make spans of their own by default: what an instrumentation put around such a span tells of the same call.
TRACED_SDKS = ("com.anthropic.sdk.python",)


class InputRule(NamedTuple):
    """How many tokens the prompt has, if a condition holds: SQL over what `spans.sql` reads."""

    when: str
    prompt: str
    reason: str


# The first that holds counts. parts = cached + written, 0 where not told.
INPUT_RULES = (
    InputRule(
        "parts > 0 AND total = input + output + parts",
        "input + parts",
        "the total has room for the parts beside the input",
    ),
    InputRule(
        "input < cached OR input < written",
        "input + parts",
        "a part is greater than the whole: both are left out",
    ),
    InputRule(
        "exclusive",
        "input + parts",
        "Anthropic's and Bedrock's APIs leave the parts out, and the older spelling hands their number on",
    ),
    InputRule(
        "parts > input",
        "input + written",
        "each part fits but both do not: LiteLLM added what was read and forgot what was written (issue 13207)",
    ),
    InputRule(
        "openinference AND parts = 0 AND total > input + output + ifNull(reasoning, 0)",
        "NULL",
        "the total holds tokens that nothing explains: a translator dropped the cached ones (phoenix issue 13379)",
    ),
    InputRule(
        "true",
        "input",
        "the conventions, OpenAI's and Gemini's APIs count the parts in",
    ),
)


def terms() -> dict[str, str]:
    """What stands for `{term}` in spans.sql: each word, the flags, and the prompt."""
    found = {word.term: _read(word) for word in WORDS}
    found["traced_sdks"] = f"({', '.join(map(repr, TRACED_SDKS))})"
    found["exclusive"] = (
        f"lower({found['provider']}) IN {EXCLUSIVE_PROVIDERS}"
        f" AND hasAny(mapKeys(a), {list(OLD_CACHE_NAMES)})"
        f" AND NOT hasAny(mapKeys(a), {list(NEW_CACHE_NAMES)})"
        f" AND scope NOT IN ({', '.join(map(repr, ADDS_THEM_UP))})"
    )
    *rules, last = INPUT_RULES
    found["prompt"] = f"multiIf({', '.join(f'{rule.when}, {rule.prompt}' for rule in rules)}, {last.prompt})"
    return found


def _read(word: Word) -> str:
    text = f"a['{word.names[0]}']" if len(word.names) == 1 else f"first({list(word.names)})"
    return f"toFloat64OrNull({text})" if word.number else text
