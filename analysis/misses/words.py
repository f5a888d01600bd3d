"""The sentences of a miss report: the answer, what to be wary of, what to do about each cause."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import numpy as np

from analysis.misses.events_alone import EventsAlone
from analysis.misses.model import NOT_TOLD, Ints, Ladder
from analysis.misses.parts import CAUSES, HITS, PARTS, UNKNOWN, computed, total
from analysis.misses.reader import Reading
from analysis.misses.report_model import MissLine, MissReport

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
UNTOLD = "nothing tells whether they were served or computed"

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

_NUMERALS = {
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
}
_SECOND = 0.1  # of the computed tokens, from which on a second cause is worth a word
_SHARE = 0.05  # the same of a next step
_FEW = 0.01  # of the prompts: so much of which nothing tells changes no headline
_OF_ROOM = ("evicted/capacity", "evicted/expiry")


def missed_parts(line: MissLine) -> dict[str, int]:
    """The parts of what was computed for certain: without tokens of which nothing tells whether they were served."""
    told = {name: tokens for name, tokens in line.parts.items() if name not in HITS}
    if line.untold:
        told[UNKNOWN] = told.get(UNKNOWN, 0) - line.untold
    return {name: tokens for name, tokens in told.items() if tokens > 0}


def known_computed(line: MissLine) -> int:
    """Tokens that were computed for certain."""
    return sum(missed_parts(line).values())


def hit_share(line: MissLine) -> str:
    """What to write where the share of hits is not known: `unknown`, or the least it is; empty where it is known."""
    if line.untold <= _FEW * line.prompt:
        return ""
    hits = total(line.parts, HITS)
    return f">={hits / line.prompt:.0%}" if hits else "unknown"


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


def answer(report: MissReport, changed_at: int, counters: tuple[int, int] | None = None) -> str:
    """What a person wants to know first. counters: tokens found and looked up, as the servers themselves count."""
    line, prompt = report.total, report.total.prompt
    if not prompt:
        return f"Nothing tells how long the prompts of these {counted(report)} are."
    parts, missed = missed_parts(line), known_computed(line)
    begin = _hits(line, counters)
    if not missed:
        return f"{begin}." if line.untold else f"{begin}: every one of them."
    first, second = _largest(parts)
    ones = "that were computed for certain" if hit_share(line) else "computed ones"
    text = f"{begin}; {parts[first] / missed:.0%} of the {missed:,} {ones} were computed because {WHY[first]}"
    if first == "changed" and changed_at != NOT_TOLD:
        text += f" (half of these tokens are of prompts that differ from token {changed_at:,} on, or earlier)"
    text += "."
    if second:
        text += f" Next: {parts[second] / missed:.0%} because {WHY[second]}."
    return text


def _hits(line: MissLine, counters: tuple[int, int] | None) -> str:
    """How much was served, and where that is not known what the servers' counters say of it."""
    hits, prompt = total(line.parts, HITS), line.prompt
    if not hit_share(line):
        return f"{hits / prompt:.0%} of {prompt:,} prompt tokens came from the cache"
    if hits:
        text = (
            f"At least {hits / prompt:.0%} of {prompt:,} prompt tokens came from the cache; of {line.untold:,} nothing"
            " tells whether they did"
        )
    else:
        text = (
            f"How much of {prompt:,} prompt tokens came from the cache is not known: nothing tells what was served of"
            f" {line.untold:,} (usage with cached_tokens in a request log would)"
        )
    if counters:
        text += f"; the server's own counters say {counters[0] / counters[1]:.0%} of {counters[1]:,} at about that time"
    return text


def counted(report: MissReport) -> str:
    """How many requests there are, and of how many these are where not all were read."""
    read = report.total.requests
    if report.sampled <= 1 or report.selected <= read:
        return f"{read:,} requests"
    every = _NUMERALS.get(report.sampled, f"{report.sampled:,}")
    return f"{read:,} of {report.selected:,} requests (one in {every})"


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
            f"one in {report.sampled:,} requests was read, chosen by a hash of their id; totals are of those, and what"
            " was in flight beside them was not looked at"
        )
    if reading.unsized:
        found.append(f"{reading.unsized:,} requests do not tell how long their prompt is; left out")
    if report.derived:
        found.append(
            f"of {report.derived:,} of {report.total.placed:,} requests nothing tells what was served (usage with"
            f" cached_tokens in a request log would): {_estimated(report.total)}"
        )
    approximate = int((mine & (reading.asked.told_by == "approximation")).sum())
    if approximate:
        found.append(
            f"the prompts of {approximate:,} requests were cut into tokens without their tokenizer: causes are rough"
        )
    misfits = int((mine & reading.asked.misfit).sum())
    if misfits:
        found.append(
            f"the prompts of {misfits:,} requests in the log have another length than their server counted: another"
            " tokenizer or chat template than the server's, or images; what they would tell is left out"
        )
    if reading.history_begin != NOT_TOLD and report.total.parts.get("cold"):
        found.append(f"what was sent before {report.history_begin} cannot be known: it counts as cold")
    return found


def _estimated(line: MissLine) -> str:
    estimate = "their hits are an estimate from prompts and KV events"
    if not line.untold:
        return estimate
    untold = f"{line.untold:,} of their tokens, which are unknown here, may be hits"
    return f"{estimate}, and {untold}" if line.untold < line.prompt else untold


def of_events(alone: EventsAlone) -> list[str]:
    """What weakens the part that rests on KV events alone."""
    if alone.sampled <= 1:
        return []
    return [
        f"of the KV events one block in {alone.sampled} was read, chosen by its content; tokens are of those"
    ]


def fixes(parts: Mapping[str, int]) -> list[str]:
    """What to do about each cause that is worth it, the largest first; about new text only where that is all."""
    missed = sum(tokens for name, tokens in parts.items() if name not in HITS)
    order = sorted(CAUSES, key=lambda name: -parts.get(name, 0))
    large = [name for name in order if parts.get(name, 0) and parts[name] >= _SHARE * missed]
    return [f"{name}: {FIX[name]}" for name in large if name != "cold" or len(large) == 1]


def next_steps(report: MissReport, typical: str = "", worst: str = "") -> list[str]:
    """What is worth doing now: about the largest causes, then commands. typical: a request that shows the largest one;
    worst: a SET of the group with most of it."""
    steps = [
        f"{step}; {held}" if (held := _room(report, step.partition(":")[0])) else step
        for step in fixes(missed_parts(report.total))
    ]
    if worst:
        steps.append(f"hitmap misses {shlex.quote(worst)}    # the group with most of it")
    if typical:
        told = f"-- {shlex.quote(typical)}" if typical.startswith("-") else shlex.quote(typical)
        steps.append(f"hitmap explain {told}    # a prompt typical of it, token by token")
    if not report.total.requests:
        steps.append(
            "hitmap attach URL --log FILE --tokenizer PATH    # causes by request, tenant and template"
        )
    elif len(report.lines) < 2:
        other = "template" if report.by != "template" else "server"
        steps.append(f"hitmap misses --by {other}    # who it is")
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


def _largest(parts: dict[str, int]) -> tuple[str, str]:
    """The two largest of the computed parts, the second one empty where it is nothing to speak of."""
    order = sorted((name for name in (*CAUSES, UNKNOWN) if parts.get(name)), key=lambda name: -parts[name])
    second = order[1] if len(order) > 1 and parts[order[1]] >= _SECOND * computed(parts) else ""
    return order[0], second
