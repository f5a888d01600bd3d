"""What a llama.cpp server lets one see, as rows: signal, seen or not, why that is known, and the flag that opens it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collector.detection import Capability


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a server answered.

    metrics: canonical names among its metrics, empty where /metrics gave none; props: its /props; slots_status: HTTP
    status of /slots; loaded: models that a router has running, None where it is no router.
    """

    metrics: set[str]
    props: Mapping[str, Any]
    slots_status: int
    loaded: Sequence[str] | None


def capabilities(evidence: Evidence) -> tuple[Capability, ...]:
    """The table, in the order in which a person would open things."""
    if evidence.loaded is not None:
        return (_router(evidence.loaded), *_unseen())
    return (_metrics(evidence), _cached(evidence), _slots(evidence), *_unseen())


def _router(loaded: Sequence[str]) -> Capability:
    signal = "metrics and slots"
    if loaded:
        return Capability(signal, True, f"a router: by model, as NAME/MODEL, of {', '.join(loaded)}")
    return Capability(
        signal, False, "a router with no model loaded", "send a request to load one, then attach again"
    )


def _metrics(e: Evidence) -> Capability:
    if e.metrics:
        return Capability(
            "metrics", True, f"{len(e.metrics)} llamacpp: metrics, without labels or histograms"
        )
    return Capability("metrics", False, "/metrics is not served", "--metrics")


def _cached(e: Evidence) -> Capability:
    signal = "prompt-cache hits"
    if "cached_tokens" in e.metrics:
        return Capability(signal, True, "counters of computed and of cached tokens")
    if e.metrics:
        return Capability(
            signal,
            False,
            "only computed tokens are counted",
            "a newer build (with prompt_tokens_cached_total), or the log below",
        )
    return Capability(signal, False, "/metrics is not served", "--metrics")


def _slots(e: Evidence) -> Capability:
    signal = "tokens in each slot"
    if e.slots_status == 200:
        return Capability(signal, True, f"/slots, {e.props.get('total_slots', 'unknown number of')} slots")
    return Capability(signal, False, f"/slots answers HTTP {e.slots_status}", "--slots (and no --no-slots)")


def _unseen() -> tuple[Capability, ...]:
    """What the server tells, if it does, by other ways than HTTP."""
    return (
        Capability(
            "cached tokens by request",
            None,
            "in the timings (cache_n, prompt_n) of every response, which this cannot see",
            "a log of the responses (hitmap attach --log FILE); they carry no slot or task id",
        ),
        Capability(
            "why a prompt was computed (slot chosen, checkpoints, prompt cache)",
            None,
            "in the server's log only",
            "-lv 4 --log-timestamps --log-file FILE, and hitmap attach --server-log FILE",
        ),
        Capability(
            "where two prompts part",
            None,
            "in the server's log only; hitmap keeps position and lengths, the log itself holds prompt text",
            "LLAMA_SERVER_SLOTS_DEBUG=1 in its environment, with -lv 4",
        ),
        Capability(
            "latency by layer",
            None,
            "prefill and decode are in the timings of every response; there are no spans",
            "a log of the responses (hitmap attach --log FILE)",
        ),
        Capability("KV-cache events", False, "llama.cpp publishes none: no option opens them"),
        Capability(
            "cached tokens by tier",
            False,
            "llama.cpp does not tell device from host memory: no option opens it",
        ),
    )
