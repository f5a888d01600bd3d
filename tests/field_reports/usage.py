"""Field reports about what responses say of their tokens; in the form of `form`."""

from __future__ import annotations

from tests.field_reports import usage_counts
from tests.field_reports.form import FieldReport, Responses, Scrapes, Server, Silent, Spans, Warns
from tests.field_reports.texts import metrics
from tests.field_reports.usage_inputs import calls, figure, openai, tokens, vllm

NULL_DETAILS = [
    FieldReport(
        row=49,
        thread="vllm-project/vllm#16162, #18062",
        symptom="prompt_tokens_details is null in V1 although the cache hits",
        inputs=[
            Server(version="0.9.1"),
            calls(49, 6, openai(500, None)),
            vllm(prefix_cache_queries=(0, 3000), prefix_cache_hits=(0, 2400), prompt_tokens=(0, 3000)),
        ],
        expected=[*tokens(3000, None, None), Warns("cached-tokens-untold", said=None, corrected=0.8)],
    ),
    FieldReport(
        row=49,
        case="told",
        thread="vllm-project/vllm#16162, #18062",
        symptom="the same, with --enable-prompt-tokens-details",
        inputs=[Server(version="0.32.0"), calls(49, 6, openai(500, 400), "told")],
        expected=[*tokens(3000, 2400, 600), Silent("cached-tokens-untold")],
    ),
]

ALWAYS_ZERO = [
    FieldReport(
        row=50,
        thread="vllm-project/vllm#23363",
        symptom="cached tokens of the Responses API are always 0",
        inputs=[
            Server(version="0.10.1"),
            calls(
                50,
                6,
                {"input_tokens": 500, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 0}},
            ),
            vllm(prefix_cache_queries=(0, 3000), prefix_cache_hits=(0, 2400), prompt_tokens=(0, 3000)),
        ],
        expected=[Warns("responses-say-none", said=0, corrected=0.8)],
    ),
    FieldReport(
        row=50,
        case="filled-in",
        thread="vllm-project/vllm#23363",
        symptom="the same once they are filled in",
        inputs=[
            Server(version="0.32.0"),
            calls(
                50,
                6,
                {"input_tokens": 500, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 400}},
                "filled-in",
            ),
            vllm(prefix_cache_queries=(0, 3000), prefix_cache_hits=(0, 2400), prompt_tokens=(0, 3000)),
        ],
        expected=[*tokens(3000, 2400, 600), Silent("responses-say-none")],
    ),
    FieldReport(
        row=39,
        thread="sgl-project/sglang#20451",
        symptom="cached_tokens is 0 with MTP while the counters count hits",
        inputs=[
            Server(kind="sglang", version="0.5.9"),
            Responses(
                [
                    {
                        "meta_info": {
                            **{"id": f"39-{number}", "prompt_tokens": 500, "cached_tokens": 0},
                            "completion_tokens": 8,
                        }
                    }
                    for number in range(6)
                ]
            ),
            Scrapes(
                [
                    f'sglang:prompt_tokens_total{{model_name="m"}} {prompt}\n'
                    f'sglang:cached_tokens_total{{model_name="m",cache_source="device"}} {cached}'
                    for prompt, cached in ((0, 0), (3000, 2400))
                ],
                kind="sglang",
            ),
        ],
        expected=[Warns("responses-say-none", said=0, corrected=0.8)],
    ),
]

NOT_ON_THE_SPAN = [
    FieldReport(
        row=52,
        thread="vllm-project/vllm#41788",
        symptom="the request span says nothing of cached tokens; the response does",
        inputs=[
            Spans(
                [
                    {"gen_ai.request.id": f"52-{number}", "gen_ai.usage.prompt_tokens": 500}
                    for number in range(3)
                ],
                first_id=5200,
            ),
            calls(52, 3, openai(500, 400)),
        ],
        expected=[
            figure("(count(), countIf(dialect = 'vllm'))", (3, 3)),
            *tokens(1500, 1200, 300),
            Silent("cached-tokens-untold"),
        ],
    ),
    FieldReport(
        row=52,
        case="nobody-tells",
        thread="vllm-project/vllm#41788",
        symptom="neither span nor response says anything of cached tokens",
        inputs=[
            Spans(
                [{"gen_ai.request.id": "52-nobody", "gen_ai.usage.prompt_tokens": 500}],
                first_id=5210,
            ),
        ],
        expected=[*tokens(500, None, None), Warns("cached-tokens-untold", corrected=None)],
    ),
    FieldReport(
        row=32,
        thread="vllm-project/vllm#57596",
        symptom="requests with prompt_logprobs, which read no cache, count as full misses of the connector",
        inputs=[
            Server(version="0.32.0"),
            Scrapes(
                metrics(
                    counters={
                        "vllm:prompt_tokens": 18_000,
                        "vllm:prefix_cache_queries": 10_000,
                        "vllm:prefix_cache_hits": 6000,
                        "vllm:external_prefix_cache_queries": 4000 + 8000,
                        "vllm:external_prefix_cache_hits": 3000,
                        'vllm:prompt_tokens_by_source{source="local_compute"}': 1000 + 8000,
                        'vllm:prompt_tokens_by_source{source="local_cache_hit"}': 6000,
                        'vllm:prompt_tokens_by_source{source="external_kv_transfer"}': 3000,
                    }
                )
            ),
        ],
        expected=[
            Warns("external-lookups-recounted", said=0.25, corrected=0.75, about="prompt_logprobs"),
            Silent("lookups-recounted"),
        ],
    ),
]

REPORTS: tuple[FieldReport, ...] = (*NULL_DETAILS, *ALWAYS_ZERO, *NOT_ON_THE_SPAN, *usage_counts.REPORTS)
