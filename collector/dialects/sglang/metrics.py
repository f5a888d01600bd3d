"""SGLang's metrics: canonical name <- names by version, with unit and traps. Counters are in tokens.

Read in SGLang 0.5.23 (observability/metrics_collector.py), never run live. Older names from its first metrics
(PR 1853) and from the dashboards of that time. The families of HiCache and of disaggregation are in `tiers`.
"""

from __future__ import annotations

from functools import partial

from collector.dialects.sglang.names import COPIES, PARTS, both
from collector.dialects.sglang.tiers import TIERS
from collector.metric import PROCESS, Metric, Origin, Trap

CACHED = Origin(
    "cache_source",
    (("device", "device"), ("host", "host"), ("storage", "remote"), ("total", "cached")),
)
_PREFILL = Origin(
    "mode",
    (("input", "computed"), ("device_hit", "device"), ("host_hit", "host"), ("storage_hit", "remote")),
)
_TRAP_USAGE = Trap("", "cached tokens that nobody uses count as free: 0 does not mean an empty cache")
_TRAP_FINISHED = Trap("", "counted when a request finishes, so that a long one shows late and all at once")

_m = both
_of_rank = partial(both, ranks=COPIES)
_queue = partial(both, ranks=PARTS)

METRICS: tuple[Metric, ...] = (
    # the cache
    _of_rank(
        "prompt_tokens_by_source",
        "counter",
        "tokens",
        "Prompt tokens at prefill by source; what a retraction made to be prefilled again is left out",
        "prefill_effective_tokens",
        origin=_PREFILL,
    ),
    _m(
        "cached_tokens_by_tier",
        "counter",
        "tokens",
        "Prompt tokens served by a tier; `cached` where the server does not say by which",
        "cached_tokens",
        traps=(
            _TRAP_FINISHED,
            Trap("", "stays 0 with MTP in some versions (issue 20451): compare with prefill"),
        ),
        origin=CACHED,
    ),
    _of_rank(
        "prefix_cache.last_batch_hit_ratio",
        "gauge",
        "ratio",
        "Hit ratio of the last prefill batch alone",
        "cache_hit_rate",
        traps=(
            Trap("", "every batch overwrites it (issues 5625, 26608): read prompt_tokens_by_source instead"),
        ),
    ),
    _of_rank(
        "step.tokens_by_mode",
        "counter",
        "tokens",
        "Tokens as batches processed them: prefill_compute, prefill_cache, decode",
        "realtime_tokens",
        traps=(Trap("", "retracted requests are prefilled again and count again"),),
    ),
    _of_rank(
        "kv_cache.usage",
        "gauge",
        "ratio",
        "Share (0 to 1) of the KV tokens that live requests hold",
        "token_usage",
        traps=(_TRAP_USAGE,),
    ),
    _of_rank("kv_cache.full_usage", "gauge", "ratio", "The same, full-attention layers", "full_token_usage"),
    _of_rank("kv_cache.swa_usage", "gauge", "ratio", "The same, sliding-window layers", "swa_token_usage"),
    _of_rank("kv_cache.mamba_usage", "gauge", "ratio", "The same, states of Mamba layers", "mamba_usage"),
    _of_rank(
        "kv_cache.used_tokens",
        "gauge",
        "tokens",
        "Held by live requests",
        "kv_used_tokens",
        ("num_used_tokens", "older; newer ones have both"),
    ),
    _of_rank("kv_cache.free_tokens", "gauge", "tokens", "Neither used nor cached", "kv_available_tokens"),
    _of_rank(
        "kv_cache.evictable_tokens",
        "gauge",
        "tokens",
        "Cached and used by nobody: with the used ones what is really resident",
        "kv_evictable_tokens",
    ),
    _of_rank("kv_cache.capacity_tokens", "gauge", "tokens", "Size of the KV pool", "max_total_num_tokens"),
    _of_rank("kv_cache.page_tokens", "gauge", "tokens", "Tokens of a page, the unit of reuse", "page_size"),
    _of_rank("kv_cache.pages", "gauge", "pages", "Pages in the KV pool", "num_pages"),
    _of_rank("kv_cache.evicted_tokens", "counter", "tokens", "Evicted from the device", "evicted_tokens"),
    _of_rank(
        "kv_cache.eviction_time",
        "histogram",
        "s",
        "Of a pass of eviction",
        "eviction_duration_seconds",
        traps=(Trap("", "with the write_back policy the copy to the host is in it"),),
    ),
    # tokens
    _m(
        "prompt_tokens",
        "counter",
        "tokens",
        "Prompt tokens of finished requests, cached ones included",
        "prompt_tokens",
        traps=(_TRAP_FINISHED,),
    ),
    _m(
        "completion_tokens",
        "counter",
        "tokens",
        "Generated tokens",
        "generation_tokens",
    ),
    _m("request.prompt_tokens", "histogram", "tokens", "By finished request", "prompt_tokens_histogram"),
    _m(
        "request.completion_tokens",
        "histogram",
        "tokens",
        "By finished request",
        "generation_tokens_histogram",
    ),
    _m(
        "prefill.computed_tokens",
        "histogram",
        "tokens",
        "Prompt minus cached tokens, by finished request",
        "uncached_prompt_tokens_histogram",
    ),
    # requests
    _queue("requests.running", "gauge", "requests", "In the running batch", "num_running_reqs"),
    _queue("requests.waiting", "gauge", "requests", "Waiting to be scheduled", "num_queue_reqs"),
    _of_rank("requests.waiting_grammar", "gauge", "requests", "For a grammar", "num_grammar_queue_reqs"),
    _m("requests.finished", "counter", "requests", "Finished", "num_requests"),
    _m("requests.aborted", "counter", "requests", "Given up", "num_aborted_requests"),
    _of_rank(
        "preemptions",
        "counter",
        "preemptions",
        "Requests put back to wait (retracted), their KV dropped",
        "num_retracted_requests",
    ),
    _of_rank(
        "preemptions.last_interval",
        "gauge",
        "preemptions",
        "Retracted since the report before",
        "num_retracted_reqs",
        traps=(Trap("", "every report overwrites it: read the counter where there is one"),),
    ),
    _of_rank(
        "preemptions.prompt_tokens",
        "counter",
        "tokens",
        "Retracted prompt tokens",
        "num_retracted_input_tokens",
    ),
    _of_rank(
        "preemptions.completion_tokens",
        "counter",
        "tokens",
        "Generated tokens of the retracted",
        "num_retracted_output_tokens",
    ),
    # latency
    _m("ttft", "histogram", "s", "Arrival to first token", "time_to_first_token_seconds"),
    _m(
        "inter_token_latency",
        "histogram",
        "s",
        "Between two tokens",
        "inter_token_latency_seconds",
        ("time_per_output_token_seconds", "older"),
    ),
    _m("time_per_output_token", "histogram", "s", "Mean by request", "request_time_per_output_token_seconds"),
    _m("e2e", "histogram", "s", "Arrival to last token", "e2e_request_latency_seconds"),
    _of_rank("queue_time", "histogram", "s", "Waiting to be scheduled", "queue_time_seconds"),
    _of_rank(
        "queue_time.last_batch_mean",
        "gauge",
        "s",
        "Mean of the last batch",
        ("avg_request_queue_latency", "0.4"),
        traps=(Trap("", "every batch overwrites it"),),
    ),
    _of_rank(
        "stage_time",
        "histogram",
        "s",
        "By stage: prefill_waiting is queueing, prefill_forward computing",
        "per_stage_req_latency_seconds",
        ("request_latency_seconds", "older"),
    ),
    _of_rank(
        "decode.throughput",
        "gauge",
        "tokens/s",
        "Generated, over the last interval of the log",
        "gen_throughput",
        traps=(Trap("", "holds its last value while nothing is generated"),),
    ),
    _of_rank("spec.accepted_tokens", "gauge", "tokens", "Mean a step", "spec_accept_length"),
    *TIERS,
    *PROCESS,
)
