"""Field reports about gauges and about names that change; in the form of `form`."""

from __future__ import annotations

from tests.field_reports.form import FieldReport, Figure, Scrapes, Server, Silent, Warns
from tests.field_reports.texts import VLLM, metrics

REPORTS: tuple[FieldReport, ...] = (
    FieldReport(
        34,
        "vllm#20302",
        "kv_cache_usage_perc is wrong: 0 while requests run; cause not stated",
        [
            Server("vllm", "0.9.1", VLLM),
            Scrapes(
                metrics(
                    gauges={"vllm:gpu_cache_usage_perc": 0, "vllm:num_requests_running": (0, 4, 7, 7, 3)},
                    scrapes=5,
                )
            ),
        ],
        [
            Warns(
                "usage-gauge-idle", said=0, corrected=None, evidence={"busy": 4, "samples": 5}, about="20302"
            )
        ],
    ),
    FieldReport(
        34,
        "vllm#20302",
        "kv_cache_usage_perc above 1: its name says percent, its range is 0 to 1",
        [Scrapes(metrics(gauges={"vllm:kv_cache_usage_perc": (12.5, 40.0)}))],
        [
            Warns(
                "ratio-out-of-range",
                said=40.0,
                corrected=0.4,
                evidence={"name": "vllm:kv_cache_usage_perc", "least": 12.5},
            )
        ],
        case="percent",
    ),
    FieldReport(
        36,
        "vllm PR 18354, #29330, #30041; llm-d PR 546; production-stack#379",
        "dashboards show no data: the server speaks older names",
        [
            Server("vllm", "0.9.0", VLLM),
            Scrapes(
                metrics(
                    counters={"vllm:gpu_prefix_cache_queries": 4000, "vllm:gpu_prefix_cache_hits": 1000},
                    gauges={"vllm:gpu_cache_usage_perc": 0.25},
                )
            ),
        ],
        [
            Warns(
                "old-name",
                evidence={"names": 3, "of_versions": "vLLM 0.6 to 0.11"},
                about="vllm:kv_cache_usage_perc",
            ),
            Figure(
                "SELECT sum(delta) FROM samples INNER JOIN series USING (fingerprint)"
                " WHERE server = {server:String} AND metric = 'prefix_cache.hit_tokens'",
                1000.0,
            ),
            Silent("no-hit-at-all"),
        ],
    ),
    FieldReport(
        36,
        "vllm PR 18354, #29330, #30041; llm-d PR 546; production-stack#379",
        "half of a fleet is upgraded: a panel shows one half",
        [
            Server("vllm", "0.9.0", VLLM),
            Scrapes(metrics(gauges={"vllm:gpu_cache_usage_perc": 0.25})),
            Server("vllm", "0.13.0", VLLM, server="new"),
            Scrapes(metrics(gauges={"vllm:kv_cache_usage_perc": 0.5}), server="new"),
        ],
        [
            Warns("name-changed", evidence={"names": 1, "example": "kv_cache.usage"}),
            Warns("name-changed", server="new"),
            Silent("old-name", server="new"),
        ],
        case="fleet",
    ),
    FieldReport(
        37,
        "llm-d/llm-d#1968, sglang PR 15758",
        "panels are blank after the prefix changed",
        [
            Server("sglang", "0.5.5"),
            Scrapes(metrics(counters={"sglang:prompt_tokens": 500}), kind="sglang"),
            Server("sglang", "0.5.8", server="new"),
            Scrapes(metrics(counters={"sglang_prompt_tokens": 700}), kind="sglang", server="new"),
        ],
        [
            Warns("name-changed", evidence={"example": "prompt_tokens"}, about="sglang_"),
            Figure(
                "SELECT sum(delta) FROM samples INNER JOIN series USING (fingerprint)"
                " WHERE server = {server:String} AND metric = 'prompt_tokens'",
                700.0,
                server="new",
            ),
        ],
    ),
    FieldReport(
        38,
        "sglang#26608, #31327, #26837",
        "the gauge of the hit rate jumps: every prefill batch overwrites it",
        [
            Server("sglang", "0.5.23"),
            Scrapes(
                metrics(
                    counters={
                        'sglang:prefill_effective_tokens{mode="input"}': 4000,
                        'sglang:prefill_effective_tokens{mode="device_hit"}': 6000,
                    },
                    gauges={"sglang:cache_hit_rate": (0.0, 0.97, 0.02)},
                    scrapes=3,
                ),
                kind="sglang",
            ),
        ],
        [
            Warns(
                "hit-gauge-differs",
                said=0.02,
                corrected=0.6,
                evidence={"name": "sglang:cache_hit_rate", "lowest": 0.0, "highest": 0.97},
                about="26608",
            )
        ],
    ),
)
