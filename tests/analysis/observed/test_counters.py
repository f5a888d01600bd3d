"""What a process counted, given to the requests that ran meanwhile: all of it, once, and to nobody else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.observed.counters import Counted, counted
from analysis.observed.model import Observed, Process
from tests.analysis.observed.world import HOST, MAJOR, PID, START, moment, put_gauge, put_points, put_request
from tests.databases import Database

_numbers = itertools.count(10_000)
ME = Process(HOST, PID, "python3", "spans")


def micros(ms: float) -> int:
    return round(moment(ms).timestamp() * 1e6)


def all_of(db: Database, start: float, end: float, me: Process = ME, server: str = "s") -> Counted:
    return counted(db.client, server, [me], micros(start), micros(end))


def of(db: Database, start: float, end: float, metric: str = "process.paging.faults") -> list[Observed]:
    return [one for one in all_of(db, start, end).observed if one.metric == metric]


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
        for one in counted(db.client, f"s{pid}", me, micros(start), micros(start + length)).observed
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
    assert counted(db.client, "s", [], micros(0), micros(10)) == Counted()
    assert START.tzinfo


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    windows=st.lists(st.tuples(st.integers(-300, 1200), st.integers(1, 700)), min_size=1, max_size=12),
    rate=st.integers(1, 50),
)
def test_no_moment_is_counted_twice_however_points_overlap(
    db: Database, windows: list[tuple[int, int]], rate: int
) -> None:
    """Two probes beside one process, clocks set back, points sent again: of an even rate the count is rate times the
    time that any point covers."""
    pid = next(_numbers)
    put_request(db.client, "r", 0, 1000, server=f"s{pid}")
    put_points(db.client, [(start, start + length, rate * length) for start, length in windows], pid=pid)
    told = all_of(db, 0, 1000, Process(HOST, pid, "python3", "spans"), f"s{pid}").observed
    covered = sum(any(start <= ms < start + length for start, length in windows) for ms in range(1000))
    assert bool(told) == bool(covered)
    for one in told:
        assert one.value == pytest.approx(rate * covered, rel=1e-6)
        assert one.covered == pytest.approx(covered / 1000, abs=1e-6)
        assert one.share == pytest.approx(1.0)


def test_two_probes_beside_one_process_are_taken_for_one_and_told(db: Database) -> None:
    put_request(db.client, "a", 0, 1000)
    for shift in (0, 37):
        put_points(db.client, [(at + shift, at + shift + 100, 5) for at in range(-200, 1200, 100)])
    told = all_of(db, 0, 1000)
    assert told.observed[0].value == pytest.approx(50)
    assert told.notes == ["two probes watch python3 (4711): each moment is taken from one of them"]


def test_of_two_rungs_that_count_the_same_one_is_shown(db: Database) -> None:
    put_request(db.client, "a", 0, 1000)
    put_points(db.client, [(0, 1000, 50)], source="perf")
    put_points(db.client, [(500, 1000, 40)], source="procfs")
    told = all_of(db, 0, 1000)
    assert [(one.value, one.source) for one in told.observed] == [(50, "perf")]
    assert told.notes == ["procfs counted some of the same of python3 (4711) as perf, which is shown"]


def test_a_probe_that_was_away_is_said_and_nothing_is_made_up(db: Database) -> None:
    put_request(db.client, "a", 0, 1000)
    put_points(db.client, [(0, 200, 20), (200, 250, 5), (900, 1000, 10)])
    told = all_of(db, 0, 1000)
    assert [(one.value, one.covered) for one in told.observed] == [(35, pytest.approx(0.35))]
    assert told.notes == [
        "python3 (4711) was watched by procfs in 35 % of its time: what happened in the rest is not known"
    ]


def test_what_did_not_change_is_covered_as_the_rest_of_its_source_is(db: Database) -> None:
    put_request(db.client, "a", 0, 1000)
    put_points(db.client, [(0, 1000, 20)])
    put_points(db.client, [(900, 1000, 1)], "hitmap.page_faults", {"hitmap.fault.mode": "user"})
    told = all_of(db, 0, 1000)
    assert {one.covered for one in told.observed} == {1.0}
    assert told.notes == []


def test_the_slowest_probe_tells_of_a_short_request(db: Database) -> None:
    put_request(db.client, "a", 4000, 4100)
    put_points(db.client, [(0, 10_000, 1000)])
    (one,) = of(db, 4000, 4100)
    assert one.value == pytest.approx(10)


def test_a_pid_that_another_program_had_before_is_another_process(db: Database) -> None:
    put_request(db.client, "a", 0, 1000)
    put_points(db.client, [(0, 400, 7)], **{"process.executable.name": "make"})
    put_points(db.client, [(400, 1000, 30)])
    told = all_of(db, 0, 1000)
    assert [one.value for one in told.observed] == [30]
    assert "60 %" in told.notes[0]


def test_what_cannot_be_a_count_is_left_out(db: Database) -> None:
    put_request(db.client, "a", 0, 1000)
    for number, value in enumerate((float("nan"), float("inf"), -5.0, 3.0)):
        put_points(db.client, [(100 * number, 100 * number + 100, value)])
    put_points(db.client, [(500, 500, 9), (600, 550, 9)])
    (one,) = of(db, 0, 1000)
    assert (one.value, one.points) == (3, 1)


def test_counters_of_gpus_are_those_that_the_process_uses(db: Database) -> None:
    put_request(db.client, "a", 0, 500)
    put_request(db.client, "b", 0, 500)
    put_gauge(db.client, [(100, 2e9)], "hw.gpu.memory.usage", {"hw.id": "GPU-1"}, **{"process.pid": str(PID)})
    put_points(db.client, [(0, 500, 1.0)], "process.cpu.time", {})
    for gpu in ("GPU-1", "GPU-2"):
        named = {"hw.id": gpu, "hw.name": "H200", "network.io.direction": "receive"}
        put_points(db.client, [(0, 1000, 4e9)], "hw.gpu.io", named, pid=None, source="nvml")
    (one,) = of(db, 0, 500, "hw.gpu.io")
    assert (one.of, one.attributes) == ("H200 GPU-1", {"network.io.direction": "receive"})
    assert (one.value, one.share) == (pytest.approx(2e9), pytest.approx(0.5))


def test_a_gauge_that_was_read_just_after_a_short_request_tells_of_it(db: Database) -> None:
    put_request(db.client, "a", 0, 20)
    put_gauge(db.client, [(300, 5e9), (600, 9e9)], "hw.gpu.memory.usage", {"hw.id": "GPU-1"})
    put_gauge(db.client, [(1500, 0.5)], "hitmap.gpu.dram.utilization", {"hw.id": "GPU-1"})
    (memory,) = of(db, 0, 20, "hw.gpu.memory.usage")
    assert (memory.value, memory.low, memory.high, memory.points) == (5e9, 5e9, 5e9, 1)
    assert of(db, 0, 20, "hitmap.gpu.dram.utilization") == []


def test_thousands_in_flight_and_a_hundred_points_a_second(db: Database) -> None:
    """Requests times points is what took gigabytes once."""
    db.client.command(
        """INSERT INTO requests (time, server, request_id, span_id, e2e_us)
        SELECT fromUnixTimestamp64Micro({begin:Int64} + toInt64(number) * 1000), 's', toString(number), number + 1,
               60000000
        FROM numbers(10000)""",
        parameters={"begin": micros(0)},
    )
    put_points(db.client, [(at, at + 10, 1) for at in range(0, 80_000, 10)])
    (one,) = of(db, 5000, 65_000)
    assert one.value == 6000
    # one more comes each ms until 10,000 are there; from 60 s on one goes each ms
    moments = (
        sum(1 / n for n in range(5001, 10_001)) + 50_000 / 10_000 + sum(1 / n for n in range(5000, 10_000))
    )
    assert one.estimate == pytest.approx(moments / 10)
