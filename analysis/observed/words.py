"""Numbers and names of what was observed, as people read them; the same in a terminal, in Markdown and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analysis.numbers import digits
from analysis.observed.model import Observed, Span, Trace
from cachemodel.layers import SERVING_LAYERS
from cachemodel.observed import BY_NAME

MAJOR, MINOR = "hitmap.thread.page_faults.major", "hitmap.thread.page_faults.minor"
OFF_CPU, CPU = "hitmap.thread.off_cpu_us", "hitmap.thread.cpu_us"
COLOUR_OF = {layer.name: layer.colour for layer in SERVING_LAYERS}
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def answer(trace: Trace) -> str:
    """How long it took, and where the most of that went."""
    if trace.e2e_us is None:
        return f"{trace.request_id}: nothing tells how long it took."
    layers = sorted(trace.layers, key=lambda item: -item[1])[:3]
    most = ", ".join(f"{name} {digits(us / 1000)}" for name, us in layers if us > 0)
    return f"It took {digits(trace.e2e_us / 1000)} ms" + (f": {most} ms." if most else ".")


def described(trace: Trace) -> Iterator[str]:
    """Which request it is, and what is known of it."""
    model = f", model {trace.model}" if trace.model else ""
    yield f"{trace.request_id} on {trace.server}{model}, {trace.time.replace('T', ' ')} UTC"
    if trace.tokens:
        yield "tokens: " + ", ".join(f"{name} {count:,}" for name, count in trace.tokens.items())
    if trace.labels:
        yield "labels: " + ", ".join(f"{name}={value}" for name, value in trace.labels.items())
    if trace.together is not None:
        alone = trace.together < 1.05
        yield (
            "alone on its server"
            if alone
            else f"{trace.together:.1f} requests in flight meanwhile, itself included"
        )
    if trace.processes:
        yield "processes watched: " + ", ".join(f"{p.executable} ({p.pid})" for p in trace.processes)


def amount(value: float, unit: str) -> str:
    """A number in its unit (UCUM): bytes in binary steps, ratios as percent, times in milliseconds."""
    if unit == "By":
        for size, name in _BINARY:
            if value >= size:
                return f"{value / size:,.1f} {name}"
        return f"{value:,.0f} B"
    if unit == "1":
        return f"{100 * value:.1f} %"
    if unit == "s":
        return f"{digits(1000 * value)} ms"
    if unit == "us":
        return f"{digits(value / 1000)} ms"
    if unit == "Hz":
        return f"{value / 1e6:,.0f} MHz"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


def name(metric: str, attributes: Mapping[str, str]) -> str:
    """`page faults, major`: what the metric counts, with what tells it apart."""
    short = metric.removeprefix("hitmap.").removeprefix("process.").removeprefix("hw.")
    words = short.replace("paging.faults", "page_faults").replace("_", " ").replace(".", " ")
    apart = ", ".join(value.replace("_", " ") for _, value in sorted(attributes.items()))
    return f"{words}, {apart}" if apart else words


def spent(span: Span) -> str:
    """What the thread counted in a span, in a few words; empty where nothing did."""
    told = span.counted
    parts = []
    if MAJOR in told and told[MAJOR] >= 0.5:
        parts.append(f"{amount(round(told[MAJOR]), '1/')} major faults")
    if MINOR in told and told[MINOR] >= 0.5:
        parts.append(f"{amount(round(told[MINOR]), '1/')} minor")
    if OFF_CPU in told and CPU in told and told[OFF_CPU] + told[CPU] > 0:
        parts.append(f"{digits(told[CPU] / 1000)} ms on the CPU, {digits(told[OFF_CPU] / 1000)} off it")
    return ", ".join(parts)


def meaning(one: Observed) -> str:
    """Of its metric, as cachemodel.observed says it."""
    return BY_NAME[one.metric].meaning if one.metric in BY_NAME else one.meaning


def share(one: Observed) -> str:
    """The request's part of a counter, with how that is known."""
    if one.share is None:
        return ""
    return "all, counted for it" if one.points == 1 and one.share == 1.0 else f"{100 * one.share:.0f} %"
