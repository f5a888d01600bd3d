"""The sentences of a report: the answer, what to be wary of, what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report.model import Comparison, LayerLine, SetLine, TokenLine
from cachemodel.layers import TokenSource


def answer(metric: str, chosen: Comparison, layers: Sequence[LayerLine], tokens: Sequence[TokenLine]) -> str:
    """What a person wants to know first, in plain words, with the numbers that carry it."""
    a, b, change = chosen.a.value, chosen.b.value, chosen.change
    span = f"95 % interval {_signed(change.low)} to {_signed(change.high)}"
    if change.low is None:
        text = f"{chosen.name} {metric} went from {_ms(a)} to {_ms(b)}; too few requests for an interval."
    elif not chosen.clear:
        text = f"No clear change: {chosen.name} {metric} went from {_ms(a)} to {_ms(b)} ({span})."
    else:
        verb = "rose" if change.value > 0 else "fell"
        text = f"{chosen.name} {metric} {verb} from {_ms(a)} to {_ms(b)} ({_signed(change.value)}; {span})."
        same_way = [x for x in layers if x.part.clear and x.part.change.value * change.value > 0]
        if shown := sorted(same_way, key=lambda x: -abs(x.part.change.value)):
            parts = ", ".join(f"{x.layer} {_signed(x.part.change.value)}" for x in shown[:3])
            text += f" Where it shows: {parts}."
        elif layers:
            text += " No layer alone shows it clearly."
    if cached := next((t for t in tokens if t.source == TokenSource.CACHED), None):
        share = cached.share
        how = "went" if share.clear else "stayed near level, going"
        text += f" Cached prompt tokens {how} from {share.a.value:.1%} to {share.b.value:.1%}."
    return text


def warnings(sets: Sequence[SetLine], q: float, layers: Sequence[LayerLine]) -> list[str]:
    """What makes the numbers weaker than they look."""
    found = []
    for s in sets:
        beyond = s.n * min(q, 1 - q)
        if beyond < 10:
            found.append(
                f"{s.name}: {s.n} requests leave about {beyond:.0f} beyond P{100 * q:g};"
                " take the interval more seriously than the figure"
            )
        if s.cached_unknown == s.n:
            found.append(
                f"{s.name}: no request says how many tokens were cached;"
                " give attach a request log (--log) or switch usage details on"
            )
        elif s.cached_unknown:
            found.append(
                f"{s.name}: cached tokens are unknown for {s.cached_unknown} of {s.n} requests; left out"
            )
        if s.untimed:
            found.append(f"{s.name}: {s.untimed} of {s.n} requests do not have this metric; left out")
        if len(s.servers) > 1:
            found.append(f"{s.name} mixes the servers {', '.join(s.servers)}")
    if sets[0].servers != sets[1].servers:
        found.append("the two sets come from different servers")
    for line in layers:
        if (line.known_a > 0) != (line.known_b > 0):
            found.append(f"only one set tells of {line.layer}; its change is not comparable")
    if sets[0].name == sets[1].name:
        found.append("both sets are the same requests")
    return list(dict.fromkeys(found))


def next_steps(metric: str, tokens: Sequence[TokenLine], sets: Sequence[SetLine], asked: str) -> list[str]:
    """Commands worth running after this one."""
    steps = [f"hitmap report {asked} --metric {'e2e' if metric != 'e2e' else 'ttft'}"]
    if any(s.cached_unknown == s.n for s in sets) or not tokens:
        steps.append("hitmap attach URL --check    # which flag makes the server tell cached tokens")
    steps.append(
        'hitmap store sql "SELECT request_id, ttft_us, prefill_us, cached_tokens, prompt_tokens FROM requests '
        'ORDER BY ttft_us DESC LIMIT 10"    # the slowest requests'
    )
    return steps


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if abs(value) >= 100 else f"{value:,.1f} ms"


def _signed(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:+,.0f} ms" if abs(value) >= 100 else f"{value:+,.1f} ms"
