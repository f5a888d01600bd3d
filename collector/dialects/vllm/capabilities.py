"""What a vLLM lets one see, as rows: signal, seen or not, why that is known, and the flag that opens it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from collector.detection import SERVICE_NAME, Capability, KvSource, attached_with, kv_addresses, receiver
from collector.metric import version_key
from collector.prometheus import Exposition

_FINE_BUCKETS_S = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60]
_STATS = "start it without --disable-log-stats"
_OFFLOADING = "--kv-offloading-size GIB --kv-offloading-backend native"
_COARSE_S = 0.1  # a cache that saves less than the lowest bucket does not show in the histogram


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a server answered. metrics: canonical names among its metrics; config: labels of its cache_config_info;
    otlp: address where spans would be received; tells_kv_sources: whether it has /kv_event_sources."""

    url: str
    otlp: str
    version: str
    exposition: Exposition
    metrics: set[str]
    config: Mapping[str, str]
    kv_sources: tuple[KvSource, ...]
    tells_kv_sources: bool

    @property
    def has_lmcache(self) -> bool:
        """Whether LMCache, which tells of itself, is its connector."""
        return any(sample.name.startswith("lmcache:") for sample in self.exposition.samples)

    def at_least(self, version: str) -> bool:
        """Whether the server is that new; one that hides its version is taken for a new one."""
        key = version_key(self.version)
        return not key or key >= version_key(version)

    def flag(self, flag: str, since: str) -> str:
        """The flag, or the version that has it."""
        return flag if self.at_least(since) else f"vLLM {since} or newer, then {flag}"


def capabilities(evidence: Evidence) -> tuple[Capability, ...]:
    """The table, in the order in which a person would open things."""
    return (
        _metrics(evidence),
        _spans(evidence),
        _prefix_cache(evidence),
        _cached_by_request(evidence),
        _kv_events(evidence),
        _by_metric(
            evidence,
            "prompt tokens by source (local, external)",
            "prompt_tokens_by_source",
            "vLLM 0.16 or newer",
        ),
        _by_metric(
            evidence,
            "cached tokens by tier (device, host, disk)",
            "cached_tokens_by_tier",
            "vLLM 0.32 or newer",
        ),
        _external(evidence),
        _load_time(evidence),
        _lifetime(evidence),
        _histograms(evidence),
        _by_metric(evidence, "preemptions", "preemptions", _STATS),
        Capability(
            "tokens and time of each step",
            None,
            "in its log, which this cannot see; without the option the log tells statistics every ten seconds, resets"
            " of the cache and aborted requests",
            "--enable-logging-iteration-details, and hitmap attach --server-log FILE",
        ),
        Capability(
            "requests the client gave up",
            False,
            "vLLM counts them in prompt_tokens, but not among the finished, and most send no span",
            "a request log of the client (hitmap attach --log FILE)",
        ),
    )


def _metrics(e: Evidence) -> Capability:
    count = sum(sample.name.startswith("vllm:") for sample in e.exposition.samples)
    flag = "" if count else _STATS
    return Capability("metrics", bool(count), f"{count} vllm: samples at /metrics", flag)


def _spans(e: Evidence) -> Capability:
    return Capability(
        "request spans (latency by layer)",
        None,
        "spans are sent, not asked for: they show once a request has ended",
        f"--otlp-traces-endpoint http://{receiver(e.url, e.otlp)}, with {SERVICE_NAME} in its environment",
    )


def _prefix_cache(e: Evidence) -> Capability:
    signal = "prefix-cache hits"
    if e.config.get("enable_prefix_caching") == "False":
        return Capability(signal, False, "enable_prefix_caching is False", "--enable-prefix-caching")
    if "prefix_cache.query_tokens" in e.metrics:
        return Capability(signal, True, "counters, in tokens")
    if "prefix_cache.hit_ratio_gauge" in e.metrics:
        return Capability(signal, False, "only a ratio over an unknown window", "vLLM 0.8 or newer")
    return Capability(signal, False, "no such counter", "vLLM 0.8 or newer, with --enable-prefix-caching")


def _cached_by_request(e: Evidence) -> Capability:
    return Capability(
        "cached tokens by request",
        None,
        "not on vLLM's spans; in the usage of responses, which this cannot see",
        "--enable-prompt-tokens-details, and a log of the responses (hitmap attach --log FILE)",
    )


def _kv_events(e: Evidence) -> Capability:
    signal = "KV-cache events"
    if e.kv_sources:
        source = e.kv_sources[0]
        if source.replay:
            return Capability(signal, True, f"published to {source.events}, replay at {source.replay}")
        return Capability(
            signal,
            True,
            f"published to {source.events}, without replay: what is lost stays lost",
            f'"replay_endpoint": "{kv_addresses(e.url)["replay_endpoint"]}" in its --kv-events-config',
        )
    config = {"enable_kv_cache_events": True, "publisher": "zmq", **kv_addresses(e.url)}
    flag = f"--kv-events-config '{json.dumps(config)}'" + attached_with(config)
    if e.tells_kv_sources:
        return Capability(signal, False, "/kv_event_sources lists none", flag)
    asked = "/kv_event_sources does not answer" if e.at_least("0.32") else "vLLM before 0.32 does not tell"
    evidence = f"{asked}; pass --kv-events and --replay if it publishes"
    return Capability(signal, None, evidence, e.flag(flag, "0.9"))


def _external(e: Evidence) -> Capability:
    signal = "hits beyond the device (KV connector)"
    if "external_cache.query_tokens" not in e.metrics:
        return Capability(
            signal, False, "no such counter", _STATS if e.at_least("0.12") else "vLLM 0.12 or newer"
        )
    asked = sum(s.value for s in e.exposition.samples if s.name == "vllm:external_prefix_cache_queries_total")
    if asked:
        return Capability(signal, True, f"{asked:,.0f} tokens asked of a connector so far")
    if e.has_lmcache:
        return Capability(signal, True, "a counter, 0 so far: LMCache was not asked yet")
    flag = f"{_OFFLOADING}, or another connector with --kv-transfer-config"
    return Capability(signal, None, "a counter, 0 so far: there is no connector, or none was asked yet", flag)


def _load_time(e: Evidence) -> Capability:
    signal = "time to load KV from host or disk"
    if "kv_load.time" in e.metrics:
        return Capability(signal, True, "offload counters")
    if e.has_lmcache:
        evidence = "no option opens one of vLLM's own beside LMCache, which tells its times below"
        return Capability(signal, False, evidence)
    return Capability(signal, False, "no offload tier that counts", e.flag(_OFFLOADING, "0.12"))


def _lifetime(e: Evidence) -> Capability:
    seen = "kv_block.lifetime" in e.metrics
    flag = "" if seen else e.flag("--kv-cache-metrics --kv-cache-metrics-sample 0.1", "0.13")
    return Capability(
        "lifetime and reuse of blocks", seen, "sampled histograms" if seen else "not exposed", flag
    )


def _histograms(e: Evidence) -> Capability:
    signal = "queue and prefill time as histograms"
    prefix = "vllm:request_prefill_time_seconds_bucket"
    texts = {dict(sample.labels).get("le", "") for sample in e.exposition.samples if sample.name == prefix}
    bounds = [float(text) for text in texts if text.replace(".", "", 1).isdecimal()]
    if not bounds:
        return Capability(signal, False, "not exposed", _STATS if e.at_least("0.7") else "vLLM 0.7 or newer")
    lowest = min(bounds)
    evidence = f"lowest bucket {lowest:g} s"
    if lowest <= _COARSE_S:
        return Capability(signal, True, evidence)
    buckets = json.dumps({"request_latency": _FINE_BUCKETS_S})
    flag = e.flag(f"--custom-histogram-buckets '{buckets}'", "0.32")
    return Capability(signal, False, f"{evidence}: too coarse for what a cache saves", flag)


def _by_metric(e: Evidence, signal: str, metric: str, remedy: str) -> Capability:
    seen = metric in e.metrics
    return Capability(signal, seen, "counter" if seen else "not exposed", "" if seen else remedy)
