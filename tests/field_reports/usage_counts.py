"""Field reports about what a count includes and how it is spelled; in the form of `form`."""

from __future__ import annotations

import json

from tests.field_reports.form import FieldReport, Responses, Spans, Warns
from tests.field_reports.usage_inputs import chat, figure, openai, tokens

READ, WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"

IN_OR_OUT = [
    FieldReport(
        row=53,
        thread="BerriAI/litellm#14849",
        symptom="the cached part of a Gemini prompt is billed twice: in the prompt, and again as cached",
        inputs=[
            Responses(
                [
                    {
                        "responseId": "53-gemini",
                        "usageMetadata": {
                            **{"promptTokenCount": 100_000, "cachedContentTokenCount": 90_000},
                            **{"candidatesTokenCount": 500, "totalTokenCount": 100_500},
                        },
                    },
                    {"id": "53-gateway", "usage": openai(100_000, 90_000, 500)},
                ]
            )
        ],
        expected=[*tokens(200_000, 180_000, 20_000), figure("sum(completion_tokens)", 1000)],
    ),
    FieldReport(
        row=54,
        thread="BerriAI/litellm#13207",
        symptom="the total leaves out tokens written to the cache",
        inputs=[
            Responses(
                [
                    {
                        "id": "54-gateway",
                        "usage": {
                            **{"prompt_tokens": 120_357, "completion_tokens": 4156, "total_tokens": 124_513},
                            **{READ: 120_269, WRITTEN: 21_002},
                        },
                    },
                    {
                        "id": "54-provider",
                        "usage": {"input_tokens": 88, "output_tokens": 4156, READ: 120_269, WRITTEN: 21_002},
                    },
                ]
            )
        ],
        expected=[
            figure(
                "groupUniqArray((prompt_tokens, cached_tokens, created_tokens))", [(141_359, 120_269, 21_002)]
            ),
            figure("count()", 2),
        ],
    ),
    FieldReport(
        row=56,
        thread="langfuse/langfuse#10592, #5568, #12306, #9386",
        symptom="cached input is counted twice: `input` has it inside and it is added once more",
        inputs=[
            Responses(
                [
                    {"id": "56-openrouter", "usage": openai(17_903, 17_817)},
                    {
                        "id": "56-codex",
                        "usageDetails": {
                            **{"input": 117_231, "output": 225, "total": 117_456},
                            READ: 115_584,
                        },
                    },
                ]
            ),
            Spans(
                [
                    {
                        "langfuse.observation.type": "generation",
                        "langfuse.observation.usage_details": json.dumps(
                            {"input": 86, "input_cached_tokens": 17_817, "output": 8, "total": 17_911}
                        ),
                    }
                ],
                scope="langfuse-sdk",
                span_name="generation",
                first_id=5600,
            ),
            chat(
                56,
                {
                    **{"gen_ai.provider.name": "anthropic", "gen_ai.usage.input_tokens": 1000},
                    **{
                        "gen_ai.usage.cache_read.input_tokens": 900,
                        "gen_ai.usage.cache_creation.input_tokens": 60,
                    },
                },
                first_id=5610,
            ),
        ],
        expected=tokens(
            17_903 + 117_231 + 17_903 + 1000,
            17_817 + 115_584 + 17_817 + 900,
            86 + 1647 + 86 + 100,
        ),
    ),
    FieldReport(
        row=57,
        thread="Arize-ai/phoenix#13379",
        symptom="a translator drops the cache counts and leaves the total, whose rest is charged as output",
        inputs=[
            Spans(
                [
                    {
                        **{"openinference.span.kind": "LLM", "llm.token_count.prompt": 4299},
                        **{"llm.token_count.completion": 631, "llm.token_count.total": 58_291},
                    }
                ],
                scope="openinference.instrumentation.strands",
                span_name="chat",
                first_id=5700,
            )
        ],
        expected=[*tokens(None, None, None), figure("sum(completion_tokens)", 631)],
    ),
    FieldReport(
        row=57,
        case="not-translated",
        thread="Arize-ai/phoenix#13379",
        symptom="the same call as Strands itself tells it, over Bedrock, whose input leaves cached tokens out",
        inputs=[
            chat(
                57,
                {
                    **{"gen_ai.system": "strands-agents", "gen_ai.usage.input_tokens": 4299},
                    **{"gen_ai.usage.output_tokens": 631, "gen_ai.usage.total_tokens": 58_291},
                    "gen_ai.usage.cache_read_input_tokens": 35_574,
                    "gen_ai.usage.cache_write_input_tokens": 17_787,
                },
            )
        ],
        expected=[*tokens(57_660, 35_574, 22_086), figure("sum(completion_tokens)", 631)],
    ),
]

SPELLINGS = [
    FieldReport(
        row=58,
        thread="traceloop/openllmetry#3647, #4060, #2819",
        symptom="cached tokens are not on the span, or under names of older conventions",
        inputs=[
            chat(
                58,
                {"gen_ai.usage.prompt_tokens": 500, "gen_ai.usage.cache_read_input_tokens": 400},
                {"gen_ai.usage.input_tokens": 500, "gen_ai.usage.cache_read_input_tokens": 400},
                {"gen_ai.usage.input_tokens": 500, "gen_ai.usage.cache_read.input_tokens": 400},
                {"gen_ai.usage.input_tokens": 500},
                scope="opentelemetry.instrumentation.openai.v1",
            )
        ],
        expected=[
            *tokens(2000, 1200, 300),
            figure("countIf(cached_tokens IS NULL)", 1),
            Warns("cached-tokens-untold-by-some", said=0.6, corrected=0.8),
        ],
    ),
    FieldReport(
        row=59,
        thread="open-telemetry/semantic-conventions#2094, PR#3163",
        symptom="input_tokens must include cached tokens; before the rule Anthropic's own number was handed on",
        inputs=[
            chat(
                59,
                {
                    "gen_ai.provider.name": "anthropic",
                    "gen_ai.usage.input_tokens": 1169,
                    "gen_ai.usage.cache_read.input_tokens": 1165,
                },
                {
                    "gen_ai.system": "anthropic",
                    "gen_ai.usage.input_tokens": 4,
                    "gen_ai.usage.cache_read_input_tokens": 1165,
                },
                {
                    "gen_ai.system": "anthropic",
                    "gen_ai.usage.input_tokens": 2000,
                    "gen_ai.usage.cache_read_input_tokens": 1165,
                },
            )
        ],
        expected=[figure("arraySort(groupArray(prompt_tokens))", [1169, 1169, 3165])],
    ),
]

REPORTS: tuple[FieldReport, ...] = (*IN_OR_OUT, *SPELLINGS)
