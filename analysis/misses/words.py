"""The sentences of a miss report: the answer, what to be wary of, what to do about each cause."""

from __future__ import annotations

import shlex

import numpy as np

from analysis.misses.events_alone import EventsAlone
from analysis.misses.model import NOT_TOLD, Ints, Ladder
from analysis.misses.parts import CAUSES, HITS, PARTS, UNKNOWN, computed, total
from analysis.misses.reader import Reading
from analysis.misses.report_model import MissReport

WHY = {
    "unaligned": "a cache serves whole units only and the last ones are computed all the same",
    "not_loaded": "the cache that got the request held them, or was computing them, and did not serve them",
    "elsewhere": "another replica held them at that moment, not the one that got the request",
    "isolated": "they were held under another salt, adapter or image key",
    "evicted/capacity": "they had been held and were evicted to make room",
    "evicted/expiry": "they had been held and expired",
    "evicted/clear": "they had been held and the cache was cleared",
    "evicted/restart": "they had been held and the server was restarted",
    "changed": "they were sent before, but the prompt had changed in front of them",
    "cold": "they had never been sent before",
    UNKNOWN: "nothing tells why they were computed",
}
"""Why tokens of a part were computed, to follow "because"."""

FIX = {
    "unaligned": "use smaller blocks (vLLM --block-size, SGLang --page-size); speculative decoding and hybrid models"
    " reuse larger units: hitmap canary URL measures yours",
    "not_loaded": "hitmap sources tells of failed loads; check the connector's timeouts, and options of requests that"
    " keep the cache from being read (prompt_logprobs)",
    "elsewhere": "send requests that begin alike to one replica: a router that knows prefixes, or a session key",
    "isolated": "let tenants that may share share one cache_salt; adapters keep KV of their own",
    "evicted/capacity": "give KV more room (--gpu-memory-utilization), a second tier (--kv-offloading-size), or send"
    " requests of one session closer together",
    "evicted/expiry": "raise the lifetime of cached entries",
    "evicted/clear": "find out who calls /reset_prefix_cache, weight updates included",
    "evicted/restart": "restart replicas one after the other, and warm them up before they get traffic",
    "changed": "move what changes (time, ids, shuffled tools) behind what stays the same",
    "cold": "new text has to be computed once: no cache mends that",
}
"""What to do about a cause."""

_SHARE = 0.1  # of the computed tokens, from which on a cause is worth a next step


def where(ladder: Ladder, parts: Ints) -> int:
    """Position in the prompt at which what counts as changed begins: the middle one by tokens, NOT_TOLD for none."""
    tokens = parts[:, PARTS.index("changed")]
    rows = np.flatnonzero(tokens)
    if not len(rows):
        return NOT_TOLD
    begins = ladder.served[rows, 5]
    order = np.argsort(begins, kind="stable")
    reached = np.cumsum(tokens[rows][order])
    return int(begins[order][np.searchsorted(reached, reached[-1] / 2)])


def answer(report: MissReport, changed_at: int) -> str:
    """What a person wants to know first."""
    parts, prompt = report.total.parts, report.total.prompt
    missed = computed(parts)
    if not prompt:
        return f"Nothing tells how long the prompts of these {report.total.requests:,} requests are."
    hits = total(parts, HITS)
    begin = f"{hits / prompt:.0%} of {prompt:,} prompt tokens came from the cache"
    if not missed:
        return f"{begin}: every one of them."
    first, second = _largest(parts)
    text = f"{begin}; {parts[first] / missed:.0%} of the {missed:,} computed ones were computed because {WHY[first]}"
    if first == "changed" and changed_at != NOT_TOLD:
        text += f" (it departs at token {changed_at:,}, in the middle)"
    text += "."
    if second:
        text += f" Next: {parts[second] / missed:.0%} because {WHY[second]}."
    return text


def answer_of_events(report: MissReport) -> str:
    """The same where KV events are all there is."""
    parts: dict[str, int] = {}
    for line in report.events_alone:
        for name, tokens in line.parts.items():
            parts[name] = parts.get(name, 0) + tokens
    stored = computed(parts)
    begin = "No request is known of that time; KV events alone tell that"
    if not stored:
        return f"{begin} nothing was stored."
    first, second = _largest(parts)
    text = (
        f"{begin} {parts[first] / stored:.0%} of {stored:,} stored tokens were computed because {WHY[first]}."
    )
    if second:
        text += f" Next: {parts[second] / stored:.0%} because {WHY[second]}."
    return text


def warnings(report: MissReport, reading: Reading) -> list[str]:
    """What makes the figures weaker than they look."""
    found, mine = [], reading.asked.asked
    if report.sampled > 1:
        found.append(
            f"one in {report.sampled} requests was read, chosen by a hash of their id; totals are of those, and what"
            " was in flight beside them was not looked at"
        )
    if reading.unsized:
        found.append(f"{reading.unsized:,} requests do not tell how long their prompt is; left out")
    if report.derived:
        found.append(
            f"hits of {report.derived:,} of {report.total.placed:,} requests are an estimate from prompts and KV"
            " events; nothing tells what was served (usage with cached_tokens in a request log would)"
        )
    approximate = int((mine & (reading.asked.told_by == "approximation")).sum())
    if approximate:
        found.append(
            f"the prompts of {approximate:,} requests were cut into tokens without their tokenizer: causes are rough"
        )
    if reading.history_begin != NOT_TOLD and report.total.parts.get("cold"):
        found.append(f"what was sent before {report.history_begin} cannot be known: it counts as cold")
    return found


def of_events(alone: EventsAlone) -> list[str]:
    """What weakens the part that rests on KV events alone."""
    if alone.sampled <= 1:
        return []
    return [
        f"of the KV events one block in {alone.sampled} was read, chosen by its content; tokens are of those"
    ]


def next_steps(report: MissReport, worst: str = "") -> list[str]:
    """What is worth doing now: about the largest causes, then commands. worst: the request with most such tokens."""
    parts = report.total.parts
    missed = computed(parts)
    steps = []
    for name in sorted(CAUSES, key=lambda name: -parts.get(name, 0)):
        if missed and parts.get(name, 0) >= _SHARE * missed:
            steps.append(f"{name}: {FIX[name]}")
    if worst:
        steps.append(f"hitmap explain {shlex.quote(worst)}    # the prompt with most of it, token by token")
    if not report.total.requests:
        steps.append(
            "hitmap attach URL --log FILE --tokenizer PATH    # causes by request, tenant and template"
        )
    elif len(report.lines) < 2:
        other = "template" if report.by != "template" else "server"
        steps.append(f"hitmap misses --by {other}    # who it is")
    return steps


def _largest(parts: dict[str, int]) -> tuple[str, str]:
    """The two largest of the computed parts, the second one empty where it is nothing to speak of."""
    order = sorted((name for name in (*CAUSES, UNKNOWN) if parts.get(name)), key=lambda name: -parts[name])
    second = order[1] if len(order) > 1 and parts[order[1]] >= _SHARE * computed(parts) else ""
    return order[0], second
