"""Field reports about caches that never hit, or not for everyone; in the form of `form`."""

from __future__ import annotations

from tests.field_reports.form import FieldReport, Figure, KvEvents, Responses, Scrapes, Server, Silent, Warns
from tests.field_reports.texts import TWICE, VLLM, metrics, response, stored

GROUPS = (
    stored(1, 2, 3, group_idx=0, kv_cache_spec_kind="full_attention"),
    stored(1, 2, 3, group_idx=1, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=1024),
)
"""One prompt, as a model with full and with sliding-window layers tells of it."""

REPORTS: tuple[FieldReport, ...] = (
    FieldReport(
        1,
        "vllm-project/vllm#31920",
        "multi-round chat with identical history stays at 0%; cause not stated",
        [
            Server("vllm", "0.13.0", VLLM),
            Scrapes(metrics(counters={"vllm:prefix_cache_queries": 50_000, "vllm:prefix_cache_hits": 0})),
            KvEvents(TWICE),
        ],
        [
            Warns(
                "no-hit-though-repeated",
                said=0,
                corrected=None,
                evidence={"blocks": 3, "groups": 1, "drafting": "not seen", "looked_up": 50_000},
                about="31920",
            )
        ],
    ),
    FieldReport(
        3,
        "vllm#51198",
        "caching is accepted on a hybrid model, and a prompt of 561 tokens never hits",
        [
            Server("vllm", "0.32.0", VLLM | {"block_size": "1072"}),
            Responses([response(f"3-{n}", 561, 0) for n in range(6)]),
        ],
        [
            Warns(
                "prompts-below-unit",
                said=0,
                corrected=0,
                evidence={"unit": 1072, "short": 6, "requests": 6},
                about="hybrid",
            )
        ],
    ),
    FieldReport(
        7,
        "vllm#40624",
        "Gemma 4, whose layers are of two kinds, with speculative decoding: no hit",
        [
            Server("vllm", "0.19.0", VLLM),
            Scrapes(
                metrics(
                    counters={
                        "vllm:prefix_cache_queries": 30_000,
                        "vllm:prefix_cache_hits": 0,
                        "vllm:prompt_tokens": 30_000,
                        "vllm:spec_decode_num_drafts": 2000,
                        "vllm:spec_decode_num_draft_tokens": 6000,
                        "vllm:spec_decode_num_accepted_tokens": 3100,
                    }
                )
            ),
            KvEvents([[*GROUPS], [*GROUPS]]),
        ],
        [
            Warns(
                "no-hit-though-repeated",
                said=0,
                corrected=None,
                evidence={"blocks": 3, "groups": 2, "drafting": "on", "looked_up": 30_000},
                about="speculative decoding",
            ),
            Silent("no-hit-at-all"),
        ],
    ),
    FieldReport(
        9,
        "vllm-ascend#16270",
        "0% for prompts below 4,096 tokens, while the server says that a block is 128",
        [
            Server("vllm", "0.16.0", VLLM | {"block_size": "128"}),
            Responses(
                [
                    *(response(f"9-short-{n}", 3000, 0) for n in range(8)),
                    response("9-a", 5000, 4096),
                    response("9-b", 9000, 8192),
                    response("9-c", 13_000, 12_288),
                ]
            ),
        ],
        [
            Warns(
                "prompts-below-unit",
                said=24_576 / 51_000,
                corrected=24_576 / 51_000,
                evidence={"unit": 4096, "short": 8, "unit_told_by": "what its hits are multiples of"},
                about="least common multiple",
            )
        ],
    ),
    FieldReport(
        10,
        "vllm-ascend#10710",
        "byte-identical requests, one after the other, stay at 0%; cause not stated",
        [
            Server("vllm", "0.19.0", VLLM),
            Scrapes(metrics(counters={"vllm:prefix_cache_queries": 12_000, "vllm:prefix_cache_hits": 0})),
            Responses([response(f"10-{n}", 3000, 0, template="same") for n in range(4)]),
        ],
        [
            Warns(
                "no-hit-though-repeated",
                said=0,
                corrected=None,
                evidence={"again": 3},
                about="byte-identical",
            )
        ],
    ),
    FieldReport(
        11,
        "vllm#17954",
        "prefix caching without effect on the CPU backend; cause not stated",
        [
            Server("vllm", "0.8.5", VLLM),
            Scrapes(
                metrics(counters={"vllm:gpu_prefix_cache_queries": 90_000, "vllm:gpu_prefix_cache_hits": 0})
            ),
        ],
        [
            Warns("no-hit-at-all", said=0, corrected=None, about="CPU backend"),
            Silent("no-hit-though-repeated"),
        ],
    ),
    FieldReport(
        11,
        "vllm#17954",
        "the same counters where caching is switched off: nothing to warn of",
        [
            Server("vllm", "0.8.5", VLLM | {"enable_prefix_caching": "False"}),
            Scrapes(
                metrics(counters={"vllm:gpu_prefix_cache_queries": 90_000, "vllm:gpu_prefix_cache_hits": 0})
            ),
        ],
        [Silent("no-hit-at-all"), Silent("no-hit-though-repeated")],
        case="off",
    ),
    FieldReport(
        14,
        "vllm#23301",
        "a LoRA shows no caching while the base model does; cause not stated",
        [
            Responses(
                [
                    *(response(f"14-base-{n}", 1000, 800, model="base") for n in range(6)),
                    *(response(f"14-lora-{n}", 1000, 0, model="lora") for n in range(6)),
                ]
            )
        ],
        [
            Warns("adapter-without-hits", said=0, evidence={"adapter": "lora", "others": 0.8, "requests": 6}),
            Figure(
                "SELECT sum(cached_tokens) / sum(prompt_tokens) FROM requests"
                " WHERE server = {server:String} AND model = 'base'",
                0.8,
            ),
        ],
    ),
    FieldReport(
        18,
        "sgl-project/sglang#10841",
        "radix cache without effect on Ascend; cause not stated",
        [
            Server("sglang", "0.5.3", {"page_size": "128"}),
            Scrapes(
                metrics(
                    counters={
                        "sglang:prompt_tokens": 40_000,
                        'sglang:cached_tokens{cache_source="device"}': 0,
                    }
                ),
                kind="sglang",
            ),
        ],
        [Warns("no-hit-at-all", said=0, corrected=None, evidence={"looked_up": 40_000}, about="Ascend")],
    ),
    FieldReport(
        98,
        "ggml-org/llama.cpp#3738, #4329",
        "the cache is not used unless a request asks for it",
        [
            Server("llama_cpp", "b1400"),
            Scrapes(metrics(counters={"llamacpp:prompt_tokens": 8000}), kind="llama_cpp"),
            Responses(
                [
                    {
                        "response": {
                            "id": f"98-{n}",
                            "usage": {"prompt_tokens": 2000},
                            "timings": {"cache_n": 0, "prompt_n": 2000, "prompt_ms": 900.0},
                        },
                        "template": "same",
                    }
                    for n in range(4)
                ]
            ),
        ],
        [
            Warns(
                "no-hit-though-repeated", said=0, corrected=None, evidence={"again": 3}, about="cache_prompt"
            )
        ],
    ),
)
