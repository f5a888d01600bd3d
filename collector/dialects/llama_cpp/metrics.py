"""llama.cpp's metrics and what /slots tells: canonical name <- names by version, with unit and traps. No labels.

Sources: /metrics and /slots of a running b11434; server-context.cpp for the six digits; ggml-org/llama.cpp pull
requests 13660 (KV usage goes) and 25328 (an earlier attempt at cached tokens).
"""

from __future__ import annotations

from functools import partial

from collector.metric import Metric, Trap, row

_SIX_DIGITS = Trap("", "printed with six digits: above a million it moves in steps of ten, then of a hundred")
_PER_SCRAPE = Trap(
    "", "the mean since anybody scraped last, 0 when asked again at once: read the counters instead"
)
_OVERLAP = Trap(
    "", "slots are computed together: it is less than the sum of the prompt_ms that responses tell"
)

_m = partial(row, "llamacpp:")
_slot = partial(row, "slots.")

METRICS: tuple[Metric, ...] = (
    _m(
        "prompt_tokens.computed",
        "counter",
        "tokens",
        "Prompt tokens computed: those from the cache are not among them",
        "prompt_tokens",
        traps=(
            Trap("", "cached tokens are not among them: elsewhere a counter of this name includes them"),
            _SIX_DIGITS,
        ),
    ),
    _m(
        "cached_tokens",
        "counter",
        "tokens",
        "Prompt tokens taken from the slot or the prompt cache",
        ("prompt_tokens_cached", "2026 builds"),
        traps=(_SIX_DIGITS,),
    ),
    _m(
        "prefill.time",
        "counter",
        "s",
        "Spent on prompts",
        "prompt_seconds",
        traps=(_OVERLAP, _SIX_DIGITS),
    ),
    _m(
        "completion_tokens",
        "counter",
        "tokens",
        "Generated tokens",
        "tokens_predicted",
        traps=(_SIX_DIGITS,),
    ),
    _m("decode.time", "counter", "s", "Spent on generating", "tokens_predicted_seconds"),
    _m("steps", "counter", "steps", "Calls of llama_decode()", "n_decode"),
    _m(
        "sequence.tokens_max",
        "gauge",
        "tokens",
        "The longest sequence so far, prompt and generated",
        "n_tokens_max",
        traps=(Trap("", "a high-water mark that the server declares as a counter: it is no sum"),),
    ),
    _m("spec_decode.drafts", "counter", "steps", "Drafts verified", "spec_decode_num_drafts"),
    _m("spec_decode.draft_tokens", "counter", "tokens", "Drafted", "spec_decode_num_draft_tokens"),
    _m(
        "spec_decode.accepted_tokens",
        "counter",
        "tokens",
        "Of those drafted, accepted",
        "spec_decode_num_accepted_tokens",
    ),
    _m(
        "prefill.tokens_per_second_gauge",
        "gauge",
        "tokens/s",
        "Computed prompt tokens a second since the scrape before",
        "prompt_tokens_seconds",
        traps=(_PER_SCRAPE,),
    ),
    _m(
        "decode.tokens_per_second_gauge",
        "gauge",
        "tokens/s",
        "Generated tokens a second since the scrape before",
        "predicted_tokens_seconds",
        traps=(_PER_SCRAPE,),
    ),
    _m("requests.running", "gauge", "requests", "In a slot", "requests_processing"),
    _m("requests.waiting", "gauge", "requests", "Waiting for a slot", "requests_deferred"),
    _m("slots.busy_per_step", "gauge", "slots", "Mean since the start", "n_busy_slots_per_decode"),
    _m(
        "kv_cache.usage",
        "gauge",
        "ratio",
        "Share (0 to 1) of the KV cells in use",
        ("kv_cache_usage_ratio", "until May 2025"),
    ),
    _m(
        "kv_cache.tokens",
        "gauge",
        "tokens",
        "Tokens in the KV cache",
        ("kv_cache_tokens", "until May 2025"),
    ),
    # /slots, by slot
    _slot("slot.busy", "gauge", "", "1 while a task is in the slot", "is_processing"),
    _slot("slot.task", "gauge", "", "Id of the task that is, or last was, in the slot", "id_task"),
    _slot("slot.context_tokens", "gauge", "tokens", "How many tokens the slot can hold", "n_ctx"),
    _slot(
        "slot.tokens",
        "gauge",
        "tokens",
        "Of a task: its prompt and what it has generated; of an idle slot: what is still cached in it",
        "n_prompt_tokens",
    ),
    _slot(
        "slot.computed_tokens",
        "gauge",
        "tokens",
        "Prompt tokens of the task that were computed so far",
        "n_prompt_tokens_processed",
    ),
    _slot(
        "slot.cached_tokens",
        "gauge",
        "tokens",
        "Prompt tokens of the task that were in the cache",
        "n_prompt_tokens_cache",
    ),
)
