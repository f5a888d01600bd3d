"""What a part of Dynamo lets one see, as rows: signal, seen or not, why that is known, and what opens it."""

from __future__ import annotations

from dataclasses import dataclass

from collector.detection import SERVICE_NAME, Capability, receiver

_WORKER = "DYN_SYSTEM_PORT=8081 in the worker's environment, then hitmap attach http://WORKER:8081"
_ENGINE_METRICS = {
    "vLLM": "the worker without --disable-log-stats",
    "SGLang": "--enable-metrics at the worker",
    "TensorRT-LLM": "--publish-events-and-metrics at the worker",
}
"""What makes a worker pass on the metrics of its engine."""
_ENGINE_HITS = {
    "vLLM": "--enable-prefix-caching at the worker, without --disable-log-stats",
    "SGLang": "--enable-metrics at the worker, without --disable-radix-cache",
    "TensorRT-LLM": "--publish-events-and-metrics at the worker, and return_perf_metrics: true and kv_cache_config:"
    " {enable_block_reuse: true} in the YAML of its --extra-engine-args; TensorRT-LLM 1.2 or newer",
}
"""What makes an engine count its hits."""
_HITS = ("prefix_cache.hit_tokens", "prompt_tokens_by_source", "cached_tokens", "cached_tokens_by_tier")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a part answered. otlp: address where spans would be received; role: front end, worker or KVBM; engine: whose
    metrics it passes on, empty for none; metrics: canonical names among all of them."""

    url: str
    otlp: str
    role: str
    engine: str
    metrics: set[str]


def capabilities(e: Evidence) -> tuple[Capability, ...]:
    """The table, in the order in which a person would open things."""
    return (
        Capability("metrics", True, f"of a {e.role}"),
        _spans(e),
        _engine(e),
        _hits(e),
        _cached(e),
        _predicted(e),
        Capability(
            "KV-cache events",
            None,
            "they go to its event plane (NATS or ZeroMQ), which hitmap does not read",
            "the engine's own --kv-events-config, and hitmap attach --kv-events ENDPOINT",
        ),
        _index(e),
        _kvbm(e),
    )


def _spans(e: Evidence) -> Capability:
    return Capability(
        "request spans (TTFT, tokens)",
        None,
        "spans are sent, not asked for: they show once a request has ended",
        f"DYN_LOGGING_JSONL=true OTEL_EXPORT_ENABLED=true {SERVICE_NAME}"
        f" OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://{receiver(e.url, e.otlp)} in its environment",
    )


def _engine(e: Evidence) -> Capability:
    signal = "the engine's own metrics"
    if e.engine:
        return Capability(signal, True, f"{e.engine}'s, passed on")
    if e.role == "worker":
        flags = "; ".join(f"{engine}: {flag}" for engine, flag in _ENGINE_METRICS.items())
        return Capability(
            signal, False, "none passed on yet: they come a while after the engine is up", flags
        )
    return Capability(signal, False, f"a {e.role} passes none on", _WORKER)


def _hits(e: Evidence) -> Capability:
    signal = "prefix-cache hits"
    if found := next((name for name in _HITS if name in e.metrics), ""):
        return Capability(signal, True, f"the engine's {found}")
    if e.engine:
        return Capability(signal, False, f"{e.engine} counts none here", _ENGINE_HITS[e.engine])
    return Capability(signal, False, "only the engine counts what was really hit", _WORKER)


def _cached(e: Evidence) -> Capability:
    signal = "cached tokens by request"
    if "request.cached_tokens" in e.metrics:
        return Capability(signal, True, "a histogram, as the engines told them")
    if e.role == "front end":
        return Capability(signal, None, "no sample yet: it appears with the first request whose engine tells")
    return Capability(signal, False, "the front end tells", "hitmap attach http://FRONTEND:8000")


def _predicted(e: Evidence) -> Capability:
    signal = "hit ratio the router predicted"
    if "router.predicted_hit_ratio" in e.metrics:
        return Capability(signal, True, "a histogram: a prediction, never to be read as hits")
    return Capability(signal, False, "not exposed", "--router-mode kv at the front end")


def _index(e: Evidence) -> Capability:
    signal = "KV events the router took in"
    if "kv_events.applied" in e.metrics:
        return Capability(signal, True, "a counter, by status and type")
    flag = "--router-mode kv at the front end, and workers that publish KV events"
    return Capability(signal, False, "none taken in", flag)


def _kvbm(e: Evidence) -> Capability:
    signal = "host and disk tiers (KVBM)"
    if any(name.startswith("kvbm.") for name in e.metrics):
        return Capability(signal, True, "blocks moved and tokens matched")
    flag = "DYN_KVBM_METRICS=true with KVBM (until Dynamo 1.6), then hitmap attach http://WORKER:6880"
    return Capability(signal, False, "it tells on a port of its own", flag)
