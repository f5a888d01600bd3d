"""Recognises Triton by its metrics (port 8002) or by its API (port 8000), which has none. Read, not run live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from collector.detection import Capability, Detection, Probe
from collector.dialects.triton.metrics import METRICS
from collector.metric import Metric, metric_of, notes, resolve
from collector.prometheus import Exposition, parse

_BACKEND = "nv_trt_llm_"
_SERVER = "nv_inference_"
_INSTEAD = "trtllm-serve in its place"


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect among exposed family names."""
    return resolve(METRICS, exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """Triton behind this probe, or None. otlp: unused, no span of Triton's tells of a cache."""
    exposition = parse(probe.text("/metrics"))
    families = {exposition.family_of(sample.name)[0].name for sample in exposition.samples}
    has_metrics = any(name.startswith((_BACKEND, _SERVER)) for name in families)
    about = {} if has_metrics else probe.json("/v2")
    if not has_metrics and about.get("name") != "triton":
        return None
    metrics = _seen(exposition, families)
    backend = any(name.startswith(_BACKEND) for name in families)
    version = str(about.get("version", ""))
    return Detection(
        url=probe.url,
        kind="triton",
        version=version,
        models=tuple(sorted({m for s in exposition.samples if (m := dict(s.labels).get("model"))})),
        facts=_facts(exposition),
        capabilities=_capabilities(probe.url, has_metrics, backend, metrics),
        notes=notes(METRICS, version, metrics),
        kv_sources=(),
        metrics_url=f"{probe.url}/metrics" if has_metrics else "",
        resolve=canonical_names,
    )


def _seen(exposition: Exposition, families: Iterable[str]) -> set[str]:
    """Canonical names for which there is a sample: a family alone does not tell which of its values are there."""
    names = canonical_names(families)
    found = (metric_of(names, exposition.family_of(s.name)[0].name, s.labels) for s in exposition.samples)
    return {metric.name for metric in found if metric}


def _facts(exposition: Exposition) -> dict[str, str]:
    """Size and number of the blocks, of the first model that tells."""
    facts: dict[str, str] = {}
    for sample in exposition.samples:
        kind = dict(sample.labels).get("kv_cache_block_type")
        if kind in ("max", "tokens_per"):
            facts.setdefault(f"kv_cache_block_{kind}", f"{sample.value:g}")
    return facts


def _capabilities(url: str, has_metrics: bool, backend: bool, metrics: set[str]) -> tuple[Capability, ...]:
    unseen, flag = "not exposed", "a newer tensorrtllm_backend"
    if not has_metrics:
        unseen = "this is the port of its API; metrics are on another"
        flag = f"hitmap attach http://{urlsplit(url).hostname}:8002 (--metrics-port, --allow-metrics=true)"
        first = Capability("metrics", False, unseen, flag)
    elif backend:
        first = Capability("metrics", True, "nv_trt_llm_ and nv_inference_ families")
    else:
        first = Capability(
            "metrics", True, "nv_inference_ families only: no TensorRT-LLM backend tells of itself"
        )
        flag = "a model of the tensorrtllm backend"
    blocks = "kv_cache.used_blocks" in metrics
    moved = "kv_transfer.requests" in metrics
    return (
        first,
        _seen_or("KV blocks in use", blocks, "gauges, in blocks", unseen, flag),
        Capability(
            "prefix-cache hits",
            False,
            "the backend does not count reused and missed blocks here (tensorrtllm_backend issue 537): "
            "a gain from reuse shows in no number of Triton's",
            _INSTEAD,
        ),
        _seen_or("KV moved between workers", moved, "counters, ms and requests", unseen, flag),
        Capability(
            "cached tokens by request",
            False,
            "neither in metrics nor in responses of the backend: no option opens them",
            _INSTEAD,
        ),
        Capability(
            "latency by layer",
            False,
            "Triton's queue time ends where the backend's queue begins; prefill and decode are not told apart",
            "a request log of the client (hitmap attach --log FILE) gives time to first token and end",
        ),
        Capability("KV-cache events", False, "not to be had through Triton: no option opens them", _INSTEAD),
    )


def _seen_or(signal: str, seen: bool, evidence: str, unseen: str, flag: str) -> Capability:
    return Capability(signal, True, evidence) if seen else Capability(signal, False, unseen, flag)
