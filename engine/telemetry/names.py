"""What stands on the spans: one row an attribute, with how it is read. A value that is not known is left out.

Names are those of OpenTelemetry's GenAI conventions where it has one, vLLM's where vLLM has one (`gen_ai.latency.*`,
`gen_ai.request.id`), and begin with `hitmap.` elsewhere. Times are seconds on the root and microseconds where the name
ends so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.request import Request
from engine.timeline import Value

SCOPE = "hitmap.engine"
FAULT = "hitmap.fault"
"""Of the root: the faults that struck it, and those of the cache that were on while it ran, as they were asked for."""
ROOT = "llm_request"
SPANS = {
    "frontend": "frontend",
    "queue": "queue",
    "prefix": "prefix_lookup",
    "host": "load host",
    "remote": "load remote",
    "prefill": "prefill",
    "decode": "decode",
    "other": "deliver",
}
"""The child span of each serving layer, by what happens in it."""
LATENCIES = {
    "frontend": "hitmap.latency.frontend",
    "queue": "gen_ai.latency.time_in_queue",
    "prefix": "hitmap.latency.prefix",
    "host": "hitmap.latency.host",
    "remote": "hitmap.latency.remote",
    "prefill": "gen_ai.latency.time_in_model_prefill",
    "decode": "gen_ai.latency.time_in_model_decode",
    "other": "hitmap.latency.other",
}
"""The root's attribute with the time of each serving layer; 0 for one that the request did not pass."""
MOST_BLOCK_HASHES = 256
"""Of a prompt on its span; `hitmap.prompt_blocks` tells how many there are."""
MOST_CHILDREN = 256
"""Child spans of a request, the first ones; `hitmap.intervals` tells how many there are."""


Told = Value | tuple[str, ...]


class Attribute(NamedTuple):
    """read: its value, None where it is not known."""

    name: str
    meaning: str
    read: Callable[[Request], Told | None]


def _ttft(request: Request) -> float | None:
    return (request.first_token_ns - request.timeline.start_ns) / 1e9 if request.first_token_ns else None


def _cache_key(request: Request) -> str | None:
    return request.cache_key or (str(request.block_hashes[-1]) if request.block_hashes else None)


def _hashes(request: Request) -> str | None:
    return ",".join(map(str, request.block_hashes[:MOST_BLOCK_HASHES])) or None


def faults(request: Request) -> list[str]:
    """The marks of the faults that struck a request in one of its layers, each once."""
    marks = (interval.attributes.get("fault") for interval in request.timeline.intervals)
    return list(dict.fromkeys(str(mark) for mark in marks if mark))


ATTRIBUTES = (
    Attribute("gen_ai.request.id", "as in the response", lambda r: r.request_id),
    Attribute("gen_ai.response.id", "the same", lambda r: r.request_id),
    Attribute("gen_ai.request.model", "as it is served", lambda r: r.model or None),
    Attribute("gen_ai.response.model", "the same", lambda r: r.model or None),
    Attribute("gen_ai.request.max_tokens", "how many it may generate", lambda r: r.sampling.max_tokens),
    Attribute("gen_ai.request.temperature", "0 is greedy", lambda r: r.sampling.temperature),
    Attribute("gen_ai.request.top_p", "1 takes all", lambda r: r.sampling.top_p),
    Attribute("gen_ai.request.top_k", "left out for all", lambda r: r.sampling.top_k or None),
    Attribute("gen_ai.request.seed", "the request's own", lambda r: r.sampling.seed),
    Attribute(
        "gen_ai.response.finish_reasons",
        "stop, length, abort or error",
        lambda r: (str(r.finish_reason),) if r.finish_reason else None,
    ),
    Attribute("gen_ai.usage.input_tokens", "prompt, cached ones included", lambda r: len(r.prompt)),
    Attribute("gen_ai.usage.output_tokens", "generated", lambda r: len(r.output)),
    Attribute("gen_ai.usage.cache_read.input_tokens", "from any tier", lambda r: r.sources.cached),
    Attribute("hitmap.tokens.device", "of the prompt, found on the device", lambda r: r.sources.device),
    Attribute("hitmap.tokens.host", "of the prompt, loaded from host memory", lambda r: r.sources.host),
    Attribute("hitmap.tokens.remote", "of the prompt, loaded from disk", lambda r: r.sources.remote),
    Attribute("hitmap.tokens.computed", "of the prompt, computed", lambda r: r.sources.computed),
    Attribute(
        "hitmap.tokens.recomputed",
        "computed a second time after a preemption, generated ones included",
        lambda r: r.sources.recomputed,
    ),
    Attribute("hitmap.preemptions", "how often it lost its KV", lambda r: r.preemptions),
    Attribute("gen_ai.latency.time_to_first_token", "arrival to first token", _ttft),
    Attribute(
        "gen_ai.latency.e2e",
        "arrival to the last byte; the span's own length",
        lambda r: (r.timeline.end_ns - r.timeline.start_ns) / 1e9,
    ),
    Attribute("cache.key", "what names the prompt in the cache: its last full block's hash", _cache_key),
    Attribute("cache.hit", "whether any token came from a tier", lambda r: r.sources.cached > 0),
    Attribute("hitmap.block_hashes", f"of the prompt's full blocks, the first {MOST_BLOCK_HASHES}", _hashes),
    Attribute("hitmap.prompt_blocks", "how many full blocks", lambda r: len(r.block_hashes) or None),
    Attribute("hitmap.intervals", "parts of its time", lambda r: len(r.timeline.intervals)),
    Attribute("error.type", "left out for none", lambda r: "engine_failed" if r.error else None),
)
"""Of the root span."""

TEXTS = (
    Attribute("gen_ai.prompt", "as it went into the tokenizer", lambda r: r.prompt_text or None),
    Attribute("gen_ai.completion", "as it was generated", lambda r: r.output_text or None),
)
"""Of the root span under capture level `full` alone."""

PARTS = {
    "layer": "the serving layer",
    "tokens": "computed or generated in it",
    "start": "position of the first of them (prefill)",
    "step_tokens": "of all requests in that step (prefill)",
    "decode_seqs": "requests that generated in that step (prefill)",
    "context_tokens": "KV that those attended to (prefill)",
    "held_steps": "steps that had no room for its next chunk (prefill)",
    "steps": "steps it took (decode)",
    "mean_batch": "requests that generated together, on average (decode)",
    "device": "tokens found there (prefix_lookup)",
    "host": "tokens found there (prefix_lookup)",
    "remote": "tokens found there (prefix_lookup)",
    "blocks": "KV blocks that came (load)",
    "bytes": "the same in bytes (load)",
    "lost": "tokens found there, and not loaded (load)",
    "preempted": "whether it waits because it lost its KV (queue)",
    "fault": "the faults that struck in it",
    "fault_us": "how long they made it wait",
}
"""Of the child spans, each with `hitmap.` before it. Those of cachemodel.observed.SPAN_COUNTERS stand beside them, and
their sums on the root."""
