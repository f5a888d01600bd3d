"""What to do about the causes of misses, and which command tells more."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from analysis.misses.parts import CAUSES, HITS
from analysis.misses.report_model import MissReport
from analysis.misses.words import missed_parts

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

ADVISE = "hitmap advise requests.jsonl    # which part of the prompts, and what to write instead"
_SHARE = 0.05  # of the computed tokens, from which on a cause is worth a step
_OF_ROOM = ("evicted/capacity", "evicted/expiry")


def fixes(parts: Mapping[str, int]) -> list[str]:
    """What to do about each cause that is worth it, the largest first; about new text only where that is all."""
    large = _large(parts)
    return [f"{name}: {FIX[name]}" for name in large if name != "cold" or len(large) == 1]


def advice(parts: Mapping[str, int]) -> list[str]:
    """The command that says what to change in the prompts, where that is worth it."""
    return [ADVISE] if "changed" in _large(parts) else []


def _large(parts: Mapping[str, int]) -> list[str]:
    missed = sum(tokens for name, tokens in parts.items() if name not in HITS)
    order = sorted(CAUSES, key=lambda name: -parts.get(name, 0))
    return [name for name in order if parts.get(name, 0) and parts[name] >= _SHARE * missed]


def next_steps(
    report: MissReport, typical: str = "", worst: str = "", asked: str = "", prompts: bool = True
) -> list[str]:
    """What is worth doing now: about the largest causes, then commands. typical: a request that shows the largest one;
    worst: a SET of the group with most of it; asked: the SET that was asked for. prompts: whether any prompt is known:
    of others neither template nor cause is."""
    parts = missed_parts(report.total)
    steps = [
        f"{step}; {held}" if (held := _room(report, step.partition(":")[0])) else step
        for step in fixes(parts)
    ]
    steps += advice(parts)
    if worst:
        steps.append(f"hitmap misses {shlex.quote(worst)}    # the group with most of it")
    if typical and prompts:
        told = f"-- {shlex.quote(typical)}" if typical.startswith("-") else shlex.quote(typical)
        steps.append(f"hitmap explain {told}    # a prompt typical of it, token by token")
    if not report.total.requests:
        steps.append(
            "hitmap attach URL --log FILE --tokenizer PATH    # causes by request, tenant and template"
        )
    elif not prompts:
        steps.append(
            "hitmap attach URL --log FILE --tokenizer PATH    # the prompts; where that is so, its status says how many"
            " of them do not fit the server's counts"
        )
    elif len(report.lines) < 2:
        other = "template" if report.by != "template" else "server"
        of = f"{shlex.quote(asked)} " if asked else ""
        steps.append(f"hitmap misses {of}--by {other}    # who it is")
    return steps


def _room(report: MissReport, cause: str) -> str:
    """What keeps more room from serving what was evicted, where that is most of it: the ceiling is near."""
    lost = sum(report.total.parts.get(name, 0) for name in _OF_ROOM)
    if cause not in _OF_ROOM or not report.ceilings:
        return ""
    most = sum(line.attainable - line.achieved for line in report.ceilings)
    if 2 * most >= lost:
        return ""
    gives = (
        f"gives back {most:,} of these {lost:,} tokens at most" if most else "gives none of these tokens back"
    )
    return f"but that alone {gives}: the rest are ends of prompts, shorter than the unit of reuse, or of another salt"
