"""Recognises LMCache over HTTP: in an engine's process, where its metrics stand beside the engine's, and as a server.

In the process it is part of the engine (`beside` adds what it tells to what the engine tells); its MP server and its
own API port are a kind of their own. Read in LMCache 0.5.6 (mp_observability/otel_init.py, multiprocess/http_apis),
never run live.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from collector.detection import Detection, Detector, LineReader, Probe
from collector.dialects.lmcache import capabilities
from collector.dialects.lmcache.log import reader
from collector.dialects.lmcache.metrics import METRICS
from collector.metric import PROCESS, Metric, notes, resolve
from collector.prometheus import parse

IN_PROCESS, SERVER = "lmcache:", "lmcache_mp_"
_ENGINES = ("vllm:", "sglang:", "sglang_", "trtllm_", "dynamo_")


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect among exposed family names."""
    return resolve((*METRICS, *PROCESS), exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """A server of LMCache behind this probe, or None; one in an engine's process is the engine's."""
    families = _families(probe)
    ours = any(name.startswith((IN_PROCESS, SERVER)) for name in families)
    if any(name.startswith(_ENGINES) for name in families):
        return None
    if not ours and probe.json("/").get("service") != "LMCache HTTP API":
        return None
    version = _version(probe)
    metrics = {metric.name for metric in canonical_names(families).values()}
    return Detection(
        url=probe.url,
        kind="lmcache",
        version=version,
        models=(),
        facts={},
        capabilities=capabilities.of_server(probe.url, otlp, metrics),
        notes=notes(METRICS, version, metrics),
        kv_sources=(),
        metrics_url=f"{probe.url}/metrics" if ours else "",
        resolve=canonical_names,
        log_reader=reader,
    )


def beside(engine: Detector) -> Detector:
    """The detector of an engine, that also tells what an LMCache in the engine's process does."""

    def detect_both(probe: Probe, otlp: str) -> Detection | None:
        found = engine(probe, otlp)
        families = _families(probe) if found and found.metrics_url == f"{probe.url}/metrics" else ()
        if found is None or not any(name.startswith(IN_PROCESS) for name in families):
            return found
        return _joined(found, families)

    return detect_both


def _joined(engine: Detection, families: Collection[str]) -> Detection:
    own = {metric.name for metric in canonical_names(families).values()}

    def names(exposed: Iterable[str]) -> Mapping[str, Metric]:
        exposed = set(exposed)
        lmcache = {raw for raw in exposed if raw.startswith(IN_PROCESS)}
        return {**resolve(METRICS, lmcache), **engine.resolve(exposed - lmcache)}

    return replace(
        engine,
        facts={**engine.facts, "connector": "LMCache"},
        capabilities=(*engine.capabilities, *capabilities.in_process(own)),
        notes=(*engine.notes, *notes(METRICS, "", own)),
        resolve=names,
        log_reader=_either(engine.log_reader),
    )


def _either(engine: Callable[[str], LineReader] | None) -> Callable[[str], LineReader]:
    """LMCache writes into the engine's log: what the engine's reader does not know may be its."""
    if engine is None:
        return reader

    def both(server: str) -> LineReader:
        first, second = engine(server), reader(server)
        return lambda line, now_s: first(line, now_s) or second(line, now_s)

    return both


def _families(probe: Probe) -> set[str]:
    exposition = parse(probe.text("/metrics"))
    return {exposition.family_of(sample.name)[0].name for sample in exposition.samples}


def _version(probe: Probe) -> str:
    """Its /version is a JSON text; a bare metrics port answers every path with its metrics."""
    with suppress(ValueError):
        if isinstance(told := json.loads(probe.text("/version")), str):
            return told
    return ""
