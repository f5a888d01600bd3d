"""What an LMCache lets one see, as rows: signal, seen or not, why that is known, and what opens it."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from collector.detection import Capability, receiver

_KV_EVENTS = Capability(
    "LMCache: KV-cache events",
    None,
    "they come with the engine's own, whole chunks on medium cpu; what is evicted is not told in the process",
    "enable_kv_events: true in LMCache's configuration, and the engine's --kv-events-config",
)


def in_process(metrics: Collection[str]) -> tuple[Capability, ...]:
    """Beside what the engine tells. metrics: canonical names of LMCache's."""
    return (
        _counter(metrics, "LMCache: tokens looked up and found", "lmcache.lookup.hit_tokens"),
        _counter(metrics, "LMCache: tokens loaded", "lmcache.retrieve.hit_tokens"),
        _counter(metrics, "LMCache: time to load", "lmcache.retrieve.time"),
        _KV_EVENTS,
        Capability(
            "LMCache: hits by request",
            None,
            "in the engine's log (Reqid ... LMCache hit tokens), which this cannot see",
            "hitmap attach --server-log FILE",
        ),
    )


def of_server(url: str, otlp: str, metrics: Collection[str]) -> tuple[Capability, ...]:
    """The table of a server of its own. otlp: address where it could send to."""
    here = receiver(url, otlp)
    told = any(name.startswith("lmcache.") for name in metrics)
    elsewhere = (
        f"hitmap attach http://{urlsplit(url).hostname}:9090 (its --prometheus-port); it has to run without"
        " --otlp-endpoint, --disable-metrics and --disable-observability"
    )
    flag = "" if told else elsewhere
    return (
        Capability(
            "metrics",
            told,
            "at /metrics" if told else "none here: on a port of their own (9090), or sent over OTLP",
            flag,
        ),
        _counter(metrics, "tokens looked up and found", "lmcache.lookup.hit_tokens", flag),
        _tiers(metrics, flag),
        _counter(metrics, "what L1 reads, writes and evicts (chunks)", "lmcache.host.read_chunks", flag),
        Capability(
            "spans of lookups, loads and writes",
            None,
            "they explain an engine's request, they are none of their own; the metrics then go over OTLP too",
            f"--enable-tracing --otlp-endpoint http://{here}",
        ),
        Capability(
            "KV-cache events",
            False,
            "over gRPC (SubscribeKvEvents), which hitmap does not read",
            "the engine's own --kv-events-config",
        ),
    )


def _tiers(metrics: Collection[str], flag: str) -> Capability:
    signal = "hits by tier (host, remote)"
    if "lmcache.lookup.host_tokens" in metrics:
        return Capability(signal, True, "counters, in tokens")
    if "lmcache.lookup.hit_tokens" in metrics:
        return Capability(signal, False, "a counter of one total", "LMCache as a server of its own")
    return _counter(metrics, signal, "lmcache.lookup.host_tokens", flag)


def _counter(metrics: Collection[str], signal: str, metric: str, flag: str = "") -> Capability:
    """flag: what opens the metrics, empty where they are there: then nothing but a first count is wanting."""
    if metric in metrics:
        return Capability(signal, True, "counted")
    return Capability(signal, False, "no metrics here" if flag else "it appears with the first count", flag)
