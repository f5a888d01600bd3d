"""What a process counted, given to the requests that ran meanwhile: all of it, once, and to nobody else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.observed.counters import counted
from analysis.observed.model import Observed, Process
from tests.analysis.observed.world import HOST, MAJOR, PID, START, moment, put_gauge, put_points, put_request
from tests.databases import Database

_numbers = itertools.count(10_000)
ME = Process(HOST, PID, "python3", "spans")


def micros(ms: float) -> int:
    return round(moment(ms).timestamp() * 1e6)


def of(db: Database, start: float, end: float, metric: str = "process.paging.faults") -> list[Observed]:
    told = counted(db.client, "s", [ME], micros(start), micros(end))
    return [one for one in told if one.metric == metric]


def test_a_request_alone_has_all_that_its_process_counted(db: Database) -> None:
    put_request(db.client, "a", 100, 300)
    put_points(db.client, [(0, 100, 5), (100, 200, 40), (200, 300, 60), (300, 400, 7)])
    (one,) = of(db, 100, 300)
    assert (one.value, one.share, one.estimate, one.points) == (100, 1.0, 100, 2)
    assert (one.attributes, one.source, one.of) == (MAJOR, "procfs", "python3 (4711)")


def test_a_point_that_reaches_over_an_end_is_counted_for_its_part(db: Database) -> None:
    put_request(db.client, "a", 150, 250)
    put_points(db.client, [(100, 200, 40), (200, 300, 60)])
    (one,) = of(db, 150, 250)
    assert one.value == pytest.approx(50)


def test_two_in_flight_share_what_was_counted_while_both_were(db: Database) -> None:
    put_request(db.client, "a", 0, 200)
    put_request(db.client, "b", 100, 200)
    put_request(db.client, "other", 0, 200, server="another")
    put_points(db.client, [(0, 100, 30), (100, 200, 80)])
    (one,) = of(db, 0, 200)
    assert (one.value, one.estimate) == (110, pytest.approx(30 + 40))
    assert one.share == pytest.approx(70 / 110)


def test_nothing_counted_is_nothing_and_no_point_is_no_number(db: Database) -> None:
    put_request(db.client, "a", 0, 200)
    put_points(db.client, [(0, 1000, 0)])
    (one,) = of(db, 0, 200)
    assert (one.value, one.estimate) == (0, 0)
    assert of(db, 0, 200, "hitmap.tlb_flushes") == []


def test_other_processes_hosts_and_threads_are_not_in_it(db: Database) -> None:
    put_request(db.client, "a", 0, 200)
    put_points(db.client, [(0, 200, 10)])
    put_points(db.client, [(0, 200, 1000)], pid=9)
    put_points(db.client, [(0, 200, 1000)], host="node-2")
    put_points(
        db.client, [(0, 200, 1000)], attributes={**MAJOR, "thread.id": "4712"}
    )  # in its process's already
    (one,) = of(db, 0, 200)
    assert one.value == 10


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flights=st.lists(st.tuples(st.integers(0, 900), st.integers(20, 600)), min_size=1, max_size=6),
    points=st.lists(st.integers(0, 100), min_size=1, max_size=15),
)
def test_shares_add_up_to_what_was_counted_while_anybody_was_in_flight(
    db: Database, flights: list[tuple[int, int]], points: list[int]
) -> None:
    pid = next(_numbers)
    for number, (start, length) in enumerate(flights):
        put_request(db.client, f"r{number}", start, start + length, server=f"s{pid}")
    told = [(100.0 * at, 100.0 * (at + 1), float(value)) for at, value in enumerate(points)]
    put_points(db.client, told, pid=pid)
    me = [Process(HOST, pid, "python3", "spans")]
    estimates = [
        one.estimate or 0
        for start, length in flights
        for one in counted(db.client, f"s{pid}", me, micros(start), micros(start + length))
    ]
    busy = [any(start <= ms < start + length for start, length in flights) for ms in range(1600)]
    expected = sum(value * sum(busy[int(begin) : int(end)]) / 100 for begin, end, value in told)
    assert sum(estimates) == pytest.approx(expected, abs=0.01)


def test_gauges_are_those_of_the_gpus_that_the_process_uses(db: Database) -> None:
    put_request(db.client, "a", 0, 500)
    for gpu, uses in (("GPU-1", True), ("GPU-2", False)):
        named = {"hw.id": gpu, "hw.name": "H200", "hitmap.source": "gpm"}
        put_gauge(db.client, [(100, 0.5), (300, 0.7), (5000, 1.0)], "hitmap.gpu.dram.utilization", named)
        if uses:
            put_gauge(db.client, [(100, 2e9)], "hw.gpu.memory.usage", named, **{"process.pid": str(PID)})
    put_gauge(db.client, [(100, 0.9)], "hitmap.gpu.dram.utilization", {"hw.id": "GPU-1"}, host="node-2")
    (one,) = of(db, 0, 500, "hitmap.gpu.dram.utilization")
    assert (one.of, one.value, one.low, one.high, one.points) == (
        "H200 GPU-1",
        pytest.approx(0.6),
        0.5,
        0.7,
        2,
    )
    assert (one.share, one.estimate) == (None, None)
    (memory,) = of(db, 0, 500, "hw.gpu.memory.usage")
    assert memory.of == "python3 (4711) on H200 GPU-1"


def test_without_a_process_there_is_nothing_to_ask(db: Database) -> None:
    assert counted(db.client, "s", [], micros(0), micros(10)) == []
    assert START.tzinfo
