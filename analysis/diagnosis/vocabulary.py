"""The facts that rules may name: what each is, in words, and in what unit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from analysis.diagnosis.model import Fact
from analysis.numbers import ms

Unit = Literal["ms", "share", "tokens", "/s", "bytes/token", "times", "1"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """words: to precede the number; n_of: what its n counts."""

    words: str
    unit: Unit
    n_of: str = "requests"


FACTS: Mapping[str, Meaning] = {
    # of the requests
    "rate": Meaning("arrivals", "/s"),
    "throughput": Meaning("tokens generated", "/s"),
    "ttft": Meaning("mean time to first token", "ms"),
    "e2e": Meaning("mean end-to-end time", "ms"),
    "queue": Meaning("mean time in the queue", "ms"),
    "tpot": Meaning("decode time per token", "ms"),
    "prefill_per_token": Meaning("prefill time per computed token", "ms"),
    "decode_part": Meaning("share of the end-to-end time that is decode", "share"),
    "context": Meaning("mean tokens a running request holds", "tokens"),
    "hits": Meaning("share of prompt tokens served by a cache", "share"),
    "evicted_share": Meaning("share of prompt tokens computed because they had been evicted", "share"),
    "elsewhere_share": Meaning("share of prompt tokens computed though another replica held them", "share"),
    "changed_share": Meaning("share of prompt tokens computed because the prompt had changed before them", "share"),
    # of loads from slower tiers
    "load_time": Meaning("time of a load from a slower tier", "ms", "loads"),
    "load_wait": Meaning("part of a load that does not hang on its size", "ms", "loads"),
    "load_transfer": Meaning("part that grows with it, for a load of the mean size", "ms", "loads"),
    "load_wait_part": Meaning("share of the growth that does not hang on its size", "share", "loads"),
    # over time
    "cold_burst": Meaning("new prompt tokens in the busiest twentieth of the window, over the median", "times"),
    "burst_prompt": Meaning("length of prompts in that twentieth, over all others", "times"),
    "evicted_after_burst": Meaning("share evicted in it and the four after it, over the rest", "times"),
    "ttft_after_burst": Meaning("time to first token in the four after it, over the rest", "times"),
    # of servers and templates
    "servers": Meaning("servers", "1"),
    "busiest": Meaning("requests of the busiest server, over an even share", "times"),
    "busiest_wait": Meaning("its mean queue, over that of the others", "times"),
    "template_servers": Meaning("servers over which a template's requests spread", "1"),
    "returns_late": Meaning("share of requests whose template's last one lies more requests back than there are slots",
                            "share"),
    "hits_soon": Meaning("share served of those that return sooner", "share"),
    "hits_late": Meaning("share served of those that return later", "share"),
    "slots": Meaning("slots of a server", "1"),
    # counted by servers
    "preemptions": Meaning("preemptions per request", "1"),
    "recomputed": Meaning("tokens computed again per prompt token", "share"),
    "evictions": Meaning("blocks that left the device", "/s", "events"),
    "kv_usage": Meaning("mean share of the device's blocks that requests hold", "share", "samples"),
    "running": Meaning("mean running requests", "1", "samples"),
    "gathered": Meaning("KV copied to be read", "bytes/token", "tokens"),
    # counted by the threads that served the requests, and by probes of whole processes
    "thread_major_faults": Meaning("page faults of a request that waited for a disk, counted by its thread", "1"),
    "thread_minor_faults": Meaning("other page faults of a request, counted by its thread", "1"),
    "thread_off_cpu": Meaning("time of a request in which its thread did not run", "ms"),
    "thread_cpu": Meaning("CPU time of a request's thread", "ms"),
    "process_major_faults": Meaning("page faults of the server's processes that waited for a disk, per request", "1"),
    "process_minor_faults": Meaning("other page faults of the server's processes, per request", "1"),
    "process_shootdowns": Meaning("TLB flushes in which one CPU interrupted another, per request", "1"),
    # of passes over the device
    "pass_host": Meaning("time of a pass that no token accounts for", "ms", "passes or requests"),
    "pass_host_part": Meaning("share of a decode pass that no token accounts for", "share", "passes or requests"),
    "pass_context": Meaning("time of a decode pass that grows with the context", "ms"),
    "pass_context_part": Meaning("share of a decode pass that grows with the context", "share"),
}  # fmt: skip


def sentence(name: str, fact: Fact) -> str:
    """A fact in words, with its change and what it rests on."""
    meaning = FACTS[name]
    if fact.a is None:
        return f"{meaning.words}: {_number(fact.b, meaning.unit)} (n = {fact.n_b:,} {meaning.n_of})"
    path = f"{_number(fact.a, meaning.unit)} -> {_number(fact.b, meaning.unit)}"
    clear = "" if fact.sigmas is None else f"; {fact.sigmas:.1f} sigmas"
    return f"{meaning.words}: {path} (n = {fact.n_a:,} and {fact.n_b:,} {meaning.n_of}{clear})"


def _number(value: float | None, unit: Unit) -> str:
    if value is None:
        return "unknown"
    if math.isinf(value):
        return "nothing there to compare with"
    if unit == "ms":
        return f"{value:.3g} ms" if abs(value) < 10 else ms(value)
    if unit == "share":
        return f"{100 * value:.1f} %"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return {"1": text, "times": f"{text} times", "/s": f"{text}/s"}.get(unit, f"{text} {unit}")
