"""Facts of whole processes: of the time that probes cover, of the servers they watched, and clear or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.attribution.model import Side
from analysis.diagnosis.diagnose import findings
from analysis.diagnosis.memory import of_processes, of_threads
from analysis.diagnosis.memory_counts import Counts
from analysis.diagnosis.model import Fact
from tests.analysis.diagnosis.traffic import Traffic, drawn, side
from tests.analysis.observed.world import PID, START, moment, put_points
from tests.databases import Database

MINUTE = 60_000
LENGTH = 10 * MINUTE
A, B = 0, 20 * MINUTE
MINOR = {"system.paging.fault.type": "minor"}
SHOT = {"hitmap.tlb_flush.reason": "remote_ipi_send"}
Points = Sequence[tuple[float, float, float]]


def window(begin: float, servers: Sequence[str] = ("s",), length: float = LENGTH) -> Side:
    """A side of ten minutes from `begin` on, ms after START; its rows are not what is asked for."""
    made = side(Traffic(), 1, "w", START.timestamp() + begin / 1000)
    begin_s = START.timestamp() + begin / 1000
    return Side(
        **{**_fields(made), "servers": tuple(servers), "begin": begin_s, "end": begin_s + length / 1000}
    )


def _fields(made: Side) -> dict[str, Any]:
    return {
        name: getattr(made, name)
        for name in made.__dataclass_fields__
        if made.__dataclass_fields__[name].init
    }


def requests(
    db: Database, begin: float, each: float = 1000, server: str = "s", length: float = LENGTH
) -> None:
    """One every `each` ms."""
    db.client.command(
        """INSERT INTO requests (time, server, request_id, span_id, e2e_us)
        SELECT fromUnixTimestamp64Micro({begin:Int64} + toInt64(number * {each:Int64})), {server:String},
               toString(number), number + 1, 100000
        FROM numbers({n:UInt64})""",
        parameters={
            "begin": round(moment(begin).timestamp() * 1e6),
            "each": round(1000 * each),
            "server": server,
            "n": round(length / each),
        },
    )


def steady(begin: float, each_s: float, length: float = LENGTH) -> Points:
    return [(begin + at, begin + at + 1000, each_s) for at in range(0, int(length), 1000)]


def put(db: Database, points: Points, kind: Any = None, server: str = "s", **more: Any) -> None:
    metric = "hitmap.tlb_flushes" if kind is SHOT else "process.paging.faults"
    told = {"hitmap.server": server, **more}
    put_points(db.client, points, metric, kind or {"system.paging.fault.type": "major"}, **told)
    alive = [(start, end, 0.1) for start, end, _ in points]
    put_points(db.client, alive, "process.cpu.time", {}, **told)


def rules_of(facts: dict[str, Fact]) -> list[str]:
    return [finding.rule for finding in findings(facts, {}, ["vllm"])]


def test_faults_that_keep_coming_are_found(db: Database) -> None:
    for begin, each in ((A, 1.0), (B, 40.0)):
        requests(db, begin)
        put(db, steady(begin, each))
    facts = dict(of_processes(db.client, window(A), window(B)))
    major = facts["process_major_faults"]
    assert (major.a, major.b) == (pytest.approx(1, rel=0.02), pytest.approx(40, rel=0.02))
    assert major.sigmas is not None
    assert major.sigmas > 10
    assert "process-major-faults" in rules_of(facts)


def test_a_cold_start_is_no_change(db: Database) -> None:
    """A deploy reads its weights from a disk once: 50 faults a request on average, and no cause of anything since."""
    for begin in (A, B):
        requests(db, begin)
        put(db, steady(begin, 0.0))
    put(db, [(B + at, B + at + 1000, 2000.0) for at in range(500, 15_500, 1000)], pid=PID + 1)
    facts = dict(of_processes(db.client, window(A), window(B)))
    assert facts["process_major_faults"].b == pytest.approx(50, rel=0.05)
    assert rules_of(facts) == []


def test_a_deploy_that_changes_the_pid_changes_no_number(db: Database) -> None:
    for begin in (A, B):
        requests(db, begin)
    put(db, steady(A, 10))
    put(db, steady(B, 10, LENGTH / 2))
    put(db, steady(B + LENGTH / 2, 10, LENGTH / 2), pid=PID + 1)
    major = of_processes(db.client, window(A), window(B))["process_major_faults"]
    assert (major.a, major.b) == (pytest.approx(10, rel=0.02), pytest.approx(10, rel=0.02))


def test_a_probe_that_was_away_for_most_of_a_side_lowers_nothing(db: Database) -> None:
    for begin in (A, B):
        requests(db, begin)
    put(db, steady(A, 10))
    put(db, steady(B + 7 * MINUTE, 10, 2 * MINUTE))
    major = of_processes(db.client, window(A), window(B))["process_major_faults"]
    assert major.b == pytest.approx(10, rel=0.02)
    assert major.n_b == pytest.approx(120, abs=3)


def test_replicas_without_a_probe_are_in_no_ratio(db: Database) -> None:
    for begin in (A, B):
        for server in ("s", "t", "u"):
            requests(db, begin, server=server)
    put(db, steady(A, 10))
    put(db, steady(A, 10), server="t", pid=9)
    put(db, steady(B, 10))
    major = of_processes(db.client, window(A, ("s", "t", "u")), window(B, ("s", "t", "u")))[
        "process_major_faults"
    ]
    assert (major.a, major.b) == (pytest.approx(10, rel=0.02), pytest.approx(10, rel=0.02))
    assert (major.n_a, major.n_b) == (1200, 600)


@pytest.mark.parametrize("at_night", [100, 299, 302])
def test_a_quiet_server_has_no_storm(db: Database, at_night: float) -> None:
    """Shootdowns of a server at night, over its few requests, are many a request and no more than at noon."""
    requests(db, A, each=100)
    requests(db, B, each=10_000)
    put(db, steady(A, 300), SHOT)
    put(db, steady(B, at_night), SHOT)
    facts = dict(of_processes(db.client, window(A), window(B)))
    assert "process_shootdowns" not in facts
    assert rules_of(facts) == []


def test_a_storm_after_a_side_that_had_other_flushes_only_is_found(db: Database) -> None:
    """The kernel's counter has no row for a reason that never came."""
    for begin in (A, B):
        requests(db, begin)
        put_points(
            db.client,
            steady(begin, 5),
            "hitmap.tlb_flushes",
            {"hitmap.tlb_flush.reason": "task_switch"},
            **{"hitmap.server": "s"},
        )
    put(db, steady(A, 1), MINOR)
    put(db, steady(B, 100), SHOT)
    facts = dict(of_processes(db.client, window(A), window(B)))
    assert (facts["process_shootdowns"].a, facts["process_shootdowns"].b) == (0, pytest.approx(100, rel=0.02))
    assert "shootdown-storm" in rules_of(facts)


def test_two_probes_and_two_rungs_count_once(db: Database) -> None:
    for begin in (A, B):
        requests(db, begin)
        put(db, steady(begin, 10))
        put(db, [(start + 300, end + 300, value) for start, end, value in steady(begin, 10)], source="procfs")
        put(db, steady(begin, 9), source="perf")
    major = of_processes(db.client, window(A), window(B))["process_major_faults"]
    assert (major.a, major.b) == (pytest.approx(10, rel=0.02), pytest.approx(10, rel=0.02))


def test_a_pid_that_another_program_has_later_is_not_counted(db: Database) -> None:
    for begin in (A, B):
        requests(db, begin)
        put(db, steady(begin, 10, LENGTH / 2))
    put(db, steady(B + LENGTH / 2, 500, LENGTH / 2), server="other", **{"process.executable.name": "make"})
    major = of_processes(db.client, window(A), window(B))["process_major_faults"]
    assert (major.b, major.n_b) == (pytest.approx(10, rel=0.02), 300)


@pytest.mark.parametrize("lacks", ["points", "requests", "both"])
def test_a_side_without_either_has_no_facts(db: Database, lacks: str) -> None:
    requests(db, A)
    put(db, steady(A, 10))
    if lacks == "points":
        requests(db, B)
    if lacks == "requests":
        put(db, steady(B, 10))
    assert of_processes(db.client, window(A), window(B)) == {}
    assert of_processes(db.client, window(B), window(A)) == {}


def test_arms_of_one_time_have_none(db: Database) -> None:
    requests(db, A)
    put(db, steady(A, 10))
    assert of_processes(db.client, window(A), window(A)) == {}


def test_of_a_day_a_sample_of_minutes_says_the_same(db: Database) -> None:
    day = 86_400_000
    for begin, each in ((0, 20.0), (2 * day, 30.0)):
        db.client.command(
            """INSERT INTO otel_metrics_sum (ResourceAttributes, ServiceName, MetricName, Attributes, StartTimeUnix,
                TimeUnix, Value)
            SELECT map('host.name', 'n', 'process.pid', '7', 'process.executable.name', 'python3',
                       'hitmap.server', 's'), 'hitmap-probe', metric,
                   map('system.paging.fault.type', 'major'), at - INTERVAL 10 SECOND, at,
                   {each:Float64}
            FROM (SELECT toDateTime64({begin:Int64} + 10 * number, 9) AS at FROM numbers(8640)) AS a
            CROSS JOIN (SELECT arrayJoin(['process.paging.faults', 'process.cpu.time']) AS metric) AS b""",
            parameters={"begin": round(START.timestamp() + begin / 1000), "each": each},
        )
        requests(db, begin, each=2000, length=day)
    major = of_processes(db.client, window(0, length=day), window(2 * day, length=day))[
        "process_major_faults"
    ]
    assert (major.a, major.b) == (pytest.approx(4, rel=0.05), pytest.approx(6, rel=0.05))


@given(
    counts=st.lists(st.integers(0, 1000), min_size=2, max_size=60),
    factor=st.integers(2, 50),
)
def test_the_error_is_that_of_the_ratio_and_never_below_that_of_counting(
    counts: list[int], factor: int
) -> None:
    told = Counts(np.array(counts, float), np.full(len(counts), 10.0), np.ones(len(counts)))
    n, total = len(counts), sum(counts)
    assert told.by_request == pytest.approx(total / (10 * n))
    assert told.error >= math.sqrt(total) / (10 * n) * (1 - 1e-9)
    assert told.error == pytest.approx(
        max(math.sqrt(total), np.std(counts) * n / math.sqrt(n - 1)) / (10 * n)
    )
    busier = Counts(told.counts, factor * told.requests, told.seconds)
    assert busier.by_request == pytest.approx(told.by_request / factor)


def test_threads_of_half_of_the_requests_tell_of_those(db: Database) -> None:
    """Numbers that are none are not known."""
    both = [side(Traffic(n=400), seed, name, begin) for seed, name, begin in ((1, "a", 0.0), (2, "b", 1e6))]
    counter = "hitmap.thread.page_faults.major"
    rng = np.random.default_rng(1)
    sides = []
    for one, mean in zip(both, (2.0, 30.0), strict=True):
        told = rng.poisson(mean, one.n).astype(float)
        told[::2] = np.nan
        told[1], told[3], told[5] = np.inf, -4.0, np.nan
        sides.append(Side(**{**_fields(one), "observed": {counter: told}}))
    fact = of_threads(sides[0], sides[1], drawn(*sides))["thread_major_faults"]
    assert (fact.n_a, fact.n_b) == (both[0].n // 2 - 3, both[1].n // 2 - 3)
    assert (fact.a, fact.b) == (pytest.approx(2, rel=0.2), pytest.approx(30, rel=0.1))
    nobody = Side(**{**_fields(both[1]), "observed": {counter: np.full(both[1].n, np.nan)}})
    assert of_threads(sides[0], nobody, drawn(sides[0], nobody)) == {}
