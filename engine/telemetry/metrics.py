"""What the engine counts, in one table, and the counting. Tokens are counted when their request ends, so that counters,
spans and usage agree to the token; `step_tokens` is counted step by step, from the other side.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cachemodel.layers import Tier
from engine.config import EngineConfig
from engine.observer import Step
from engine.request import FinishReason, Request
from engine.telemetry.exposition import Family, Histogram, Labels

if TYPE_CHECKING:
    from engine.core.stepper import Stats

PREFIX = "hitmap_engine_"
_LATENCY = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5,
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
_STEP = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_TIERS = tuple(str(tier) for tier in Tier)
_LOADED_TIERS = _TIERS[1:]


def _row(name: str, kind: str, text: str, labels: Labels = (), buckets: tuple[float, ...] = ()) -> Family:
    return Family(PREFIX + name, kind, text, labels, buckets)


STARTED = _row("requests_received", "counter", "Requests taken into the queue")
FINISHED = _row("requests_finished", "counter", "Requests that ended, by reason", ("reason",))
PROMPT = _row("prompt_tokens", "counter", "Prompt tokens of requests that ended")
BY_SOURCE = _row("prompt_tokens_by_source", "counter", "Prompt tokens by where they came from", ("source",))
GENERATED = _row("generation_tokens", "counter", "Generated tokens")
RECOMPUTED = _row("recomputed_tokens", "counter", "Tokens computed again after a preemption")
PREEMPTIONS = _row("preemptions", "counter", "Requests put back to wait, their KV dropped")
QUERIES = _row("prefix_cache_queries", "counter", "Prompt tokens looked up on the device, once a request")
HITS = _row("prefix_cache_hits", "counter", "Prompt tokens found on the device")
FAR_QUERIES = _row(
    "external_prefix_cache_queries", "counter", "Those not found there, looked up in the other tiers"
)
FAR_HITS = _row("external_prefix_cache_hits", "counter", "Prompt tokens found in another tier")
STEPS = _row("steps", "counter", "Passes over the device")
STEP_TOKENS = _row("step_tokens", "counter", "Tokens that steps computed", ("phase",))
LOADED_BLOCKS = _row("kv_loaded_blocks", "counter", "KV blocks loaded to the device, by tier", ("tier",))
LOADED_BYTES = _row("kv_loaded_bytes", "counter", "The same in bytes", ("tier",))
TTFT = _row("time_to_first_token_seconds", "histogram", "Arrival to first token", buckets=_LATENCY)
E2E = _row("e2e_request_latency_seconds", "histogram", "Arrival to the last byte", buckets=_LATENCY)
LAYER = _row(
    "request_layer_seconds", "histogram", "A request's time in a serving layer", ("layer",), _LATENCY
)
STEP_TIME = _row("step_seconds", "histogram", "Of a step", buckets=_STEP)
MODEL_TIME = _row("model_seconds", "histogram", "Of a step, in the decoder", buckets=_STEP)
RUNNING = _row("num_requests_running", "gauge", "Requests in the batch")
WAITING = _row("num_requests_waiting", "gauge", "Requests that wait to be scheduled")
LOADING = _row("num_requests_loading", "gauge", "Of the running ones, those whose KV is on its way")
FAILED_STEPS = _row("failed_steps", "counter", "Steps that ended in an error")
BLOCKS = _row("kv_blocks", "gauge", "KV blocks there are, by tier", ("tier",))
USED = _row("kv_used_blocks", "gauge", "KV blocks that requests hold", ("tier",))
CACHED = _row("kv_cached_blocks", "gauge", "KV blocks that can be found, held or not", ("tier",))
USAGE = _row("kv_cache_usage_perc", "gauge", "Share (0 to 1) of the blocks that requests hold", ("tier",))
EVICTED = _row("kv_evicted_blocks", "counter", "KV blocks that left a tier for want of room", ("tier",))
DROPPED = _row("kv_dropped_blocks", "counter", "Of those, went to no other tier", ("tier",))
MOVED = _row("kv_moved_bytes", "counter", "KV that came to a tier from another", ("tier",))
LOAD_FAILURES = _row("kv_load_failures", "counter", "KV blocks that could not be loaded")
DISK_FAILURES = _row("kv_disk_failures", "counter", "Reads and writes of the disk tier that failed")
LOST = _row("kv_lost_tokens", "counter", "Tokens found in a tier whose load failed")
GATHERED = _row("kv_gathered_bytes", "counter", "KV copied to be read, its blocks being scattered")
KV_BATCHES = _row("kv_event_batches", "counter", "Batches of KV events, published or lost", ("outcome",))
TRACES = _row("traces", "counter", "Traces sent, not taken by the receiver, or dropped", ("outcome",))
FAULTS = _row("faults_active", "gauge", "Faults that are on", ("kind",))
INFO = _row(
    "info",
    "gauge",
    "Static facts, as labels of a 1",
    (
        "version",
        "model",
        "dtype",
        "device",
        "block_size",
        "device_blocks",
        "host_blocks",
        "disk_blocks",
        "prefix_caching",
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_load_blocks",
        "hash_algo",
    ),
)
_STARTING_AT_0 = {
    **dict.fromkeys((STARTED, PROMPT, GENERATED, RECOMPUTED, PREEMPTIONS, STEPS), ((),)),
    **dict.fromkeys((QUERIES, HITS, FAR_QUERIES, FAR_HITS), ((),)),
    FINISHED: tuple((str(reason),) for reason in FinishReason),
    BY_SOURCE: tuple((source,) for source in (*_TIERS, "computed")),
    STEP_TOKENS: (("prefill",), ("decode",)),
    LOADED_BLOCKS: tuple((tier,) for tier in _LOADED_TIERS),
    LOADED_BYTES: tuple((tier,) for tier in _LOADED_TIERS),
}

Values = Mapping[Labels, float] | Mapping[Labels, Histogram]


class Metrics:
    """The counters and histograms of an engine. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Family, dict[Labels, float]] = {
            family: dict.fromkeys(series, 0) for family, series in _STARTING_AT_0.items()
        }
        self._histograms: dict[Family, dict[Labels, Histogram]] = defaultdict(dict)

    def request_started(self) -> None:
        with self._lock:
            self._add(STARTED, 1)

    def request_finished(self, request: Request) -> None:
        """Count a request whose timeline is closed."""
        timeline, sources, spent = request.timeline, request.sources, request.timeline.layer_ns()
        with self._lock:
            self._add(FINISHED, 1, str(request.finish_reason or FinishReason.ERROR))
            self._add(PROMPT, len(request.prompt))
            if "prefix" in spent and not request.reads_off:
                self._add(QUERIES, len(request.prompt))
                self._add(FAR_QUERIES, len(request.prompt) - sources.device)
            self._add(HITS, sources.device)
            self._add(FAR_HITS, sources.host + sources.remote)
            self._add(GENERATED, len(request.output))
            self._add(RECOMPUTED, sources.recomputed)
            self._add(PREEMPTIONS, request.preemptions)
            self._add(BY_SOURCE, sources.computed, "computed")
            for tier, tokens in zip(_TIERS, (sources.device, sources.host, sources.remote), strict=True):
                self._add(BY_SOURCE, tokens, tier)
            self._observe(E2E, (timeline.end_ns - timeline.start_ns) / 1e9)
            if request.first_token_ns:
                self._observe(TTFT, (request.first_token_ns - timeline.start_ns) / 1e9)
            for layer, spent_ns in spent.items():
                self._observe(LAYER, spent_ns / 1e9, layer)

    def step_done(self, step: Step) -> None:
        with self._lock:
            self._add(STEPS, 1)
            self._add(STEP_TOKENS, step.prefill_tokens, "prefill")
            self._add(STEP_TOKENS, step.decode_seqs, "decode")
            for tier, blocks in step.loaded_blocks.items():
                self._add(LOADED_BLOCKS, blocks, tier)
            for tier, nbytes in step.loaded_bytes.items():
                self._add(LOADED_BYTES, nbytes, tier)
            self._observe(STEP_TIME, step.duration_ns / 1e9)
            self._observe(MODEL_TIME, step.model_ns / 1e9)

    def text(self, others: Mapping[Family, Values]) -> bytes:
        """All of it, and what others count, as Prometheus reads it."""
        with self._lock:
            mine = [line for table in (self._numbers, self._histograms) for line in _lines(table)]
        return "".join([*mine, *_lines(others)]).encode()

    def _add(self, family: Family, value: float, *labels: str) -> None:
        series = self._numbers[family]
        series[labels] = series.get(labels, 0) + value

    def _observe(self, family: Family, value: float, *labels: str) -> None:
        series = self._histograms[family]
        if labels not in series:
            series[labels] = Histogram(family.buckets)
        series[labels].observe(value)


def _lines(table: Mapping[Family, Values]) -> list[str]:
    return [line for family, values in table.items() for line in family.lines(values)]


def of_stats(stats: Stats) -> dict[Family, Values]:
    """What the core and the cache count themselves."""
    tiers, counts = stats.cache.tiers, stats.cache.counts
    there = {tier: told for tier, told in tiers.items() if told.capacity}
    return {
        RUNNING: one(stats.running),
        WAITING: one(stats.waiting),
        LOADING: one(stats.loading),
        FAILED_STEPS: one(stats.failed_steps),
        BLOCKS: by_label({tier: told.capacity for tier, told in tiers.items()}),
        USED: by_label({tier: told.used for tier, told in tiers.items()}),
        CACHED: by_label({tier: told.cached for tier, told in tiers.items()}),
        USAGE: by_label({tier: told.used / told.capacity for tier, told in there.items()}),
        EVICTED: by_label({tier: counts.evictions[tier] for tier in tiers}),
        DROPPED: by_label({tier: counts.dropped[tier] for tier in tiers}),
        MOVED: by_label({tier: counts.moved_bytes[tier] for tier in tiers}),
        LOAD_FAILURES: one(counts.load_failures),
        DISK_FAILURES: one(counts.disk_failures),
        LOST: one(counts.lost),
        GATHERED: one(stats.gathered_bytes),
    }


def one(value: float) -> dict[Labels, float]:
    """The value of a family without labels."""
    return {(): value}


def by_label(values: Mapping[str, float]) -> dict[Labels, float]:
    """The values of a family with one label."""
    return {(str(label),): value for label, value in values.items()}


def info(config: EngineConfig, version: str) -> Labels:
    """The labels of INFO."""
    facts = (
        version,
        config.served_model_name or config.model,
        config.dtype,
        config.device,
        config.block_size,
        config.device_blocks,
        config.host_blocks,
        config.disk_blocks,
        config.prefix_caching,
        config.max_num_batched_tokens,
        config.max_num_seqs,
        config.max_load_blocks,
        "sha256",
    )
    return tuple(map(str, facts))
