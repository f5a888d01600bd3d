"""Field reports about counters that count twice; in the form of `form`."""

from __future__ import annotations

from tests.field_reports.form import FieldReport, Responses, Scrapes, Server, Silent, Warns
from tests.field_reports.texts import VLLM, metrics, response

WAITED = {
    "vllm:prefix_cache_queries": (5 + 3 + 1) * 10_000,
    "vllm:prefix_cache_hits": 5 * 6000 + 3 * 2000,
    "vllm:prompt_tokens": 30_000,
    "vllm:prompt_tokens_cached": 8000 + 7000,
    "vllm:external_prefix_cache_queries": 5 * 4000 + 3 * 8000 + 10_000,
    "vllm:external_prefix_cache_hits": 5 * 3000 + 3 * 4000,
}

REPORTS: tuple[FieldReport, ...] = (
    FieldReport(
        29,
        "vllm#25780, PR 25787",
        "random prompts show 30% hits: what was computed before a preemption is found again",
        [
            Server("vllm", "0.10.2", VLLM),
            Scrapes(
                metrics(
                    counters={
                        "vllm:prefix_cache_queries": 14_300,
                        "vllm:prefix_cache_hits": 4320,
                        "vllm:prompt_tokens": 10_000,
                        "vllm:num_preemptions": 5,
                    }
                )
            ),
            Responses([response(f"29-{n}", 1000, 16 if n < 2 else 0) for n in range(10)]),
        ],
        [
            Warns(
                "lookups-recounted",
                said=4320 / 14_300,
                corrected=32 / 10_000,
                evidence={"preempted": 5, "at_least": 20 / 10_000, "at_most": 4320 / 10_000},
                about="25787",
            )
        ],
    ),
    FieldReport(
        29,
        "vllm#25780, PR 25787",
        "the same version without a counter of prompt tokens: flagged by version",
        [
            Server("vllm", "0.10.2", VLLM),
            Scrapes(
                metrics(
                    counters={
                        "vllm:prefix_cache_queries": 14_300,
                        "vllm:prefix_cache_hits": 4320,
                        "vllm:num_preemptions": 5,
                    }
                )
            ),
        ],
        [Warns("preemptions-read-as-hits", said=4320 / 14_300, corrected=None), Silent("lookups-recounted")],
        case="flagged",
    ),
    FieldReport(
        29,
        "vllm#25780, PR 25787",
        "after the fix the same counters are right",
        [
            Server("vllm", "0.11.0", VLLM),
            Scrapes(
                metrics(
                    counters={
                        "vllm:prefix_cache_queries": 10_000,
                        "vllm:prefix_cache_hits": 20,
                        "vllm:prompt_tokens": 10_000,
                        "vllm:num_preemptions": 5,
                    }
                )
            ),
        ],
        [Silent("lookups-recounted"), Silent("preemptions-read-as-hits")],
        case="fixed",
    ),
    # Three prompts of 10,000 tokens, looked up 5, 3 and 1 times. Each time the device had 6000, 2000 and none of them,
    # the connector 3000, 4000 and none of the rest.
    FieldReport(
        30,
        "vllm#43736, PR 48860, PR 39566",
        "a request that waits for its connector is looked up again at every step",
        [
            Server("vllm", "0.20.0", VLLM),
            Scrapes(
                metrics(
                    counters={
                        **WAITED,
                        'vllm:prompt_tokens_by_source{source="local_compute"}': 15_000,
                        'vllm:prompt_tokens_by_source{source="local_cache_hit"}': 8000,
                        'vllm:prompt_tokens_by_source{source="external_kv_transfer"}': 7000,
                    }
                )
            ),
        ],
        [
            Warns(
                "lookups-recounted",
                said=0.4,
                corrected=8000 / 30_000,
                evidence={"times": 3.0},
                about="before 0.32, vLLM issue 43736; pull request 48860",
            ),
            Warns(
                "external-lookups-recounted",
                said=0.5,
                corrected=7000 / 22_000,
                evidence={"left_over": 22_000},
                about="before 0.32, vLLM pull request 48860",
            ),
        ],
    ),
    FieldReport(
        30,
        "vllm#43736, PR 48860, PR 39566",
        "the same where only all tiers together are told: neither ratio is known",
        [Server("vllm", "0.20.0", VLLM), Scrapes(metrics(counters=WAITED))],
        [Warns("lookups-recounted", said=0.4, corrected=None)],
        case="untold",
    ),
    FieldReport(
        30,
        "vllm#43736, PR 30522",
        "external lookups include what the device cache held",
        [
            Server("vllm", "0.12.0", VLLM),
            Scrapes(
                metrics(
                    counters={
                        "vllm:prefix_cache_queries": 30_000,
                        "vllm:prefix_cache_hits": 20_000,
                        "vllm:prompt_tokens": 30_000,
                        "vllm:external_prefix_cache_queries": 30_000,
                        "vllm:external_prefix_cache_hits": 5000,
                    }
                )
            ),
        ],
        [
            Warns("external-lookups-recounted", said=5000 / 30_000, corrected=0.5, about="30522"),
            Silent("lookups-recounted"),
        ],
        case="external",
    ),
)
