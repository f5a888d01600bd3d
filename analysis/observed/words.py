"""Numbers and names of what was observed, as people read them; the same in a terminal, in Markdown and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analysis.numbers import digits
from analysis.observed.model import Observed, Span, Trace
from cachemodel.layers import SERVING_LAYERS, ObservationLayer
from cachemodel.observed import BY_NAME

KERNEL = "hitmap.gpu.kernel"
MAJOR, MINOR = "hitmap.thread.page_faults.major", "hitmap.thread.page_faults.minor"
OFF_CPU, CPU = "hitmap.thread.off_cpu_us", "hitmap.thread.cpu_us"
COLOUR_OF = {layer.name: layer.colour for layer in SERVING_LAYERS}
_ACRONYMS = {
    "io": "I/O",
    **{
        name.lower(): name
        for name in ("BAR1", "C2C", "CPU", "DRAM", "GPU", "IPI", "L1", "L1d", "L2", "LLC", "MMA")
    },
    **{name.lower(): name for name in ("NVLink", "PCIe", "SM", "TLB", "dTLB")},
}
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def answer(trace: Trace) -> str:
    """How long it took, and where the most of that went."""
    if trace.e2e_us is None:
        return f"{trace.request_id}: nothing tells how long it took."
    layers = sorted(trace.layers, key=lambda item: -item[1])[:3]
    most = ", ".join(f"{name} {digits(us / 1000)}" for name, us in layers if us > 0)
    first = "" if trace.ttft_us is None else f", {digits(trace.ttft_us / 1000)} of them to the first token"
    return f"It took {digits(trace.e2e_us / 1000)} ms{first}" + (f": {most} ms." if most else ".")


def described(trace: Trace) -> Iterator[str]:
    """Which request it is, and what is known of it."""
    model = f", model {trace.model}" if trace.model else ""
    yield f"{trace.request_id} on {trace.server}{model}, {trace.time.replace('T', ' ').removesuffix('Z')} UTC"
    if trace.tokens:
        yield "tokens: " + ", ".join(f"{name} {count:,}" for name, count in trace.tokens.items())
    if trace.finish_reason or trace.preemptions:
        times = f"preempted {trace.preemptions:,} times" if trace.preemptions else ""
        yield ", ".join(filter(None, [trace.finish_reason and f"ended by {trace.finish_reason}", times]))
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
        hosts = len({process.host for process in trace.processes}) > 1
        named = (f"{p.name} on {p.host}" if hosts else p.name for p in trace.processes)
        yield "processes watched: " + ", ".join(named)


def amount(value: float, unit: str) -> str:
    """A number in its unit (UCUM): bytes in binary steps, ratios as percent, times in milliseconds."""
    if unit == "By":
        for size, name in _BINARY:
            if value >= size:
                return f"{value / size:,.1f} {name}"
        return f"{value:,.0f} B"
    if unit == "1":
        return f"{100 * value:.1f} %"
    if unit in ("s", "us"):
        ms = 1000 * value if unit == "s" else value / 1000
        return f"{digits(ms)} ms" if ms >= 0.1 or not ms else f"{digits(1000 * ms)} us"
    if unit == "Hz":
        return f"{value / 1e6:,.0f} MHz"
    if value >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2g}" if value >= 0.01 else "< 0.01"


def name(metric: str, attributes: Mapping[str, str]) -> str:
    """`page faults, major`: what the metric counts, with what tells it apart."""
    short = metric.removeprefix("hitmap.").removeprefix("pmu.").removeprefix("process.").removeprefix("hw.")
    words = short.replace("paging.faults", "page_faults").replace("_", " ").replace(".", " ")
    apart = (
        value if key == KERNEL else _spelt(value.replace("_", " "))
        for key, value in sorted(attributes.items())
    )
    return ", ".join([_spelt(words), *apart])


def _spelt(words: str) -> str:
    return " ".join(_ACRONYMS.get(word, word) for word in words.split(" "))


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


WAITS = ("hitmap.off_cpu_time", "hitmap.futex_wait_time")
"""Of a process: mostly of threads that have nothing to do, and no part of a request."""
ESTIMATED = (
    "what a process counted comes in readings, spread evenly over their windows, and its part is an estimate: one of as"
    " many requests as were in flight"
)


def part(one: Observed, trace: Trace) -> str:
    """The request's own amount; empty of a process where the request's thread counted the same for it, and of waits."""
    if one.estimate is None:
        return ""
    same = any(o.own and (o.metric, o.attributes) == (one.metric, one.attributes) for o in trace.observed)
    return "" if not one.own and (same or one.metric in WAITS) else amount(one.estimate, one.unit)


def share(one: Observed) -> str:
    """The request's part of a counter, with how that is known."""
    if one.own:
        return "all, counted for it"
    return "" if one.share is None else f"{100 * one.share:.{0 if one.share >= 0.01 else 2}f} %"


def told(trace: Trace) -> tuple[list[Observed], list[str]]:
    """By layer and metric: what there was some of, and in words what was counted and was none. A gauge that is 0 is a
    state and no absence."""
    layers, metrics = list(ObservationLayer), list(BY_NAME)

    def place(one: Observed) -> tuple[int, int, list[tuple[str, str]], bool, str]:
        attributes = sorted(one.attributes.items())
        return layers.index(one.layer), metrics.index(one.metric), attributes, not one.own, one.of

    found = sorted(trace.observed, key=place)
    none: dict[str, list[str]] = {}
    for one in found:
        if one.value == 0 and one.share is not None:
            none.setdefault(one.of, []).append(name(one.metric, one.attributes))
    rows = [one for one in found if one.value != 0 or one.share is None]
    return rows, [f"{of}: {'; '.join(names)}" for of, names in none.items()]


def missing(trace: Trace) -> list[str]:
    """What nothing tells, with what would; layers of which the same is to be said stand together."""
    together: dict[tuple[str, str], list[str]] = {}
    for gap in trace.missing:
        together.setdefault((gap.why, gap.do), []).append(gap.layer)
    return [f"{', '.join(layers)}: {why}; {do}" for (why, do), layers in together.items()]
