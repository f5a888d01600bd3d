"""Field reports about KV events, adapters and preemptions; in the form of `form`."""

from __future__ import annotations

from tests.field_reports.form import (
    FieldReport,
    Figure,
    KvEvents,
    Responses,
    Scrapes,
    Server,
    Silent,
    Spans,
    Warns,
)
from tests.field_reports.texts import VLLM, llm_request, metrics, removed, response, stored

REPORTS: tuple[FieldReport, ...] = (
    FieldReport(
        24,
        "LMCache/LMCache#1139, #1095, #1739; vllm#42625",
        "workers never hit what others stored: the seeds of their hashes differ",
        [
            Server("vllm", "0.10.0", VLLM),
            KvEvents([[stored(11, 12, tokens=7)]]),
            Server("vllm", "0.10.0", VLLM, server="other"),
            KvEvents([[stored(91, 92, tokens=7)]], server="other"),
        ],
        [
            Warns("seeds-differ", evidence={"beginnings": 1}, about="PYTHONHASHSEED"),
            Warns("seeds-differ", server="other"),
            Figure(
                "SELECT format('{} hashes of {} contents', toString(uniqExact(block)), toString(uniqExact(content)))"
                " FROM kv_events WHERE server IN ({server:String}, 'row24-other')",
                "4 hashes of 2 contents",
            ),
        ],
    ),
    FieldReport(
        24,
        "LMCache/LMCache#1139, #1095, #1739; vllm#42625",
        "with one seed the same tokens have the same hash, and other tokens another",
        [
            Server("vllm", "0.10.0", VLLM),
            KvEvents([[stored(11, 12, tokens=7), stored(13, tokens=8)]]),
            Server("vllm", "0.10.0", VLLM, server="other"),
            KvEvents([[stored(11, 12, tokens=7), stored(14, tokens=9)]], server="other"),
        ],
        [Silent("seeds-differ"), Silent("seeds-differ", server="other")],
        case="same",
    ),
    FieldReport(
        60,
        "ai-dynamo/dynamo#11984",
        "KV events are configured and none comes; cause not stated",
        [
            Server("vllm", "0.16.0", VLLM, [("KV-cache events", True, "published to tcp://*:5557", "")]),
            Responses([response(f"60-{n}", 1000, 0) for n in range(3)]),
        ],
        [Warns("silent-publisher", evidence={"requests": 3})],
    ),
    FieldReport(
        60,
        "ai-dynamo/dynamo#11984",
        "a server that publishes none says so: no alarm",
        [
            Server("vllm", "0.16.0", VLLM, [("KV-cache events", False, "none listed", "--kv-events-config")]),
            Responses([response("60-off", 1000, 0)]),
        ],
        [Silent("silent-publisher")],
        case="off",
    ),
    FieldReport(
        62,
        "LMCache PR 5076, #4768, #3938",
        "the host tier tells what it stores and never what it removes",
        [
            Server("vllm", "0.16.0", VLLM | {"num_cpu_blocks": "4"}),
            KvEvents([[stored(n, medium="CPU", tokens=n)] for n in range(1, 8)]),
        ],
        [
            Warns(
                "more-blocks-than-fit",
                said=7,
                corrected=4,
                evidence={"tier": "host", "removed": 0},
                about="LMCache",
            )
        ],
    ),
    FieldReport(
        62,
        "LMCache PR 5076, #4768, #3938",
        "with removals told the index stays within the tier",
        [
            Server("vllm", "0.16.0", VLLM | {"num_cpu_blocks": "4"}),
            KvEvents(
                [
                    *([stored(n, medium="CPU", tokens=n)] for n in range(1, 5)),
                    *([removed(n - 4, medium="CPU"), stored(n, medium="CPU", tokens=n)] for n in range(5, 8)),
                ]
            ),
        ],
        [Silent("more-blocks-than-fit")],
        case="told",
    ),
    FieldReport(
        99,
        "vllm#30931",
        "two adapters share blocks: keyed by name, and both were loaded under one",
        [
            Server("vllm", "0.12.0", VLLM),
            KvEvents(
                [
                    [stored(5, tokens=5, lora_name="tuned", lora_id=1)],
                    [stored(5, tokens=5, lora_name="tuned", lora_id=2)],
                ]
            ),
        ],
        [Warns("adapters-share-blocks", evidence={"blocks": 1, "shared_by": "tuned (id 1), tuned (id 2)"})],
    ),
    FieldReport(
        101,
        "vllm#44250, LMCache#2961",
        "the external cache hits across adapters: its key lacks the adapter",
        [
            Server("vllm", "0.20.0", VLLM),
            KvEvents(
                [
                    [stored(5, tokens=5, medium="cpu", size=256, lora_name="a")],
                    [stored(5, tokens=5, medium="cpu", size=256, lora_name="b")],
                ]
            ),
        ],
        [Warns("adapters-share-blocks", evidence={"shared_by": "a, b", "tiers": "cpu"}, about="44250")],
    ),
    FieldReport(
        101,
        "vllm#44250, LMCache#2961",
        "adapters that are in the key have blocks of their own",
        [
            Server("vllm", "0.20.0", VLLM),
            KvEvents([[stored(5, tokens=5, lora_name="a")], [stored(6, tokens=5, lora_name="b")]]),
        ],
        [Silent("adapters-share-blocks"), Silent("seeds-differ")],
        case="keyed",
    ),
    FieldReport(
        102,
        "llama.cpp#26207",
        "a request that names an adapter is answered from the cache of another",
        [
            Server("llama_cpp", "b11434"),
            Responses(
                [
                    response("102-a", 2000, 0, adapter="a"),
                    response("102-b", 2000, 1990, adapter="b"),
                ]
            ),
        ],
        [Warns("adapter-hits-at-once", said=1990, corrected=0, evidence={"adapter": "b"}, about="26207")],
    ),
    FieldReport(
        112,
        "vllm PR 42827, #25538",
        "nobody sees which request was preempted",
        [
            Server("vllm", "0.11.0", VLLM),
            Scrapes(metrics(counters={"vllm:num_preemptions": (0, 0, 3)}, scrapes=3)),
            Spans(
                [llm_request(f"112-{n}", 1000, decode_s=0.5 if n != 8 else 9.0) for n in range(10)],
                first_id=112_000,
                duration_s=0.5,
            ),
        ],
        [Warns("preempted-untold", evidence={"preempted": 3, "candidates": 1, "some": "112-8"})],
    ),
)
