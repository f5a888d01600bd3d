"""Recognises TensorRT-LLM's trtllm-serve over HTTP and says what it tells and which flag opens the rest.

/metrics and /kv_cache_events are not asked: reading them takes away what they hold. It is known by the owner of its
models and by /prometheus/metrics, before a detector that asks /metrics. Read, not run live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collector.detection import Detection, Door, Probe, Visit
from collector.dialects.trtllm import stats
from collector.dialects.trtllm.capabilities import Evidence, capabilities
from collector.dialects.trtllm.metrics import METRICS
from collector.json_poll import JsonPoller
from collector.kv.pull import KvPull
from collector.metric import Metric, notes, resolve
from collector.prometheus import parse
from collector.source import Source

_PATH = "/prometheus/metrics"
_OWNER = "tensorrt_llm"
_FACTS = (
    "page_size",
    "enable_block_reuse",
    "enable_partial_reuse",
    "cache_dtype",
    "free_gpu_memory_fraction",
)


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect among exposed family names."""
    return resolve(METRICS, exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """trtllm-serve behind this probe, or None. otlp: address (host:port) where spans would be received."""
    exposition = parse(probe.text(_PATH))
    families = {exposition.family_of(sample.name)[0].name for sample in exposition.samples}
    models = probe.models()
    ours = any(model.get("owned_by") == _OWNER for model in models)
    if not ours and not any(name.startswith("trtllm_") for name in families):
        return None
    version = str(probe.json("/version").get("version", ""))
    metrics = {metric.name for metric in canonical_names(families).values()}
    infos = (s.labels for s in exposition.samples if s.name.endswith("kv_cache_config_info"))
    config = dict(next(infos, ()))
    return Detection(
        url=probe.url,
        kind="trtllm",
        version=version,
        models=tuple(str(model.get("id", "")) for model in models),
        facts={name: config[name] for name in _FACTS if name in config},
        capabilities=capabilities(Evidence(probe.url, otlp, version, metrics, config)),
        notes=notes(METRICS, version, metrics),
        kv_sources=(),
        metrics_url=f"{probe.url}{_PATH}" if probe.get(_PATH).status != 404 else "",
        resolve=canonical_names,
        doors=(_statistics(probe.url), _kv_events(probe.url)),
    )


def _statistics(url: str) -> Door:
    def open_statistics(visit: Visit) -> Source:
        target = visit.target(f"{url}/metrics")
        name = f"iteration statistics {visit.server}"
        return JsonPoller(name, target, stats.read_stats, stats.canonical_names, visit.sink, visit.samples)

    return Door("iteration statistics", open_statistics, drains=True)


def _kv_events(url: str) -> Door:
    def open_events(visit: Visit) -> Source:
        return KvPull(
            visit.server,
            url,
            visit.sink,
            interval_s=visit.interval_s,
            token=visit.token,
            positions=visit.kv_positions,
            hasher=visit.hasher,
        )

    return Door("KV-cache events", open_events, drains=True)
