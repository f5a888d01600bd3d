"""Recognises SGLang over HTTP and says what it tells and which flag opens the rest.

Paths: /v1/models (owned_by "sglang"), /metrics with --enable-metrics, /server_info and its name before,
/get_server_info. That answer is the whole start-up configuration, keys included: what is named here is taken and
nothing else. Read in SGLang 0.5.23 (entrypoints/http_server.py, disaggregation/kv_events.py), never run live.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from cachemodel.errors import UserError
from collector.detection import Detection, KvSource, Probe
from collector.dialects.sglang.capabilities import Evidence, capabilities
from collector.dialects.sglang.log import reader
from collector.dialects.sglang.metrics import CACHED, METRICS
from collector.kv.address import of_rank
from collector.metric import Metric, notes, resolve
from collector.prometheus import parse

PREFIXES = ("sglang:", "sglang_")
_WILDCARDS = ("*", "0.0.0.0", "::", "[::]")  # noqa: S104 - read in the server's configuration, not listened on
_MOST_CHARS = 200  # of a fact
_FACTS = (
    "page_size",
    "disable_radix_cache",
    "kv_cache_dtype",
    "max_total_num_tokens",
    "enable_hierarchical_cache",
    "hicache_storage_backend",
    "tp_size",
    "dp_size",
    "disaggregation_mode",
)


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect among exposed family names."""
    return resolve(METRICS, exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """SGLang behind this probe, or None. otlp: address (host:port) where spans would be received."""
    models = probe.models()
    exposition = parse(probe.text("/metrics"))
    families = {exposition.family_of(sample.name)[0].name for sample in exposition.samples}
    samples = sum(sample.name.startswith(PREFIXES) for sample in exposition.samples)
    if not samples and all(model.get("owned_by") != "sglang" for model in models):
        return None
    info = server_info(probe)
    version = str(info.get("version", ""))
    metrics = {metric.name for metric in canonical_names(families).values()}
    sources = kv_sources(info)
    tells_tiers = any(CACHED.source(dict(s.labels)) not in ("", "cached") for s in exposition.samples)
    evidence = Evidence(probe.url, otlp, samples, metrics, tells_tiers, info, sources)
    return Detection(
        url=probe.url,
        kind="sglang",
        version=version,
        models=tuple(str(model.get("id", "")) for model in models),
        facts={name: str(info[name])[:_MOST_CHARS] for name in _FACTS if info.get(name) is not None},
        capabilities=capabilities(evidence),
        notes=notes(METRICS, version, metrics),
        kv_sources=sources,
        metrics_url=f"{probe.url}/metrics" if probe.get("/metrics").status in (200, 401, 403) else "",
        resolve=canonical_names,
        log_reader=reader,
    )


def server_info(probe: Probe) -> dict[str, Any]:
    """What the server says of itself; empty where it does not, as one does that is too busy to ask its schedulers."""
    for path in ("/server_info", "/get_server_info"):
        with suppress(UserError):
            if info := probe.json(path):
                return info
    return {}


def kv_sources(info: Mapping[str, Any]) -> tuple[KvSource, ...]:
    """The publishers of KV events, one a data-parallel rank on consecutive ports."""
    config = _object(info.get("kv_events_config"))
    if isinstance(told := info.get("kv_events"), dict):
        host = str(told.get("endpoint_host") or "")
        events, replay = (
            f"tcp://{host}:{told[key]}" if told.get(key) else ""
            for key in ("endpoint_port_base", "replay_endpoint_port_base")
        )
        topic, ranks = str(told.get("topic") or ""), told.get("dp_size")
    elif config.get("publisher", "null") != "null":
        events, replay = (
            str(config.get("endpoint") or "tcp://*:5557"),
            str(config.get("replay_endpoint") or ""),
        )
        host = events.partition("://")[2].rpartition(":")[0]
        topic, ranks = str(config.get("topic") or ""), info.get("dp_size")
    else:
        return ()
    if not events:
        return ()
    binds = config.get("bind")
    connects = not binds if isinstance(binds, bool) else host not in _WILDCARDS
    return tuple(
        KvSource(rank, of_rank(events, rank), of_rank(replay, rank), topic, connects)
        for rank in range(ranks if isinstance(ranks, int) and 0 < ranks <= 1024 else 1)
    )


def _object(text: object) -> dict[str, Any]:
    """A JSON object that stands in the configuration as text; empty where there is none."""
    with suppress(ValueError):
        value = json.loads(text) if isinstance(text, str) else text
        if isinstance(value, dict):
            return value
    return {}
