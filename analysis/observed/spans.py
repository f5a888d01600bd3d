"""The spans of one request's trace, in the order of a waterfall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at
from analysis.observed.model import Span
from cachemodel.observed import HOST, PID, SPAN_COUNTERS

MOST_SPANS = 1000
_NAMES = frozenset(counter.name for counter in SPAN_COUNTERS)
_AROUND_US = 1_000_000


@dataclass(frozen=True)
class Traced:
    """spans: parents before children, siblings by time. homes: (host, pid) of the request's own spans; cut: there were
    more spans than are shown."""

    spans: Sequence[Span]
    homes: frozenset[tuple[str, int]] = frozenset()
    cut: bool = False


def spans(client: Client, span_id: int, time: int) -> Traced:
    """Of the trace that the request's span belongs to. time: its arrival, microseconds since 1970; span_id 0: no span
    tells of it."""
    if not span_id:
        return Traced(())
    rows = client.query(
        f"""
        WITH
        (
            SELECT any(TraceId) FROM otel_traces
            WHERE SpanId = {{span:String}} AND Timestamp >= {at("time")} - INTERVAL {_AROUND_US} MICROSECOND
                AND Timestamp <= {at("time")} + INTERVAL {_AROUND_US} MICROSECOND
        ) AS trace,
        (SELECT (min(Start), max(End)) FROM otel_traces_trace_id_ts WHERE TraceId = trace) AS bounds
        SELECT SpanId, ParentSpanId, SpanName, ServiceName, StatusCode, SpanAttributes,
               ResourceAttributes['{HOST}'], toInt64OrZero(ResourceAttributes['{PID}']),
               (toUnixTimestamp64Nano(Timestamp) - 1000 * {{time:Int64}}) / 1000, Duration / 1000
        FROM otel_traces
        WHERE TraceId = trace AND trace != '' AND Timestamp >= toDateTime64(bounds.1, 9)
            AND Timestamp < toDateTime64(bounds.2, 9) + INTERVAL 1 SECOND
        ORDER BY Timestamp, SpanId
        LIMIT 1 BY SpanId
        LIMIT {MOST_SPANS + 1}
        """,
        parameters={"span": f"{span_id:016x}", "time": time},
    ).result_rows
    made = [_span(row) for row in rows[:MOST_SPANS]]
    homes = {row[0]: (str(row[6]), int(row[7])) for row in rows if row[7]}
    ordered = list(_ordered(made, f"{span_id:016x}"))
    return Traced(
        ordered,
        frozenset(homes[span.span_id] for span in ordered if span.own and span.span_id in homes),
        len(rows) > MOST_SPANS,
    )


def _span(row: Sequence[object]) -> Span:
    span_id, parent, name, service, status, attributes, _, _, start, duration = row
    told: Mapping[str, str] = attributes if isinstance(attributes, Mapping) else {}
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
        attributes={key: value for key, value in told.items() if key not in _NAMES},
        counted={key: float(value) for key, value in told.items() if key in _NAMES},
    )


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
