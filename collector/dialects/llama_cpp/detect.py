"""Recognises llama.cpp's server over HTTP and says what it tells and which flag opens the rest.

Paths: /props and /v1/models are always there, /metrics with --metrics, /slots unless --no-slots. A server started
without a model is a router: it runs one server a model and wants to be told which (`?model=`); "autoload=false" keeps
it from loading one for us. Seen on a running b11434; its router was read, not run live (server-models.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from collector.detection import Detection, Door, Probe, Visit
from collector.dialects.llama_cpp.capabilities import Evidence, capabilities
from collector.dialects.llama_cpp.log import reader
from collector.dialects.llama_cpp.metrics import METRICS
from collector.dialects.llama_cpp.slots import read_slots
from collector.json_poll import JsonPoller
from collector.metric import Metric, notes, resolve
from collector.prometheus import parse
from collector.scrape import Scraper
from collector.source import Source

_PREFIX = "llamacpp:"
_LOCKED = (401, 403)
_UNKNOWN_BUILD = "b0-unknown"  # made from sources that Git knows nothing of
_RUNNING = ("loaded", "sleeping")


def canonical_names(exposed: Iterable[str]) -> Mapping[str, Metric]:
    """The metrics of this dialect among exposed family names."""
    return resolve(METRICS, exposed)


def detect(probe: Probe, otlp: str) -> Detection | None:
    """llama.cpp behind this probe, or None. otlp: unused, llama.cpp sends no spans."""
    models = probe.models()
    ours = any(model.get("owned_by") == "llamacpp" for model in models)
    exposition = parse(probe.text("/metrics"))
    families = {exposition.family_of(sample.name)[0].name for sample in exposition.samples}
    if not ours and not any(name.startswith(_PREFIX) for name in families):
        return None
    props = probe.json("/props")
    is_router = props.get("role") == "router"
    loaded = _loaded(models) if is_router else None
    metrics = {metric.name for metric in canonical_names(families).values()}
    slots_status = 0 if is_router else probe.get("/slots").status
    version = str(props.get("build_info", ""))
    version = "" if version == _UNKNOWN_BUILD else version
    return Detection(
        url=probe.url,
        kind="llama_cpp",
        version=version,
        models=tuple(str(model.get("id", "")) for model in models),
        facts=_facts(props),
        capabilities=capabilities(Evidence(metrics, props, slots_status, loaded)),
        notes=notes(METRICS, "", metrics),
        kv_sources=(),
        metrics_url=f"{probe.url}/metrics" if metrics or probe.get("/metrics").status in _LOCKED else "",
        resolve=canonical_names,
        doors=_doors(probe.url, loaded, slots_status),
        log_reader=reader,
    )


def _facts(props: Mapping[str, Any]) -> dict[str, str]:
    """What it says of its cache: how many slots, how many tokens each holds."""
    settings = props.get("default_generation_settings")
    n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
    told = {
        "total_slots": props.get("total_slots"),
        "n_ctx": n_ctx,
        "model_path": props.get("model_path"),
        "model_ftype": props.get("model_ftype"),
        "role": props.get("role"),
    }
    return {name: str(value) for name, value in told.items() if value not in (None, "")}


def _loaded(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Models that a router has running now; one that sleeps still tells its counters."""
    status = {str(m.get("id", "")): m.get("status") for m in models}
    return [name for name, s in status.items() if isinstance(s, dict) and s.get("value") in _RUNNING]


def _doors(url: str, loaded: Sequence[str] | None, slots_status: int) -> tuple[Door, ...]:
    if loaded is None:
        return (_slots_door(url, "", ""),) if slots_status == 200 else ()
    doors = []
    for model in loaded:
        query = f"?model={quote(model, safe='')}&autoload=false"
        doors += [_metrics_door(url, query, f"/{model}"), _slots_door(url, query, f"/{model}")]
    return tuple(doors)


def _slots_door(url: str, query: str, suffix: str) -> Door:
    def open_slots(visit: Visit) -> Source:
        visit = replace(visit, server=visit.server + suffix)
        target = visit.target(f"{url}/slots{query}")
        name = f"slots {visit.server}"
        return JsonPoller(name, target, read_slots, canonical_names, visit.sink, visit.samples)

    return Door(f"slots{suffix}", open_slots)


def _metrics_door(url: str, query: str, suffix: str) -> Door:
    def open_metrics(visit: Visit) -> Source:
        visit = replace(visit, server=visit.server + suffix)
        target = visit.target(f"{url}/metrics{query}")
        return Scraper(target, canonical_names, visit.sink, visit.samples)

    return Door(f"metrics{suffix}", open_metrics)
