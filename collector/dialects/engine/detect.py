"""Recognises hitmap's own engine over HTTP: by its metrics, under /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from collector.detection import Detection, Door, KvSource, Probe
from collector.dialects.engine.capabilities import capabilities
from collector.dialects.engine.instance import Instance, identity
from collector.dialects.engine.metrics import METRICS
from collector.metric import Metric, notes, resolve
from collector.prometheus import parse

_PREFIX = "hitmap_engine_"
_FACTS = ("block_size", "device_blocks", "host_blocks", "disk_blocks", "prefix_caching", "hash_algo")


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect among exposed family names."""
    return resolve(METRICS, exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """The engine behind this probe, or None. otlp: address (host:port) where spans would be received."""
    exposition = parse(probe.text("/metrics"))
    families = {exposition.family_of(sample.name)[0].name for sample in exposition.samples}
    info = next((dict(s.labels) for s in exposition.samples if s.name == f"{_PREFIX}info"), None)
    if info is None:
        return None
    version = info.get("version", "")
    kv_sources = _kv_sources(probe.json("/kv_event_sources"))
    service, instance = identity(probe.json("/version"))
    metrics = {metric.name for metric in canonical_names(families).values()}
    return Detection(
        url=probe.url,
        kind="engine",
        version=version,
        models=tuple(str(model.get("id", "")) for model in probe.models()),
        facts={name: info[name] for name in _FACTS if name in info},
        capabilities=capabilities(probe.url, otlp, exposition, metrics, info, kv_sources),
        notes=notes(METRICS, version, metrics),
        kv_sources=kv_sources,
        metrics_url=f"{probe.url}/metrics",
        resolve=canonical_names,
        doors=(Door("instance", partial(Instance, probe.url, instance)),),
        service=service,
        instance=instance,
    )


def _kv_sources(answer: Mapping[str, object]) -> tuple[KvSource, ...]:
    """The publisher, in vLLM's words; it always binds."""
    return tuple(
        KvSource(
            rank=int(rank),
            events=str(config.get("endpoint") or ""),
            replay=str(config.get("replay_endpoint") or ""),
            topic=str(config.get("topic") or ""),
            connects=False,
        )
        for rank, config in answer.items()
        if rank.isascii() and rank.isdigit() and len(rank) <= 5 and isinstance(config, dict)
    )
