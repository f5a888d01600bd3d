"""Field reports about parts that tell nothing, or half of it, and about logs; in the form of `form`."""

from __future__ import annotations

from tests.field_reports.form import (
    FieldReport,
    Figure,
    KvEvents,
    Responses,
    Scrapes,
    Server,
    ServerLog,
    Silent,
    Warns,
)
from tests.field_reports.texts import metrics, response, stored

REPORTS: tuple[FieldReport, ...] = (
    FieldReport(
        26,
        "NVIDIA/TensorRT-LLM#2462, #1043, #2894",
        "users cannot tell whether blocks are reused: five request metrics and no more",
        [
            Server("trtllm", "1.1.0"),
            Scrapes(metrics(counters={"request_success": 40}), kind="trtllm"),
        ],
        [
            Warns(
                "nothing-tells-hits",
                said=None,
                corrected=None,
                evidence={"kind": "trtllm"},
                about="enable_block_reuse",
            )
        ],
    ),
    FieldReport(
        26,
        "NVIDIA/TensorRT-LLM#2462, #1043, #2894",
        "with its counters the evidence is there, in blocks",
        [
            Server("trtllm", "1.4.0"),
            Scrapes(
                metrics(
                    counters={
                        "trtllm_request_success": 40,
                        "trtllm_kv_cache_reused_blocks": 300,
                        "trtllm_kv_cache_missed_blocks": 100,
                    }
                ),
                kind="trtllm",
            ),
        ],
        [
            Silent("nothing-tells-hits"),
            Figure(
                "SELECT sumIf(delta, metric = 'prefix_cache.hit_blocks') / sum(delta) FROM samples INNER JOIN series"
                " USING (fingerprint) WHERE server = {server:String} AND metric LIKE 'prefix_cache.%_blocks'",
                0.75,
            ),
        ],
        case="told",
    ),
    FieldReport(
        44,
        "triton-inference-server/tensorrtllm_backend#537",
        "allocated, new and reused blocks are not exported",
        [
            Server("triton", "2.60"),
            Scrapes(
                metrics(
                    counters={"nv_inference_request_success": 25},
                    gauges={'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used"}': 12},
                ),
                kind="triton",
            ),
        ],
        [Warns("nothing-tells-hits", said=None, corrected=None, about="537")],
    ),
    FieldReport(
        43,
        "vllm-project/production-stack#818",
        "lookup_hits rises and hit_tokens stays 0; cause not stated",
        [
            Scrapes(
                metrics(counters={"lmcache:num_lookup_hits": 5120, "lmcache:num_hit_tokens": 0}),
                kind="lmcache",
            )
        ],
        [Warns("hits-without-tokens", said=0, corrected=None, evidence={"found": 5120})],
    ),
    FieldReport(
        46,
        "ai-dynamo/dynamo#4840",
        "matched tokens are counted, but not of how many",
        [
            Server("dynamo", "0.7.0"),
            Scrapes(metrics(counters={"kvbm_matched_tokens": 3000}), kind="dynamo"),
        ],
        [Warns("no-denominator", said=None, corrected=None, evidence={"found": 3000}, about="4840")],
    ),
    FieldReport(
        46,
        "ai-dynamo/dynamo#4840",
        "the prompt tokens of known requests are the denominator",
        [
            Server("dynamo", "0.7.0"),
            Scrapes(metrics(counters={"kvbm_matched_tokens": 3000}), kind="dynamo"),
            Responses([response(f"46-{n}", 1000, None) for n in range(4)]),
        ],
        [Warns("no-denominator", said=None, corrected=0.75)],
        case="known",
    ),
    FieldReport(
        67,
        "llm-d-kv-cache#617, llm-d-router#1964",
        "the event layer has no metrics of its own",
        [KvEvents([[stored(1, 2, 3)]])],
        [Warns("not-scraped", evidence={"events": 3, "requests": 0})],
    ),
    FieldReport(
        94,
        "llama.cpp#21831, #24055; PR 24035, 22929, 20428",
        "whole prompts are computed again: checkpoints are erased, states cannot be rolled back",
        [
            Server("llama_cpp", "b11434"),
            ServerLog(
                [
                    "0.01.000.000 I slot launch_slot_: id  0 | task 7 | processing task",
                    "0.01.000.100 I slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 8192, n_keep = 0,"
                    " task.n_tokens = 5000",
                    "0.01.000.200 W slot update_slots: id  0 | task 7 | forcing full prompt re-processing due to lack"
                    " of cache data (likely due to SWA or hybrid/recurrent memory)",
                    "0.01.000.300 I slot update_slots: id  0 | task 7 | cached n_tokens = 0, memory_seq_rm [0, end)",
                    "0.02.000.000 I slot print_timing: id  0 | task 7 | prompt eval time =     900.00 ms /  5000 tokens"
                    " (    0.18 ms per token,  5555.56 tokens per second)",
                    "0.03.000.000 I slot      release: id  0 | task 7 | stop processing: n_tokens = 5010,"
                    " truncated = 0",
                ]
            ),
        ],
        [Warns("full-reprocessing", evidence={"times": 1, "tasks": 1, "tokens": 5000}, about="21831")],
    ),
)
