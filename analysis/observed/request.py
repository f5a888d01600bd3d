"""One request with all that was seen of it: the front door of `hitmap trace` and of the page Request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from clickhouse_connect.driver.client import Client

from analysis.misses.bins import iso
from analysis.misses.columns import at, together
from analysis.misses.find import Found, find
from analysis.numbers import digits
from analysis.observed import bounded
from analysis.observed.counters import counted
from analysis.observed.model import Missing, Observed, Process, Trace
from analysis.observed.processes import ports_of, processes
from analysis.observed.spans import Traced, spans
from analysis.observed.words import ESTIMATED
from cachemodel.layers import SERVING_LAYERS, ObservationLayer, Tier
from cachemodel.observed import SPAN_COUNTERS

_TOKENS = ("prompt", "cached", *Tier, "completion", "recomputed")
_THREAD = "the request"
_OWN = "its spans"
_MOST_PIDS = 3
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
    traced, (in_flight, endless), port = together(
        lambda: spans(client, row["span_id"], begin, end),
        lambda: _in_flight(client, found.server, begin, end),
        lambda: ports_of(client, [found.server]).get(found.server, ""),
    )
    mine = processes(client, found.server, begin, end, traced.homes or None)
    meanwhile = counted(client, found.server, mine, begin, end)
    own = _own(row["observed"])
    beside = bounded.bounded(own, meanwhile.observed) if len(mine) == 1 else list(meanwhile.observed)
    observed = [*own, *beside]
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
        missing=list(_missing(observed, mine, traced, port)),
        together=in_flight,
        notes=[
            *_notes(row, traced), *_shares(meanwhile.observed, endless),
            *bounded.notes(meanwhile.observed, beside, end - begin), *meanwhile.notes,
        ],
        finish_reason=row["finish_reason"],
        preemptions=row["preemptions"],
    )  # fmt: skip


def _row(client: Client, found: Found) -> dict[str, Any]:
    """Its row of `requests`."""
    columns = [
        *(
            "span_id",
            "e2e_us",
            "ttft_us",
            "client_e2e_us",
            "finish_reason",
            "preemptions",
            "labels",
            "observed",
        ),
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
            own=True,
        )
        for counter in SPAN_COUNTERS
        if counter.name in told and isfinite(told[counter.name]) and told[counter.name] >= 0
    ]


def _in_flight(client: Client, server: str, begin: int, end: int) -> tuple[float | None, int]:
    """Requests of the server that were in flight meanwhile, on average over the time, None for one without length; and
    how many more came then, of which nothing tells how long they were."""
    if end <= begin:
        return None, 0
    rows = client.query(
        f"""
        SELECT
            sumIf(greatest(0, least(toUnixTimestamp64Micro(time) + e2e_us, {{end:Int64}})
                  - greatest(toUnixTimestamp64Micro(time), {{begin:Int64}})), e2e_us > 0)
                / ({{end:Int64}} - {{begin:Int64}}),
            countIf(e2e_us IS NULL AND time >= {at("begin")})
        FROM requests
        WHERE server = {{server:String}} AND time < {at("end")} AND time >= {at("begin")} - INTERVAL 1 HOUR
        """,
        parameters={"server": server, "begin": begin, "end": end},
    ).result_rows
    return float(rows[0][0]), int(rows[0][1])


def _missing(
    observed: Sequence[Observed], mine: Sequence[Process], traced: Traced, port: str
) -> Iterator[Missing]:
    """Layers that nothing tells of. port: of its server, empty where it is not known."""
    seen = {one.layer for one in observed}
    if not traced.spans:
        yield Missing(
            ObservationLayer.APPLICATION,
            "no span of it came, only a log tells of it",
            "have the server send its spans: hitmap attach says which flag",
        )
    for layer, what, option in _BESIDE:
        if layer not in seen:
            why = f"{what}, or could not be" if mine else "no probe watched its server's processes then"
            pids = " ".join(f"--pid {process.pid}" for process in mine[:_MOST_PIDS])
            whom = f"--port {port}" if port else pids or "--port PORT"
            command = f"sudo hitmap probe {whom}" + (f" {option}" if mine else "")
            yield Missing(
                layer,
                why,
                f"beside the server, run {command} (hitmap doctor says there what the host can tell, and why not)",
            )


def _notes(row: Mapping[str, Any], traced: Traced) -> Iterator[str]:
    if traced.of > len(traced.spans):
        yield f"its trace has {traced.of:,} spans: the {len(traced.spans):,} nearest to it in time are here"
    if row["e2e_us"] is None:
        yield "nothing tells how long its server took: what the processes counted meanwhile is not known"
    elif row["e2e_us"] == 0:
        yield "it took no time that its server could tell: nothing was counted meanwhile"
    if row["client_e2e_us"] is not None:
        yield f"its client waited {digits(row['client_e2e_us'] / 1000)} ms for all of it"
    yield from traced.skews


def _shares(observed: Sequence[Observed], endless: int) -> Iterator[str]:
    if any(one.share is not None and not one.own for one in observed):
        yield ESTIMATED
    if endless and any(one.share is not None and not one.own for one in observed):
        yield f"{endless:,} more came meanwhile of which nothing tells how long they took: its shares may be too high"
