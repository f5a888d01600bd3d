"""What an SGLang lets one see, as rows: signal, seen or not, why that is known, and the flag that opens it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collector.detection import (
    SERVICE_NAME,
    Capability,
    KvSource,
    attached_with,
    is_loopback,
    kv_addresses,
    receiver,
)

_MOST_CHARS = 200  # of a text that a server tells
_UNASKED = "/server_info does not answer"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a server answered. otlp: address where spans would be received; samples: how many of its own at /metrics;
    metrics: canonical names among them; tells_tiers: whether it says where cached tokens came from; info: its
    /server_info, empty where it has none."""

    url: str
    otlp: str
    samples: int
    metrics: set[str]
    tells_tiers: bool
    info: Mapping[str, Any]
    kv_sources: tuple[KvSource, ...]

    def flag(self, option: str, flag: str) -> str:
        """The flag; where the server tells its options and this is none of them, a newer server first."""
        return f"a newer SGLang, then {flag}" if self.info and option not in self.info else flag

    @property
    def traces_here(self) -> bool | None:
        """Whether it sends its spans to us; None where it does not tell."""
        if not self.info:
            return None
        if not self.info.get("enable_trace"):
            return False
        mine, theirs = (_address(text) for text in (receiver(self.url, self.otlp), self.sent_to))
        hosts = (mine[0], theirs[0])
        return mine[1] == theirs[1] and (hosts[0] == hosts[1] or all(map(is_loopback, hosts)))

    @property
    def sent_to(self) -> str:
        """Where it says that its spans go."""
        return str(self.info.get("otlp_traces_endpoint") or "")[:_MOST_CHARS]


def _address(text: str) -> tuple[str, str]:
    """Host and port of an address, with a scheme or without."""
    host, _, port = text.rpartition("://")[2].rstrip("/").rpartition(":")
    return host, port


def capabilities(e: Evidence) -> tuple[Capability, ...]:
    """The table, in the order in which a person would open things."""
    return (
        Capability(
            "metrics",
            bool(e.samples),
            f"{e.samples} sglang samples at /metrics",
            "" if e.samples else "--enable-metrics",
        ),
        _spans(e),
        _prefix_cache(e),
        _cached_by_request(e),
        _kv_events(e),
        _cached_by_tier(e),
        _host(e),
        _storage(e),
        _queue(e),
        _counter(e, "preemptions (retracted requests)", "preemptions"),
        _counter(e, "requests the client gave up", "requests.aborted"),
        Capability(
            "batches, as they were scheduled",
            None,
            "in its log, which this cannot see",
            "hitmap attach --server-log FILE, its standard error",
        ),
    )


def _spans(e: Evidence) -> Capability:
    signal = "request spans (latency, cached tokens)"
    here = receiver(e.url, e.otlp)
    flag = f"--enable-trace --otlp-traces-endpoint {here}, with {SERVICE_NAME} in its environment"
    if e.traces_here is None:
        return Capability(signal, None, f"{_UNASKED}: spans show once a request has ended", flag)
    if e.traces_here:
        return Capability(signal, True, f"enable_trace, sent to {e.sent_to}")
    if e.info.get("enable_trace"):
        sent = f"enable_trace, but sent to {e.sent_to}"
        return Capability(signal, False, sent, f"--otlp-traces-endpoint {here}")
    evidence = "enable_trace is off" if "enable_trace" in e.info else "this version sends none"
    return Capability(signal, False, evidence, e.flag("enable_trace", flag))


def _prefix_cache(e: Evidence) -> Capability:
    signal = "prefix-cache hits"
    if e.info.get("disable_radix_cache"):
        return Capability(
            signal, False, "disable_radix_cache is set", "start it without --disable-radix-cache"
        )
    if "prompt_tokens_by_source" in e.metrics:
        return Capability(signal, True, "counters of prefill tokens by source")
    if "cached_tokens_by_tier" in e.metrics:
        return Capability(signal, True, "a counter of cached tokens, of finished requests")
    if "prefix_cache.last_batch_hit_ratio" in e.metrics:
        return Capability(signal, False, "only a ratio, of the last batch alone", "a newer SGLang")
    return Capability(signal, False, "no such counter", "--enable-metrics")


def _cached_by_request(e: Evidence) -> Capability:
    signal = "cached tokens by request"
    if e.traces_here:
        return Capability(signal, True, "on its spans (gen_ai.usage.cached_tokens)")
    log = "a log of the responses (hitmap attach --log FILE)"
    if e.info.get("enable_cache_report"):
        return Capability(signal, None, "in the usage of responses, which this cannot see", log)
    told = "enable_cache_report is off" if e.info else _UNASKED
    return Capability(
        signal,
        False if e.info else None,
        f"{told}: null in the usage of responses",
        f"--enable-trace (they are on its spans), or --enable-cache-report and {log}",
    )


def _kv_events(e: Evidence) -> Capability:
    signal = "KV-cache events"
    if e.kv_sources:
        source, ranks = e.kv_sources[0], len(e.kv_sources)
        told = f"published to {source.events}" + (f" and the next {ranks - 1} ports" if ranks > 1 else "")
        if source.replay:
            return Capability(signal, True, f"{told}, replay at {source.replay}")
        flag = f'"replay_endpoint": "{kv_addresses(e.url)["replay_endpoint"]}" in its --kv-events-config'
        return Capability(signal, True, f"{told}, without replay: what is lost stays lost", flag)
    config = {"publisher": "zmq", **kv_addresses(e.url)}
    flag = f"--kv-events-config '{json.dumps(config)}'" + attached_with(config)
    if e.info:
        told = (
            "kv_events_config is not set" if "kv_events_config" in e.info else "this version publishes none"
        )
        return Capability(signal, False, told, e.flag("kv_events_config", flag))
    return Capability(signal, None, f"{_UNASKED}; pass --kv-events and --replay if it publishes", flag)


def _cached_by_tier(e: Evidence) -> Capability:
    signal = "cached tokens by tier (device, host, storage)"
    if "cached_tokens_by_tier" in e.metrics and not e.tells_tiers:
        return Capability(signal, False, "a counter of one total", "a newer SGLang")
    return _counter(e, signal, "cached_tokens_by_tier")


def _host(e: Evidence) -> Capability:
    signal = "host tier (HiCache): loads, writes, time"
    if "kv_load.tokens" in e.metrics:
        return Capability(signal, True, "counters of tokens, bytes and time")
    if e.info.get("enable_hierarchical_cache"):
        flag = "" if e.samples else "--enable-metrics"
        return Capability(
            signal, False, "enable_hierarchical_cache: the counters come with the first load", flag
        )
    seen = False if e.info or e.samples else None
    flag = e.flag("enable_hierarchical_cache", "--enable-hierarchical-cache")
    return Capability(signal, seen, "no host tier that counts", flag)


def _storage(e: Evidence) -> Capability:
    signal = "storage tier (HiCache L3)"
    if "remote_load.tokens" in e.metrics:
        return Capability(signal, True, "counters of tokens, pages and bandwidth")
    backend = e.info.get("hicache_storage_backend")
    if backend:
        flag = "" if e.samples else "--enable-metrics"
        return Capability(
            signal, False, f"backend {str(backend)[:_MOST_CHARS]}: the counters come with the first use", flag
        )
    seen = False if e.info or e.samples else None
    flag = "--enable-hierarchical-cache --hicache-storage-backend BACKEND"
    return Capability(signal, seen, "no storage tier that counts", e.flag("hicache_storage_backend", flag))


def _queue(e: Evidence) -> Capability:
    signal = "queue and prefill apart"
    spans = "its spans count queueing as prefill"
    if "queue_time" in e.metrics:
        return Capability(signal, True, f"queue time as a histogram; {spans}")
    if e.samples:
        return Capability(
            signal, False, f"no queue-time histogram: newer ones have it with the first request; {spans}"
        )
    return Capability(signal, False, f"no metrics; {spans}", "--enable-metrics")


def _counter(e: Evidence, signal: str, metric: str) -> Capability:
    if metric in e.metrics:
        return Capability(signal, True, "counter")
    if e.samples:
        return Capability(
            signal,
            False,
            "nothing counted so far: the counter appears with the first, where the version has it",
        )
    return Capability(signal, False, "no metrics", "--enable-metrics")
