"""What was counted and gauged while a request ran, as strips below its spans.

A bar is as wide as the time in which it was counted and as high as the rate: its area is what was counted. A
gauge is a line of steps. Times are ms after the request's arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import plotly.graph_objects as go

from analysis.observed.model import Observed, Point, Span, Trace
from analysis.observed.words import amount
from cachemodel.layers import ObservationLayer
from cachemodel.observed import BY_NAME, SHOOTDOWNS, SPAN_COUNTERS, TLB_REASONS
from dashboard.text import in_chart

MOST_LINES = 6
THREAD, PROCESS = "its thread", "process"
SERIES = (
    *("#D55E00", "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#0072B2"),
    *("#8C564B", "#BCBD22", "#7F7F7F", "#17BECF", "#9467BD", "#E377C2"),
)
"""Colours of lines, on light and on dark; the first of them are told apart by colour-blind readers, too."""
_STRONG = ("#D55E00", "#0072B2", "#882255")
_PALE = ("#EEBF99", "#A6CEE4", "#B87A99")
"""The same for what a process counted of all requests, behind what was counted for one. Any two of a strip are told
apart, by colour-blind readers, too, and from both grounds."""
_TOLD_MS = 1_000.0  # so often it is told at least where the probe reads as often
_HELD_MS = 11_000.0  # a gauge holds until it is told again: between two readings of the slowest probe
_REASON = "hitmap.tlb_flush.reason"
_OTHER_FLUSHES = tuple(reason for reason in TLB_REASONS if reason not in SHOOTDOWNS)
_TYPE, _SWITCH = "system.paging.fault.type", "process.context_switch.type"

_Where = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """points: (begin, end, value), of a counter by second and in ms. whose: THREAD or PROCESS, empty for a gauge, whose
    points are (at, at, value) in us."""

    name: str
    points: Sequence[Point]
    whose: str
    colour: str


@dataclass(frozen=True, slots=True)
class Strip:
    """What belongs on one axis. unit: of its values, as UCUM has it."""

    layer: ObservationLayer
    title: str
    unit: str
    lines: Sequence[Line]

    @property
    def highest(self) -> float:
        """0 where there was nothing but zeros."""
        return max((value for line in self.lines for _, _, value in line.points), default=0.0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A line to be: the points of a metric whose attributes have one of `where`'s values, added up."""

    name: str
    metric: str
    where: _Where | None = None


# Strips in the order in which they stand. All lines of one have one unit.
_COUNTED = (
    ("major page faults/s", (_Asked("", "process.paging.faults", {_TYPE: ("major",)}),)),
    ("minor page faults/s", (_Asked("", "process.paging.faults", {_TYPE: ("minor",)}),)),
    ("TLB shootdowns/s", (_Asked("", "hitmap.tlb_flushes", {_REASON: SHOOTDOWNS}),)),
    ("other TLB flushes/s", (_Asked("", "hitmap.tlb_flushes", {_REASON: _OTHER_FLUSHES}),)),
    ("threads on and off CPU", (_Asked("on", "process.cpu.time"), _Asked("off", "hitmap.off_cpu_time"))),
    ("lock waits/s", (_Asked("", "hitmap.futex_waits"),)),
    ("context switches/s", (
        _Asked("involuntary", "process.context_switches", {_SWITCH: ("involuntary",)}),
        _Asked("voluntary", "process.context_switches", {_SWITCH: ("voluntary",)}),
    )),
    ("dTLB misses/s", (_Asked("", "hitmap.pmu.dtlb.misses"),)),
    ("LLC misses/s", (_Asked("", "hitmap.pmu.llc.misses"),)),
    ("L1d misses/s", (_Asked("", "hitmap.pmu.l1d.misses"),)),
    ("DRAM traffic, B/s", (_Asked("", "hitmap.gpu.dram.io"),)),
    ("link traffic, B/s", (
        _Asked("PCIe", "hw.gpu.io"), _Asked("NVLink", "hitmap.gpu.nvlink.io"), _Asked("C2C", "hitmap.gpu.c2c.io"),
    )),
)  # fmt: skip
_GAUGED = (
    ("GPU memory and caches", "1", {
        "hitmap.gpu.dram.utilization": "DRAM bandwidth", "hw.gpu.utilization": "busy",
        "hitmap.gpu.l2.hit_ratio": "L2 hits", "hitmap.gpu.l1.hit_ratio": "L1 hits",
    }),
    ("GPU memory in use", "By", {"hw.gpu.memory.usage": "in use"}),
    ("resident memory", "By", {"process.memory.usage": "in use"}),
    ("SMs and tensor pipe", "1", {
        "hitmap.gpu.tensor.active": "tensor pipe", "hitmap.gpu.sm.active": "SMs",
        "hitmap.gpu.tensor.miss_ratio": "tensor misses",
    }),
)  # fmt: skip
_DEVICE = re.compile(r"(?:\S+ )*(GPU|MIG)-(\w{1,4})\S*")


def strips(trace: Trace) -> list[Strip]:
    """All that have points, by observation layer."""
    found = [*_counters(trace), *_gauges(trace.observed)]
    order = [ObservationLayer.KERNEL, ObservationLayer.RUNTIME]
    return sorted(found, key=lambda s: order.index(s.layer) if s.layer in order else len(order))


def _counters(trace: Trace) -> Iterator[Strip]:
    for title, asked in _COUNTED:
        lines = []
        for place, one in enumerate(asked):
            own = _own_points(trace.spans, one)
            all_of = summed(o.series for o in trace.observed if _is(one, o.metric, o.attributes))
            lines += [
                Line(", ".join(filter(None, [one.name, whose])), points, whose, shades[place])
                for whose, points, shades in ((PROCESS, all_of, _PALE), (THREAD, own, _STRONG))
                if points
            ]
        if lines:
            row = BY_NAME[asked[0].metric]
            yield Strip(row.layer, title, row.unit, lines)


def _gauges(observed: Sequence[Observed]) -> Iterator[Strip]:
    for title, unit, names in _GAUGED:
        told = [o for name in names for o in observed if o.metric == name and o.series and o.share is None]
        several = len({o.of for o in told}) > 1
        lines = [
            Line(_called(names[o.metric], o, several), o.series, "", colour)
            for o, colour in zip(told, SERIES[:MOST_LINES], strict=False)
        ]
        if lines:
            yield Strip(BY_NAME[told[0].metric].layer, title, unit, lines)


def _called(name: str, one: Observed, several: bool) -> str:
    """In few characters: `busy, GPU-1f3a`, `in use, python3 (4711) on GPU-1f3a`."""
    process, on, device = one.of.rpartition(" on ")
    short = f"{process}{on}{_DEVICE.sub(_begin_of, device)}"
    apart = [value for key, value in sorted(one.attributes.items()) if value != "any"]
    return ", ".join([name, *apart, *[short] * several])


def _begin_of(device: re.Match[str]) -> str:
    return f"{device[1]}-{device[2]}"


def _is(asked: _Asked, metric: str, attributes: Mapping[str, str]) -> bool:
    where = (asked.where or {}).items()
    return metric == asked.metric and all(attributes.get(key) in values for key, values in where)


def _own_points(spans: Sequence[Span], asked: _Asked) -> list[Point]:
    """By second, of the innermost spans of the request that counted it: those around them have it too."""
    names = {
        c.name: 1e-6 if c.unit == "us" else 1.0
        for c in SPAN_COUNTERS
        if _is(asked, c.metric, dict(c.attributes))
    }
    found: list[Point] = []
    for name, scale in names.items():
        told = [span for span in spans if span.own and name in span.counted]
        around = {span.parent_id for span in told}
        found += [
            (
                s.start_us / 1e3,
                (s.start_us + s.duration_us) / 1e3,
                1e6 * scale * s.counted[name] / s.duration_us,
            )
            for s in told
            if s.span_id not in around and s.duration_us > 0
        ]
    return sorted(found)


def summed(series: Iterable[Sequence[Point]]) -> list[Point]:
    """Counters whose points, us, need not have the same times as one: (begin, end, by second), ms. Its area is what all
    of them counted; a time that no point covers is left out."""
    edges: dict[float, tuple[float, int]] = {}
    for begin, end, rate in (point for one in series for point in _told_once(one)):
        for at, more, points in ((begin, rate, 1), (end, -rate, -1)):
            before, covering = edges.get(at, (0.0, 0))
            edges[at] = before + more, covering + points
    found: list[Point] = []
    rate, covering, since = 0.0, 0, 0.0
    for at in sorted(edges):
        if covering:
            found.append((since / 1e3, at / 1e3, max(rate, 0.0)))
        more, points = edges[at]
        covering += points
        # what a sum of floats leaves of nothing is not a rate
        rate, since = (rate + more if covering else 0.0), at
    return found


def _told_once(points: Sequence[Point]) -> Iterator[Point]:
    """Points of a series by second, each moment from one of them: two probes beside one process tell the same twice."""
    until = -inf
    for begin, end, value in sorted(points):
        if end > max(begin, until):
            yield max(begin, until), end, 1e6 * value / (end - begin)
            until = end


def draw(figure: go.Figure, strip: Strip, row: int) -> None:
    """Into a row of a figure of subplots, the highest line behind the others."""
    behind = sorted(strip.lines, key=lambda line: (line.whose == THREAD, -max(v for _, _, v in line.points)))
    for line in behind:
        figure.add_trace(_bars(line) if line.whose else _steps(line, strip.unit), row=row, col=1)
    top = strip.highest or 1.0
    ratio = strip.unit == "1"
    figure.update_yaxes(
        range=[0, 1.02 if ratio and top <= 1 else 1.1 * top],
        tickformat=".0%" if ratio else "~s" if top >= 10 else "~g",
        ticksuffix="B" if strip.unit == "By" else "",
        nticks=3,
        fixedrange=True,
        row=row,
        col=1,
    )


def legend(strip: Strip, heading: str) -> list[str]:
    """Its title and its names in their colours, for beside it; a line each. heading: stands above, empty for none."""
    names = [
        f'<span style="color:{line.colour}">■</span> {in_chart(line.name, 25)}'
        for line in strip.lines
        if line.name
    ]
    return [*[f"<i>{heading}</i>"] * bool(heading), f"<b>{strip.title}</b>", *names]


def _bars(line: Line) -> go.Bar:
    return go.Bar(
        x=[(begin + end) / 2 for begin, end, _ in line.points],
        width=[end - begin for begin, end, _ in line.points],
        y=[value for _, _, value in line.points],
        marker={"color": line.colour, "line": {"color": line.colour, "width": 0.5}},
        customdata=[
            f"<b>{in_chart(line.name)}</b><br>{begin:,.1f} to {end:,.1f} ms: {value:,.4g}/s,"
            f" {value * (end - begin) / 1000:,.4g} in all"
            for begin, end, value in line.points
        ],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )


def _steps(line: Line, unit: str) -> go.Scatter:
    """Each reading stands for the time since the one before."""
    x: list[float] = []
    y: list[float | None] = []
    for begin, _, value in line.points:
        at = begin / 1000
        if not x or at - x[-1] > _HELD_MS:  # what was before that is not known
            x += [at - _HELD_MS, at - _TOLD_MS]
            y += [None, value]
        x.append(at)
        y.append(value)
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": line.colour, "shape": "vh", "width": 1.8},
        customdata=[
            f"<b>{in_chart(line.name)}</b><br>{at:,.1f} ms: {'' if value is None else amount(value, unit)}"
            for at, value in zip(x, y, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )
