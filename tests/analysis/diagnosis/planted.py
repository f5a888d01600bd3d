"""For each rule two sides that have what it looks for, and a B that nearly has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Side
from analysis.misses.columns import at
from tests.analysis.diagnosis.traffic import START, Traffic, side
from tests.analysis.misses.stored_world import insert
from tests.analysis.observed.world import START as OBSERVED_START
from tests.analysis.observed.world import put_points

LATER = START + 2000
_SAMPLES = 5

Told = Mapping[str, float]


@dataclass(frozen=True)
class Case:
    """a, b, near: traffic. told_a, told_b, told_near: growth of counters by canonical name; "requests.preemptions" and
    "requests.recomputed" stand in the requests. tier: the view names "tier speed", which only a twin tells. spent_*:
    what threads counted, means of a request by attribute; probed_*: what a probe counted of the servers' processes, per
    request: `minor`, `major` faults and `remote_ipi_send`."""

    a: Traffic
    b: Traffic
    near: Traffic
    told_a: Told = field(default_factory=dict)
    told_b: Told = field(default_factory=dict)
    told_near: Told = field(default_factory=dict)
    kind: str = ""
    slots: int = 0
    tier: bool = False
    spent_a: Told = field(default_factory=dict)
    spent_b: Told = field(default_factory=dict)
    spent_near: Told = field(default_factory=dict)
    probed_a: Told = field(default_factory=dict)
    probed_b: Told = field(default_factory=dict)
    probed_near: Told = field(default_factory=dict)


_MAJOR, _MINOR = "hitmap.thread.page_faults.major", "hitmap.thread.page_faults.minor"
_OFF_CPU, _CPU = "hitmap.thread.off_cpu_us", "hitmap.thread.cpu_us"
_A = Traffic()
_FLEET = replace(_A, weights=(1.0, 1.0, 1.0))
_LOADS = replace(_A, host=0.3)
_SLOT = replace(_A, hits=0.9)
_DECODING = replace(_A, decode=20.0, prefill=0.3)
_PASSES = {"step.time.count": 4000.0, "step.time.sum": 40.0, "step.model_time.sum": 36.0}
_WAITING = {"step.time.count": 4000.0, "step.time.sum": 80.0, "step.model_time.sum": 36.0}
_BUSY = {"step.time.count": 4000.0, "step.time.sum": 80.0, "step.model_time.sum": 72.0}
_COPIES, _MORE = ({"step.tokens_by_phase": 1e6, "kv_gather.bytes": bytes} for bytes in (2e9, 8e9))
_SLOWER = replace(_A, decode=5.0)

CASES: Mapping[str, Case] = {
    "scan-pollution": Case(
        _A, replace(_A, burst=4.0, flushed=0.5), near=replace(_A, burst=4.0, flushed=0.02)
    ),
    "thrash": Case(_A, replace(_A, evicted=0.2), near=replace(_A, evicted=0.04)),
    "prompts-changed": Case(_A, replace(_A, changed=0.3), near=replace(_A, changed=0.02)),
    "slot-thrash": Case(_SLOT, replace(_SLOT, turns=True), near=_SLOT, kind="llama_cpp", slots=2),
    "affinity-loss": Case(
        _FLEET, replace(_FLEET, elsewhere=0.3, spread=3), near=replace(_FLEET, elsewhere=0.02)
    ),
    "affinity-loss-by-template": Case(
        _FLEET, replace(_FLEET, evicted=0.3, spread=3), near=replace(_FLEET, spread=3)
    ),
    "affinity-pile-up": Case(
        _FLEET,
        replace(_FLEET, weights=(3.0, 1.0, 1.0), queues=(200.0, 20.0, 20.0)),
        near=replace(_FLEET, weights=(3.0, 1.0, 1.0)),
    ),
    "preemption-spiral": Case(
        _A,
        _A,
        near=_A,
        told_a={"requests.preemptions": 8.0, "requests.recomputed": 100.0},
        told_b={"requests.preemptions": 900.0, "requests.recomputed": 90_000.0},
        told_near={"requests.preemptions": 40.0, "requests.recomputed": 500.0},
    ),
    "ttft-against-tpot": Case(
        _A, replace(_A, prefill=0.3, decode=2.0), near=replace(_A, prefill=0.3, decode=3.0)
    ),
    "tpot-against-ttft": Case(
        replace(_A, prefill=0.3, decode=2.0), _A, near=replace(_A, prefill=0.3, decode=3.0)
    ),
    "throughput-against-ttft": Case(
        replace(_A, n=600), replace(_A, n=900, queues=(150.0,)), near=replace(_A, n=900)
    ),
    "hits-without-throughput": Case(
        replace(_DECODING, evicted=0.4), _DECODING, near=replace(_DECODING, decode=15.0)
    ),
    "tier-wait": Case(
        _LOADS, replace(_LOADS, load_fixed=20.0), near=replace(_LOADS, load_fixed=4.5), tier=True
    ),
    "tier-transfer": Case(
        _LOADS, replace(_LOADS, load_token=0.1), near=replace(_LOADS, load_token=0.022), tier=True
    ),
    "copies": Case(_A, _SLOWER, near=_SLOWER, told_a=_COPIES, told_b=_MORE, told_near=_COPIES),
    "host-device-sync": Case(_A, _SLOWER, near=_SLOWER, told_a=_PASSES, told_b=_WAITING, told_near=_BUSY),
    "major-faults": Case(
        _A,
        replace(_A, prefill=0.2),
        near=replace(_A, prefill=0.2),
        spent_a={_MAJOR: 0.1, _MINOR: 40.0, _OFF_CPU: 2000.0, _CPU: 30_000.0},
        spent_b={_MAJOR: 60.0, _MINOR: 40.0, _OFF_CPU: 14_000.0, _CPU: 31_000.0},
        spent_near={_MAJOR: 0.8, _MINOR: 40.0, _OFF_CPU: 14_000.0, _CPU: 31_000.0},
    ),
    "process-major-faults": Case(
        _A,
        _A,
        near=_A,
        probed_a={"major": 0.05, "minor": 40, "remote_ipi_send": 2},
        probed_b={"major": 30, "minor": 40, "remote_ipi_send": 2},
        probed_near={"major": 0.9, "minor": 400, "remote_ipi_send": 2},
    ),
    "shootdown-storm": Case(
        _A,
        _A,
        near=_A,
        probed_a={"major": 0.05, "minor": 40, "remote_ipi_send": 2},
        probed_b={"major": 0.05, "minor": 400, "remote_ipi_send": 300},
        probed_near={"major": 0.05, "minor": 400, "remote_ipi_send": 18},
    ),
    "compute-not-cache": Case(_A, replace(_A, prefill=0.2), near=replace(_A, prefill=0.2, evicted=0.2)),
}
"""All but bandwidth-bound, which only a law tells (test_passes.py)."""


def sides(case: str, near: bool = False, seed: int = 0) -> tuple[Side, Side]:
    """The two sides of a case, on servers of their own."""
    planted = CASES[case]
    a = side(planted.a, seed)
    b = side(planted.near if near else planted.b, seed + 1000, "b", LATER)
    a, b = (
        _spent(a, planted.spent_a, seed),
        _spent(b, planted.spent_near if near else planted.spent_b, seed + 1),
    )
    prefix = f"{case} {'near' if near else 'planted'}"
    return tuple(replace(one, servers=tuple(f"{prefix} {s}" for s in one.servers)) for one in (a, b))  # type: ignore[return-value]


def _spent(one: Side, means: Told, seed: int) -> Side:
    """With what each request's thread counted."""
    rng = np.random.default_rng([7, seed])
    return replace(
        one, observed={name: rng.poisson(mean, one.n).astype(float) for name, mean in means.items()}
    )


def put(client: Client, case: str, a: Side, b: Side, near: bool = False) -> None:
    """What their servers told meanwhile."""
    planted = CASES[case]
    for one, told in ((a, planted.told_a), (b, planted.told_near if near else planted.told_b)):
        put_told(client, one, told)
    for one, probed in ((a, planted.probed_a), (b, planted.probed_near if near else planted.probed_b)):
        if probed:
            put_probed(client, one, probed)
    if planted.kind:
        facts = {"total_slots": str(planted.slots)}
        names = ["server", "kind", "facts", "time"]
        when = client.query(f"SELECT {at('t')}", parameters={"t": round(1e6 * a.begin)}).result_rows[0][0]
        client.insert("servers", [[s, planted.kind, facts, when] for s in a.servers], column_names=names)


def put_probed(client: Client, one: Side, per_request: Told) -> None:
    """Requests of a side's server, and what a probe counted of its process, evenly over the window."""
    server, pid = one.servers[0], crc32(one.servers[0].encode()) % 100_000
    client.command(
        f"INSERT INTO requests (time, server, request_id, span_id)"
        f" SELECT {at('begin')} + toIntervalMicrosecond({{step:Int64}} * number), {{server:String}}, toString(number),"
        " number FROM numbers({n:UInt64})",
        parameters={
            "server": server,
            "begin": round(1e6 * one.begin),
            "step": round(1e6 * (one.end - one.begin) / one.n),
            "n": one.n,
        },
    )
    window_s = (one.end - one.begin) / 100
    begin = (one.begin - OBSERVED_START.timestamp()) * 1000
    edges = [(begin + 1000 * window_s * at, begin + 1000 * window_s * (at + 1)) for at in range(100)]
    for name, mean in per_request.items():
        metric, told = (
            ("process.paging.faults", {"system.paging.fault.type": name})
            if name in ("minor", "major")
            else ("hitmap.tlb_flushes", {"hitmap.tlb_flush.reason": name})
        )
        points = [(since, upto, mean * one.n / 100) for since, upto in edges]
        put_points(client, points, metric, told, pid=pid, **{"hitmap.server": server})
    put_points(
        client, [(*edge, 0.1) for edge in edges], "process.cpu.time", {}, pid=pid, **{"hitmap.server": server}
    )


def put_told(client: Client, one: Side, told: Told) -> None:
    """Counters that grew evenly over the window of a side, and requests that tell their preemptions."""
    server = one.servers[0]
    of_requests = {
        name.removeprefix("requests."): n for name, n in told.items() if name.startswith("requests.")
    }
    if of_requests:
        client.command(
            f"INSERT INTO requests (time, server, request_id, span_id, prompt_tokens, preemptions, recomputed_tokens)"
            f" SELECT {at('begin')} + toIntervalMillisecond(number * 900), {{server:String}}, toString(number), number,"
            " 700, intDiv({preemptions:UInt32} * (number + 1), 800) - intDiv({preemptions:UInt32} * number, 800),"
            " intDiv({recomputed:UInt32}, 800) FROM numbers(800)",
            parameters={
                "server": server,
                "begin": round(1e6 * one.begin),
                **{k: int(v) for k, v in of_requests.items()},
            },
        )
    series, samples = [], []
    for name, grown in told.items():
        if name.startswith("requests."):
            continue
        fingerprint = crc32(f"{server} {name}".encode())
        series.append(
            {
                "fingerprint": fingerprint,
                "server": server,
                "metric": name,
                "raw_name": name,
                "kind": "counter",
            }
        )
        for number in range(_SAMPLES):
            samples.append(
                (one.begin + (number + 0.5) * (one.end - one.begin) / _SAMPLES, fingerprint, grown / _SAMPLES)
            )
    if series:
        insert(client, "series", series)
        client.command(
            "INSERT INTO samples (time, fingerprint, value, delta)"
            " SELECT fromUnixTimestamp64Micro(r.1, 'UTC'), r.2, 1, r.3"
            " FROM (SELECT arrayJoin({rows:Array(Tuple(Int64, UInt64, Float64))}) AS r)",
            parameters={"rows": [(round(1e6 * t), f, d) for t, f, d in samples]},
        )
