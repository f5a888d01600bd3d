"""The sentences of a report: the answer, what to be wary of, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from analysis.bootstrap import FEWEST_BEYOND, supports
from analysis.numbers import ms, quantile_name, signed
from analysis.report.metrics import Metric
from analysis.report.model import Comparison, LayerLine, SetLine, TokenLine
from cachemodel.layers import TokenSource

_MUCH = 0.05  # relative change of the load that is worth a word


def answer(meaning: str, chosen: Comparison, layers: Sequence[LayerLine], tokens: Sequence[TokenLine]) -> str:
    """What a person wants to know first, in plain words, with the numbers that carry it."""
    a, b, change = chosen.a, chosen.b, chosen.change
    ends = f"from {ms(a.value)} (n = {a.n:,}) to {ms(b.value)} (n = {b.n:,})"
    if change.low is None:
        text = f"{chosen.name} {meaning} went {ends}: {signed(change.value)}, of too few requests for an interval."
    elif not chosen.clear:
        text = f"No clear change: {chosen.name} {meaning} went {ends}; {_interval(chosen)}."
    else:
        verb = "rose" if change.value > 0 else "fell"
        text = f"{chosen.name} {meaning} {verb} {ends}: {signed(change.value)}, {_interval(chosen)}."
        text += _where(change.value, layers)
    return text[0].upper() + text[1:] + cached_share(tokens)


def cached_share(tokens: Sequence[TokenLine]) -> str:
    """How the share of cached tokens went; empty where nothing tells."""
    if cached := next((t for t in tokens if t.source == TokenSource.CACHED), None):
        share = cached.share
        how = "stayed near level, going" if share.change.low is not None and not share.clear else "went"
        return f" Cached prompt tokens {how} from {share.a.value:z.1%} to {share.b.value:z.1%}."
    return ""


def warnings(
    sets: Sequence[SetLine],
    q: float | None,
    layers: Sequence[LayerLine],
    alone: Sequence[tuple[str, str]],
    workload: Sequence[Comparison],
) -> list[str]:
    """What makes the numbers weaker than they look. alone: layers that one set tells of, and which."""
    found = [warning for s in sets for warning in _of_set(s, q)]
    if sets[0].servers != sets[1].servers:
        found.append("the two sets come from different servers")
    for layer, name in alone:
        found.append(f"only {name} tells of {layer}: counted as unattributed in both sets, not compared")
    for line in layers:
        for s, known in zip(sets, (line.known_a, line.known_b), strict=True):
            if known < (timed := s.n - s.untimed):
                found.append(
                    f"{s.name}: {line.layer} is unknown for {timed - known:,} of {timed:,} requests;"
                    " its time there is unattributed"
                )
    for c in workload:
        if c.clear and abs(c.change.value) > _MUCH * c.a.value:
            found.append(
                f"the load differs: {c.a.value:,.0f} {c.name} tokens a request in A, {c.b.value:,.0f} in B;"
                " part of the change may come from that"
            )
    if sets[0].name == sets[1].name:
        found.append("both sets are the same requests")
    return list(dict.fromkeys(found))


def next_steps(metric: Metric, sets: Sequence[SetLine], asked: str) -> list[str]:
    """Commands worth running after this one."""
    other = "ttft" if metric.name == "e2e" else "e2e"
    steps = [f"hitmap report {asked} --metric {other}"]
    if sets[1].asked:
        steps += [
            f"hitmap misses {shlex.quote(sets[1].asked)} --by template    # why prompt tokens of B were computed",
        ]
    if sets[0].asked != sets[1].asked:
        steps.append(
            f"hitmap gate --budget total=20ms {asked}    # the same in CI: exit code 1 when it costs more"
        )
    if any(s.cached_unknown == s.n for s in sets):
        steps.append("hitmap attach URL --check    # which flag makes the server tell cached tokens")
    steps.append(
        'hitmap store sql "SELECT request_id, ttft_us, e2e_us, cached_tokens, prompt_tokens FROM requests '
        f'ORDER BY {metric.total} DESC NULLS LAST LIMIT 10"    # the slowest requests'
    )
    return steps


def _where(change: float, layers: Sequence[LayerLine]) -> str:
    """The layers whose part moved clearly with the whole, largest first."""
    along = [x for x in layers if x.part.clear and x.part.change.value * change > 0]
    if along:
        largest = sorted(along, key=lambda x: -abs(x.part.change.value))[:3]
        parts = ", ".join(f"{x.layer} {signed(x.part.change.value)}" for x in largest)
        return f" Where it shows: {parts}."
    return " No layer alone shows it clearly." if layers else ""


def _of_set(s: SetLine, q: float | None) -> list[str]:
    found = []
    timed = s.n - s.untimed
    if s.sampled > 1:
        found.append(
            f"{s.name}: one in {s.sampled} requests was read, chosen by a hash of their id; totals are of those"
        )
    what = quantile_name(q)
    q = 0.5 if q is None else q
    if not supports(timed, q):
        found.append(
            f"{s.name}: {timed} requests leave fewer than {FEWEST_BEYOND} beyond {what}: no interval;"
            " take the figure as an anecdote"
        )
    elif timed * min(q, 1 - q) < 2 * FEWEST_BEYOND:
        found.append(
            f"{s.name}: {timed} requests leave about {timed * min(q, 1 - q):.0f} beyond {what};"
            " take the interval more seriously than the figure"
        )
    if s.cached_unknown == s.n:
        found.append(
            f"{s.name}: no request says how many tokens were cached;"
            " give attach a request log (--log) or switch usage details on"
        )
    elif s.cached_unknown:
        found.append(
            f"{s.name}: cached tokens are unknown for {s.cached_unknown:,} of {s.n:,} requests; left out"
        )
    if s.untimed:
        found.append(f"{s.name}: {s.untimed:,} of {s.n:,} requests do not have this metric; left out")
    if len(s.servers) > 1:
        found.append(f"{s.name} mixes the servers {', '.join(s.servers)}")
    return found


def _interval(c: Comparison) -> str:
    return f"95% interval {signed(c.change.low)} to {signed(c.change.high)}"
