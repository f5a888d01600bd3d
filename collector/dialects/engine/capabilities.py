"""What an engine lets one see, as rows: signal, seen or not, why that is known, and the flag that opens it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from collector.detection import Capability, KvSource, kv_addresses, receiver
from collector.prometheus import Exposition

_TRACES = "hitmap_engine_traces_total"


def capabilities(
    url: str,
    otlp: str,
    exposition: Exposition,
    metrics: Collection[str],
    info: Mapping[str, str],
    kv_sources: tuple[KvSource, ...],
) -> tuple[Capability, ...]:
    """The table, in the order in which a person would open things."""
    return (
        Capability("metrics", True, f"{len(exposition.samples)} samples at /metrics"),
        _spans(url, otlp, exposition),
        _prefix_cache(info),
        _kv_events(url, kv_sources),
        Capability("prompt tokens by tier", True, "on the spans, and in the usage of responses"),
        _tier(info, "host", "--host-blocks 2048"),
        _tier(info, "disk", "--disk-blocks 4096"),
        Capability("preemptions", "preemptions" in metrics, "counter, and on the spans"),
        Capability("requests the client gave up", True, "spans and counters with the reason abort"),
        _faults(exposition),
    )


def _spans(url: str, otlp: str, exposition: Exposition) -> Capability:
    signal = "request spans (latency by layer)"
    sent = {dict(s.labels).get("outcome"): s.value for s in exposition.samples if s.name == _TRACES}
    flag = f"--otlp {receiver(url, otlp)}"
    if not sent:
        return Capability(signal, False, "it was started without --otlp", flag)
    taken, lost = sent.get("sent", 0), sent.get("failed", 0) + sent.get("dropped", 0)
    if lost and not taken:
        return Capability(signal, False, f"nobody takes them at its --otlp address: {lost:,.0f} lost", flag)
    if lost:
        return Capability(signal, True, f"{taken:,.0f} sent, {lost:,.0f} not taken", flag)
    return Capability(signal, True, f"all layers; {taken:,.0f} sent so far")


def _prefix_cache(info: Mapping[str, str]) -> Capability:
    signal = "prefix-cache hits"
    if info.get("prefix_caching") == "False":
        return Capability(signal, False, "it was started with --no-prefix-caching", "--prefix-caching")
    return Capability(signal, True, "counters, in tokens")


def _kv_events(url: str, sources: tuple[KvSource, ...]) -> Capability:
    signal, free = "KV-cache events", kv_addresses(url)
    replay = f"--kv-replay {free['replay_endpoint']}"
    if not sources:
        flag = f"--kv-events {free['endpoint']} {replay}"
        return Capability(signal, False, "/kv_event_sources lists none", flag)
    source = sources[0]
    if source.replay:
        return Capability(signal, True, f"published to {source.events}, replay at {source.replay}")
    evidence = f"published to {source.events}, without replay: what is lost stays lost"
    return Capability(signal, True, evidence, replay)


def _tier(info: Mapping[str, str], tier: str, flag: str) -> Capability:
    signal = f"time to load KV from {tier}"
    blocks = info.get(f"{tier}_blocks", "0")
    if blocks == "0":
        return Capability(signal, False, "it has no such tier", flag)
    return Capability(signal, True, f"a layer on the spans; the tier has {blocks} blocks")


def _faults(exposition: Exposition) -> Capability:
    on = sum(s.value for s in exposition.samples if s.name == "hitmap_engine_faults_active")
    evidence = f"{on:.0f} on; their marks are in the label `fault` of a request"
    return Capability("faults injected on purpose", True, evidence)
