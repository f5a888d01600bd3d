"""One request with all that was seen of it: the front door of `hitmap trace` and of the page Request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from analysis.misses.bins import iso
from analysis.misses.columns import at, together
from analysis.misses.find import Found, find
from analysis.observed.counters import counted
from analysis.observed.model import Missing, Observed, Process, Trace
from analysis.observed.processes import processes
from analysis.observed.spans import Traced, spans
from cachemodel.layers import SERVING_LAYERS, ObservationLayer, Tier
from cachemodel.observed import SPAN_COUNTERS

_TOKENS = ("prompt", "cached", *Tier, "completion", "recomputed")
_THREAD = "the request"
_OWN = "its spans"
_BESIDE = (
    (ObservationLayer.RUNTIME, "CPU caches were not counted", "--pmu"),
    (ObservationLayer.KERNEL, "page faults and TLB flushes were not counted", "--kernel"),
    (ObservationLayer.HARDWARE, "no GPU was sampled", "--gpu"),
    (ObservationLayer.MICROARCHITECTURE, "no GPU was sampled", "--gpu"),
)
"""Layers beside the spans: what was not done where nothing tells of one, and the probe's option that does it."""


def trace(client: Client, request_id: str, server: str = "") -> Trace:
    """The trace of a request. request_id: its id or the beginning of it, as long as there is one only.

    Raises UserError saying what there is.
    """
    found = find(client, request_id, server)
    row = _row(client, found)
    begin, end = found.time, found.time + int(row["e2e_us"] or 0)
    traced = spans(client, row["span_id"], found.time)
    mine = processes(client, found.server, begin, end, traced.homes or None)
    of_processes, in_flight = together(
        lambda: counted(client, found.server, mine, begin, end),
        lambda: _in_flight(client, found.server, begin, end),
    )
    observed = [*_own(row["observed"]), *of_processes]
    return Trace(
        request_id=found.request_id,
        server=found.server,
        model=found.model,
        time=iso(found.time),
        e2e_us=row["e2e_us"],
        ttft_us=row["ttft_us"],
        tokens={name: row[f"{name}_tokens"] for name in _TOKENS if row[f"{name}_tokens"] is not None},
        labels=row["labels"],
        layers=[(layer.name, float(row[layer.column])) for layer in SERVING_LAYERS if row[layer.column] is not None],
        spans=traced.spans,
        processes=mine,
        observed=observed,
        missing=list(_missing(observed, mine, traced)),
        together=in_flight,
        notes=list(_notes(row, traced)),
    )  # fmt: skip


def _row(client: Client, found: Found) -> dict[str, Any]:
    """Its row of `requests`."""
    columns = [
        *("span_id", "e2e_us", "ttft_us", "labels", "observed"),
        *(f"{name}_tokens" for name in _TOKENS),
        *(layer.column for layer in SERVING_LAYERS),
    ]
    row = client.query(
        f"SELECT {', '.join(columns)} FROM requests"
        f" WHERE time = {at('time')} AND server = {{server:String}} AND request_id = {{id:String}}"
        " ORDER BY run DESC LIMIT 1",
        parameters={"time": found.time, "server": found.server, "id": found.request_id},
    ).result_rows[0]
    return dict(zip(columns, row, strict=True))


def _own(told: Mapping[str, float]) -> list[Observed]:
    """What the threads that worked for it counted for it alone."""
    return [
        Observed(
            counter.layer,
            counter.metric,
            dict(counter.attributes),
            counter.unit,
            counter.meaning,
            _THREAD,
            told[counter.name],
            1.0,
            _OWN,
            1,
        )
        for counter in SPAN_COUNTERS
        if counter.name in told
    ]


def _in_flight(client: Client, server: str, begin: int, end: int) -> float | None:
    """Requests of the server that were in flight meanwhile, on average over the time; None for one without length."""
    if end <= begin:
        return None
    rows = client.query(
        f"""
        SELECT sum(greatest(0, least(toUnixTimestamp64Micro(time) + e2e_us, {{end:Int64}})
                   - greatest(toUnixTimestamp64Micro(time), {{begin:Int64}}))) / ({{end:Int64}} - {{begin:Int64}})
        FROM requests
        WHERE server = {{server:String}} AND e2e_us > 0 AND time < {at("end")}
            AND time >= {at("begin")} - INTERVAL 1 HOUR
        """,
        parameters={"server": server, "begin": begin, "end": end},
    ).result_rows
    return float(rows[0][0])


def _missing(observed: Sequence[Observed], mine: Sequence[Process], traced: Traced) -> list[Missing]:
    """Layers that nothing tells of."""
    seen = {one.layer for one in observed}
    found = []
    if not traced.spans:
        found.append(
            Missing(
                ObservationLayer.APPLICATION,
                "no span of it came, only a log tells of it",
                "have the server send its spans: hitmap attach says which flag",
            )
        )
    for layer, what, option in _BESIDE:
        if layer not in seen:
            why = what if mine else f"no probe watches its process: {what}"
            do = f"there, run sudo hitmap probe --port PORT {option} (hitmap doctor says what that host can tell)"
            found.append(Missing(layer, why, do))
    return found


def _notes(row: Mapping[str, Any], traced: Traced) -> list[str]:
    notes = []
    if traced.cut:
        notes.append(f"its trace has more than {len(traced.spans):,} spans: the first are shown")
    if row["e2e_us"] is None:
        notes.append(
            "nothing tells how long it took: what its server's processes counted meanwhile is not known"
        )
    return notes
