"""The spans of one request's trace, in the order of a waterfall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at
from analysis.numbers import digits
from analysis.observed.identity import NAMES, Name
from analysis.observed.model import Span
from analysis.observed.points import after
from cachemodel.observed import SPAN_COUNTERS

MOST_SPANS = 1000
_NAMES = frozenset(counter.name for counter in SPAN_COUNTERS)
_AROUND_US = 1_000_000
_SKEW_US = 1000.0


@dataclass(frozen=True)
class Traced:
    """spans: parents before children, siblings by time. homes: processes as the spans of the request's own server
    name them; of: how many spans the trace has. skews: what the clocks of two services disagree by, in words."""

    spans: Sequence[Span]
    homes: frozenset[Name] = frozenset()
    of: int = 0
    skews: Sequence[str] = ()


def spans(client: Client, span_id: int, begin: int, end: int) -> Traced:
    """Of the trace that the request's span belongs to. begin, end: of the request, microseconds since 1970; span_id 0:
    no span tells of it. Of a trace with more than MOST_SPANS those nearest to the request in time; of a span that came
    more than once, as of a recording that was played twice, the nearest."""
    if not span_id:
        return Traced(())
    request = f"{span_id:016x}"
    rows = client.query(
        f"""
        WITH
        (
            SELECT any(TraceId) FROM otel_traces
            WHERE SpanId = {{span:String}} AND Timestamp >= {at("begin")} - INTERVAL {_AROUND_US} MICROSECOND
                AND Timestamp <= {at("begin")} + INTERVAL {_AROUND_US} MICROSECOND
        ) AS trace,
        (SELECT (min(Start), max(End)) FROM otel_traces_trace_id_ts WHERE TraceId = trace) AS bounds,
        toFloat64({{end:Int64}} - {{begin:Int64}}) AS length
        SELECT *, count() OVER () FROM
        (
            SELECT SpanId, ParentSpanId, SpanName, ServiceName, StatusCode, SpanAttributes,
                   {NAMES}, {after("Timestamp")} AS start, Duration / 1000 AS took,
                   greatest(0, start - length, -start - took) AS away
            FROM otel_traces
            WHERE TraceId = trace AND trace != '' AND Timestamp >= toDateTime64(bounds.1, 9)
                AND Timestamp < toDateTime64(bounds.2, 9) + INTERVAL 1 SECOND
            ORDER BY away, abs(start), SpanId
            LIMIT 1 BY SpanId
        )
        ORDER BY SpanId != {{span:String}}, away, start, SpanId
        LIMIT {MOST_SPANS}
        """,
        parameters={"span": request, "begin": begin, "end": end},
    ).result_rows
    made = sorted((_span(row) for row in rows), key=lambda span: (span.start_us, span.span_id))
    ordered = list(_ordered(made, request))
    own = {span.span_id for span in ordered if span.own}
    service = next((row[3] for row in rows if row[0] == request), "")
    homes = {name for row in rows if row[0] in own and row[3] == service for name in row[6]}
    return Traced(ordered, frozenset(homes), int(rows[0][-1]) if rows else 0, list(_skews(ordered)))


def shown(spans: Sequence[Span], most: int) -> list[Span]:
    """Those to look at where there is no room for all: the request's own, what it is below, and what is nearest to it
    in time."""
    if len(spans) <= most:
        return list(spans)
    by_id = {span.span_id: span for span in spans}
    top = next((span for span in spans if span.own), spans[0])
    kept, span = dict[str, None](), top
    while span.span_id not in kept:
        kept[span.span_id] = None
        span = by_id.get(span.parent_id, span)

    def away(span: Span) -> tuple[float, int]:
        """From the request in time; what is higher up first."""
        since = top.start_us - span.start_us - span.duration_us
        return max(0.0, since, span.start_us - top.start_us - top.duration_us), span.depth

    kept.update((span.span_id, None) for span in sorted(spans, key=away))
    first = set(list(kept)[:most])
    return [span for span in spans if span.span_id in first]


def _span(row: Sequence[object]) -> Span:
    span_id, parent, name, service, status, attributes, _, start, duration, *_ = row
    told: Mapping[str, str] = attributes if isinstance(attributes, Mapping) else {}
    counts = {
        key: count for key, value in told.items() if key in _NAMES and (count := _count(value)) is not None
    }
    return Span(
        str(span_id),
        str(parent),
        str(name),
        str(service),
        float(str(start)),
        float(str(duration)),
        0,
        layer=told.get("hitmap.layer", ""),
        status=str(status),
        attributes={key: value for key, value in told.items() if key not in counts},
        counted=counts,
    )


def _count(text: str) -> float | None:
    """None for what is no count, whoever wrote it."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


def _skews(spans: Sequence[Span]) -> Iterator[str]:
    """A span that begins before the one that called for it was timed by another clock."""
    by_id = {span.span_id: span for span in spans}
    behind: dict[tuple[str, str], float] = {}
    for span in spans:
        above = by_id.get(span.parent_id)
        if above and above.service != span.service and above.start_us - span.start_us > _SKEW_US:
            pair = span.service, above.service
            behind[pair] = max(behind.get(pair, 0.0), above.start_us - span.start_us)
    for (service, caller), us in behind.items():
        yield f"the clock of {service} is at least {digits(us / 1000)} ms behind that of {caller}"


def _ordered(made: Sequence[Span], request: str) -> Iterator[Span]:
    """Depth first. A span whose parent did not come stands at the top; one that is its own ancestor, too."""
    ids = {span.span_id for span in made}
    children: dict[str, list[Span]] = {}
    for span in made:
        children.setdefault(span.parent_id if span.parent_id in ids else "", []).append(span)
    seen: set[str] = set()
    tops = [*children.get("", []), *made]  # the latter are those of a ring alone by then
    for top in tops:
        waiting = [(top, 0, False)]
        while waiting:
            span, depth, own = waiting.pop()
            if span.span_id in seen:
                continue
            seen.add(span.span_id)
            own = own or span.span_id == request
            yield replace(span, depth=depth, own=own)
            waiting += [(child, depth + 1, own) for child in reversed(children.get(span.span_id, []))]
