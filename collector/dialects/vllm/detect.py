"""Recognises vLLM over HTTP and says what it tells and which flag opens the rest.

Paths: /metrics, /version, /v1/models, and from 0.32 on /kv_event_sources. Flags as in vLLM 0.32.0
(config/observability.py, config/kv_events.py); versions in which they appeared from its release history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collector.detection import Detection, KvSource, Probe
from collector.dialects.vllm.capabilities import Evidence, capabilities
from collector.dialects.vllm.log import reader
from collector.dialects.vllm.metrics import METRICS
from collector.metric import Metric, notes, resolve
from collector.prometheus import parse

_FACTS = (
    "block_size",
    "num_gpu_blocks",
    "cache_dtype",
    "enable_prefix_caching",
    "prefix_caching_hash_algo",
    "kv_cache_size_tokens",
)


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect among exposed family names."""
    return resolve(METRICS, exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """vLLM behind this probe, or None. otlp: address (host:port) where spans would be received."""
    exposition = parse(probe.text("/metrics"))
    families = {exposition.family_of(sample.name)[0].name for sample in exposition.samples}
    models = probe.models()
    if not any(name.startswith("vllm:") for name in families) and all(
        m.get("owned_by") != "vllm" for m in models
    ):
        return None
    version = str(probe.json("/version").get("version", ""))
    config = next((dict(s.labels) for s in exposition.samples if s.name == "vllm:cache_config_info"), {})
    kv_answer = probe.get("/kv_event_sources")
    kv_sources = _kv_sources(probe.json("/kv_event_sources"))
    evidence = Evidence(
        url=probe.url,
        otlp=otlp,
        version=version,
        exposition=exposition,
        metrics={metric.name for metric in canonical_names(families).values()},
        config=config,
        kv_sources=kv_sources,
        tells_kv_sources=kv_answer.status == 200,
    )
    return Detection(
        url=probe.url,
        kind="vllm",
        version=version,
        models=tuple(str(model.get("id", "")) for model in models),
        facts={name: config[name] for name in _FACTS if name in config},
        capabilities=capabilities(evidence),
        notes=notes(METRICS, version, evidence.metrics),
        kv_sources=kv_sources,
        metrics_url=f"{probe.url}/metrics",
        resolve=canonical_names,
        log_reader=reader,
    )


def _kv_sources(answer: Mapping[str, object]) -> tuple[KvSource, ...]:
    """The publishers that are switched on, by data-parallel rank."""
    found = []
    for rank, config in answer.items():
        is_rank = rank.isascii() and rank.isdigit() and len(rank) <= 5
        if is_rank and isinstance(config, dict) and config.get("enable_kv_cache_events"):
            found.append(
                KvSource(
                    rank=int(rank),
                    events=str(config.get("endpoint") or ""),
                    replay=str(config.get("replay_endpoint") or ""),
                    topic=str(config.get("topic") or ""),
                )
            )
    return tuple(found)
