"""Recognises the parts of Dynamo over HTTP: its front end, a worker's system port, KVBM's metrics port.

A worker passes on the metrics of the engine inside it: they get the engine's canonical names. Read in the docs of
Dynamo 1.6 (metrics catalogue, KVBM guide), never run live. It does not tell its version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collector.detection import Detection, Probe
from collector.dialects.dynamo.capabilities import Evidence, capabilities
from collector.dialects.dynamo.metrics import METRICS
from collector.dialects.sglang.metrics import METRICS as SGLANG
from collector.dialects.trtllm.metrics import METRICS as TRTLLM
from collector.dialects.vllm.metrics import METRICS as VLLM
from collector.metric import Metric, notes, resolve_all
from collector.prometheus import Sample, parse

ENGINES = {"vllm:": "vLLM", "sglang:": "SGLang", "sglang_": "SGLang", "trtllm_": "TensorRT-LLM"}
_ROLES = {"dynamo_frontend_": "front end", "dynamo_component_": "worker", "kvbm_": "KVBM"}
_SIZES = {
    "dynamo_frontend_model_kv_cache_block_size": "kv_cache_block_size",
    "dynamo_frontend_model_total_kv_blocks": "total_kv_blocks",
}


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect and of the engine inside among exposed family names; the engine's come first."""
    return resolve_all((VLLM, SGLANG, TRTLLM, METRICS), exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """A part of Dynamo behind this probe, or None. otlp: address (host:port) where spans would be received."""
    exposition = parse(probe.text("/metrics"))
    families = {exposition.family_of(sample.name)[0].name for sample in exposition.samples}
    role = next((role for prefix, role in _ROLES.items() if any(f.startswith(prefix) for f in families)), "")
    if not role:
        return None
    engine = next(
        (name for prefix, name in ENGINES.items() if any(f.startswith(prefix) for f in families)), ""
    )
    found = canonical_names(families).values()
    metrics = {metric.name for metric in found}
    facts = {"role": role} | ({"engine": engine} if engine else {}) | _sizes(exposition.samples)
    return Detection(
        url=probe.url,
        kind="dynamo",
        version="",
        models=tuple(str(model.get("id", "")) for model in probe.models()),
        facts=facts,
        capabilities=capabilities(Evidence(probe.url, otlp, role, engine, metrics)),
        notes=notes(found, "", metrics),
        kv_sources=(),
        metrics_url=f"{probe.url}/metrics",
        resolve=canonical_names,
    )


def _sizes(samples: Iterable[Sample]) -> dict[str, str]:
    """What the front end says of its workers' caches, where all of them say the same."""
    told: dict[str, set[float]] = {}
    for sample in samples:
        if sample.name in _SIZES:
            told.setdefault(_SIZES[sample.name], set()).add(sample.value)
    return {name: f"{next(iter(values)):.15g}" for name, values in told.items() if len(values) == 1}
