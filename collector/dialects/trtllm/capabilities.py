"""What a trtllm-serve lets one see, as rows: signal, seen or not, why that is known, and the flag that opens it.

Most flags are keys of the YAML file that trtllm-serve takes (--config, in older versions --extra_llm_api_options).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collector.detection import SERVICE_NAME, Capability, receiver
from collector.metric import version_key

_YAML = "in the YAML of --config (before: --extra_llm_api_options): "
_PERF = "return_perf_metrics: true"
_ITERATIONS = "enable_iter_perf_stats: true"
_STAGES = {"queue_time": "queue", "prefill_time": "prefill", "decode_time": "decode"}
_SINCE = "1.2"  # before it there are five metrics of requests, none of them of the cache


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a server answered. metrics: canonical names among its metrics; config: labels of its kv_cache_config_info;
    otlp: address where spans would be received; version: empty where it does not tell."""

    url: str
    otlp: str
    version: str
    metrics: set[str]
    config: Mapping[str, str]

    @property
    def newer(self) -> str:
        """What has to come before a flag: a newer version, unless this one is known to be new enough."""
        key = version_key(self.version)
        return "" if key and key >= version_key(_SINCE) else f"TensorRT-LLM {_SINCE} or newer, then "


def capabilities(evidence: Evidence) -> tuple[Capability, ...]:
    """The table, in the order in which a person would open things."""
    return (
        _metrics(evidence),
        _spans(evidence),
        _block_reuse(evidence),
        _counter(evidence, "prefix-cache hits, in tokens", "cached_tokens", _PERF),
        _counter(evidence, "prefix-cache hits, in blocks", "prefix_cache.hit_blocks", _ITERATIONS),
        _counter(evidence, "cached tokens by tier (device, host)", "cached_tokens_by_tier", _PERF),
        _counter(evidence, "bytes moved between device and host", "kv_load.bytes", _ITERATIONS),
        _stages(evidence),
        Capability(
            "statistics of each iteration",
            None,
            "reading /metrics takes them away from whoever else reads them there, so it was not asked",
            f"{_YAML}{_ITERATIONS}; then hitmap attach --drain",
        ),
        Capability(
            "KV-cache events",
            None,
            "reading /kv_cache_events takes them away from whoever else reads them there, so it was not asked",
            f"{_YAML}kv_cache_config: {{enable_block_reuse: true, event_buffer_max_size: 16384}}; then hitmap attach "
            "--drain, or --kv-events ENDPOINT where it publishes them itself (kv_events_config, 1.4)",
        ),
        Capability(
            "cached tokens by request",
            None,
            "not on its spans; in the usage of responses, which this cannot see",
            "a log of the responses (hitmap attach --log FILE)",
        ),
    )


def _metrics(e: Evidence) -> Capability:
    if e.metrics:
        return Capability("metrics", True, f"{len(e.metrics)} metrics known, at /prometheus/metrics")
    return Capability("metrics", False, "/prometheus/metrics is empty or not there", _YAML + _PERF)


def _spans(e: Evidence) -> Capability:
    return Capability(
        "request spans (latency by layer)",
        None,
        "spans are sent, not asked for: they show once a request has ended",
        f"{_YAML}otlp_traces_endpoint: http://{receiver(e.url, e.otlp)} and {_PERF}; {SERVICE_NAME} in its "
        "environment",
    )


def _block_reuse(e: Evidence) -> Capability:
    signal, flag = "block reuse (the prefix cache)", f"{_YAML}kv_cache_config: {{enable_block_reuse: true}}"
    told = e.config.get("enable_block_reuse", "").lower()
    if told:
        is_on = told == "true"
        return Capability(signal, is_on, f"enable_block_reuse is {is_on}", "" if is_on else flag)
    return Capability(signal, None, "no metric tells whether it is on", flag)


def _counter(e: Evidence, signal: str, metric: str, flag: str) -> Capability:
    if metric in e.metrics:
        return Capability(signal, True, "counter")
    return Capability(signal, False, "not exposed", f"{e.newer}{_YAML}{flag}")


def _stages(e: Evidence) -> Capability:
    signal = "queue, prefill and decode time as histograms"
    seen = [stage for name, stage in _STAGES.items() if name in e.metrics]
    if len(seen) == len(_STAGES):
        return Capability(signal, True, "lowest bucket 1 ms for prefill, 0.3 s else")
    evidence = f"{' and '.join(seen)} time only" if seen else "not exposed"
    return Capability(signal, False, evidence, f"{e.newer}{_YAML}{_PERF}")
