"""Facts that servers count, by time and not by request: preemptions, evictions, copies, time outside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Side
from analysis.diagnosis.model import Fact
from analysis.misses.columns import at
from cachemodel.layers import Tier

_GROWN = (
    "preemptions",
    "kv_gather.bytes",
    "step.tokens_by_phase",
    "step.time.sum",
    "step.time.count",
    "step.model_time.sum",
)
_GAUGES = ("kv_cache.usage", "requests.running")
_SLOWER = (Tier.HOST, Tier.REMOTE)
_DURING = f"time >= {at('begin')} AND time <= {at('end')}"
_OF_SERVERS = "server IN {servers:Array(String)}"


@dataclass(frozen=True)
class Counts:
    """Of the servers of a side in its window. grown, mean: of counters and gauges, by canonical name; samples: of the
    gauges. requests: all of these servers; preemptions, recomputed, prompt: sums over those that tell them, None where
    none does. removed: blocks that left the device, None where no events came."""

    seconds: float
    requests: int
    preemptions: float | None
    recomputed: float | None
    prompt: float | None
    removed: float | None
    grown: Mapping[str, float] = field(default_factory=dict)
    mean: Mapping[str, float] = field(default_factory=dict)
    samples: int = 0


def counts(client: Client, a: Side, b: Side) -> tuple[Counts, Counts] | None:
    """Of both sides; None where they share servers at one time, as what a server counts is of both then."""
    if set(a.servers) & set(b.servers) and a.begin <= b.end and b.begin <= a.end:
        return None
    return _counts(client, a), _counts(client, b)


def counted(of_a: Counts, of_b: Counts, a: Side, b: Side) -> Mapping[str, Fact]:
    """As facts."""
    both = (of_a, of_b)
    requests = (of_a.requests, of_b.requests)
    grown = {name: [side.grown.get(name) for side in both] for name in _GROWN}
    found = {
        "preemptions": _ratio(
            [_first(s.preemptions, s.grown.get("preemptions")) for s in both], requests, requests
        ),
        "recomputed": _ratio([s.recomputed for s in both], [s.prompt for s in both], requests),
        "evictions": _ratio(
            [s.removed for s in both], [s.seconds for s in both], [int(s.removed or 0) for s in both]
        ),
        "gathered": _ratio(
            grown["kv_gather.bytes"],
            grown["step.tokens_by_phase"],
            [int(n or 0) for n in grown["step.tokens_by_phase"]],
        ),
    }
    steps = grown["step.time.count"]
    outside = [
        _less(*pair) for pair in zip(grown["step.time.sum"], grown["step.model_time.sum"], strict=True)
    ]
    n = [int(count or 0) for count in steps]
    found["pass_host"] = _ratio([None if s is None else 1000 * s for s in outside], steps, n)
    found["pass_host_part"] = _ratio(outside, grown["step.time.sum"], n)
    for name, gauge in (("kv_usage", "kv_cache.usage"), ("running", "requests.running")):
        found[name] = Fact(of_a.mean.get(gauge), of_b.mean.get(gauge), of_a.samples, of_b.samples)
    return {name: fact for name, fact in found.items() if fact.a is not None and fact.b is not None}


def kinds_of(client: Client, side: Side) -> set[str]:
    """Dialects of a side's servers: of their spans, and as they were attached."""
    rows = client.query(
        f"SELECT DISTINCT toString(kind) FROM servers WHERE {_OF_SERVERS}"
        f" UNION DISTINCT SELECT DISTINCT toString(dialect) FROM requests WHERE {_OF_SERVERS} AND {_DURING}",
        parameters=_parameters(side),
    ).result_rows
    return {str(row[0]) for row in rows}


def fewest_slots(client: Client, side: Side) -> int | None:
    """Prompts that each server of a side keeps (llama.cpp: total_slots), the fewest of them; None where none says."""
    rows = client.query(
        f"SELECT argMax(facts['total_slots'], (time <= {at('end')}, time)) FROM servers WHERE {_OF_SERVERS}"
        " GROUP BY server",
        parameters=_parameters(side),
    ).result_rows
    told = [int(row[0]) for row in rows if str(row[0]).isdecimal()]
    return min(told, default=None)


def _counts(client: Client, side: Side) -> Counts:
    parameters = _parameters(side)
    requests, preemptions, recomputed, prompt = client.query(
        "SELECT count(), sumOrNull(preemptions), sumOrNull(recomputed_tokens),"
        " sumOrNullIf(prompt_tokens, recomputed_tokens IS NOT NULL)"
        f" FROM requests WHERE {_OF_SERVERS} AND {_DURING}",
        parameters=parameters,
    ).result_rows[0]
    events, removed = client.query(
        f"SELECT count(), countIf(action = 'removed' AND tier = '{Tier.DEVICE}') FROM kv_events"
        f" WHERE {_OF_SERVERS} AND {_DURING}",
        parameters=parameters,
    ).result_rows[0]
    rows = client.query(
        f"""
        WITH chosen AS
        (
            SELECT fingerprint, any(metric) AS name FROM series
            WHERE {_OF_SERVERS} AND metric IN {{metrics:Array(String)}}
                AND labels['tier'] NOT IN {{slower:Array(String)}}
            GROUP BY fingerprint
        )
        SELECT name, sumOrNull(delta), avg(value), count()
        FROM samples INNER JOIN chosen USING (fingerprint)
        WHERE fingerprint IN (SELECT fingerprint FROM chosen) AND {_DURING}
        GROUP BY name
        """,
        parameters={**parameters, "metrics": [*_GROWN, *_GAUGES], "slower": list(_SLOWER)},
    ).result_rows
    return Counts(
        seconds=side.end - side.begin,
        requests=int(requests),
        preemptions=preemptions,
        recomputed=recomputed,
        prompt=prompt,
        removed=removed if events else None,
        grown={str(name): float(grown) for name, grown, _, _ in rows if grown is not None},
        mean={str(name): float(mean) for name, _, mean, _ in rows if name in _GAUGES},
        samples=max((int(n) for name, _, _, n in rows if name in _GAUGES), default=0),
    )


def _parameters(side: Side) -> dict[str, object]:
    begin, end = (round(1e6 * seconds) for seconds in (side.begin, side.end))
    return {"servers": list(side.servers), "begin": begin, "end": end}


def _ratio(tops: Sequence[float | None], bottoms: Sequence[float | None], n: Sequence[int]) -> Fact:
    a, b = (
        top / bottom if top is not None and bottom else None
        for top, bottom in zip(tops, bottoms, strict=True)
    )
    return Fact(a, b, n[0], n[1])


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
