"""Totals to points: nothing counted is lost or told twice, and every moment is told of once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from probes.daemon.deltas import QUIET_NS, Deltas, Point
from probes.reading import Reading

FAULTS, FLUSHES, THREADS = "hitmap.page_faults", "hitmap.tlb_flushes", "process.thread.count"
_STEP_NS = QUIET_NS // 10


def reading(value: float, metric: str = FAULTS, pid: int = 7) -> Reading:
    return Reading(metric, value, "ebpf", pid)


def played(totals: list[int]) -> tuple[list[Point], int, int]:
    """Points of a total read ten times a second, and from when to when."""
    deltas, now, points = Deltas(1000), 1000, []
    for total in totals:
        now += _STEP_NS
        points += deltas.take([reading(total)], now)
    return points, 1000, now


@given(st.lists(st.integers(0, 5) | st.just(0), min_size=1, max_size=80))
def test_points_add_up_to_the_total_and_cover_the_time_without_a_gap(grown: list[int]) -> None:
    totals = [sum(grown[: at + 1]) for at in range(len(grown))]
    points, began, ended = played(totals)
    assert sum(point.value for point in points) == totals[-1]
    edges = [began, *(point.end_ns for point in points)]
    assert [point.start_ns for point in points] == edges[:-1]
    assert ended - edges[-1] < QUIET_NS  # what is not told yet is quiet, and for less than a second
    assert all(point.value >= 0 and point.end_ns > point.start_ns for point in points)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40))
def test_what_is_counted_stands_in_the_window_in_which_it_was_counted(grown: list[int]) -> None:
    totals = [sum(grown[: at + 1]) for at in range(len(grown))]
    points, began, _ = played(totals)
    for at, growth in enumerate(grown):
        begin = began + at * _STEP_NS
        inside = [p.value for p in points if p.start_ns <= begin and begin + _STEP_NS <= p.end_ns]
        if growth:
            assert inside == [growth]
        else:
            assert inside in ([0], [])  # no point of another moment reaches over it


def test_a_series_that_appears_late_began_with_nothing() -> None:
    deltas = Deltas(0)
    deltas.take([], 100)
    (point,) = deltas.take([reading(256)], 200)
    assert (point.start_ns, point.end_ns, point.value) == (100, 200, 256)


def test_a_total_that_falls_is_told_as_lost_and_counts_on() -> None:
    deltas = Deltas(0)
    deltas.take([reading(10)], 100)
    assert deltas.take([reading(3)], 200) == []
    assert deltas.lost == {"went_back": 1}
    (point,) = deltas.take([reading(5)], 300)
    assert (point.start_ns, point.value) == (200, 2)


def test_a_clock_that_is_set_back_gives_no_window_that_ends_before_it_begins() -> None:
    deltas = Deltas(10**12)
    deltas.take([reading(10)], 2 * 10**12)
    assert deltas.take([reading(12)], 10**12) == []
    assert deltas.lost["clock_went_back"] == 1
    (point,) = deltas.take([reading(13)], 10**12 + 5)
    assert (point.start_ns, point.end_ns, point.value) == (10**12, 10**12 + 5, 1)


def test_a_process_that_exited_and_a_new_one_of_its_number_are_two() -> None:
    deltas = Deltas(0)
    deltas.take([reading(10)], 100)
    deltas.take([], 200)
    (point,) = deltas.take([reading(4)], 300)
    assert (point.start_ns, point.value) == (200, 4)
    assert not deltas.lost


def test_a_number_that_is_looked_at_less_often_has_the_window_between_two_looks() -> None:
    """Context switches are summed over threads, which takes long: not at each reading."""
    deltas = Deltas(0)
    deltas.take([reading(1), reading(5, FLUSHES)], 100)
    for now in (200, 300, 400):
        assert deltas.take([reading(1)], now) == []
    (point,) = deltas.take([reading(1), reading(8, FLUSHES)], 500)
    assert (point.reading.metric, point.start_ns, point.end_ns, point.value) == (FLUSHES, 100, 500, 3)


def test_a_total_of_the_host_that_is_missing_for_a_while_is_not_told_twice() -> None:
    """As of a GPU whose driver was reloaded: its sensor goes on with the total that it had."""
    deltas, gpu = Deltas(0), Reading("hw.gpu.io", 100, "nvml", attributes=(("hw.id", "GPU-1"),))
    deltas.take([gpu], 100)
    assert deltas.take([], 200) == []
    (point,) = deltas.take([gpu._replace(value=130)], 300)
    assert (point.start_ns, point.end_ns, point.value) == (100, 300, 30)


def test_of_a_process_that_is_there_nothing_is_kept_of_threads_that_ended() -> None:
    deltas = Deltas(0)
    for tid in range(1000):
        deltas.take([reading(1), Reading(FAULTS, 1, "ebpf", 7, tid)], tid + 1)
    assert len(deltas._series) == 2


def test_a_gauge_is_told_when_it_changes_and_once_a_second() -> None:
    deltas, told = Deltas(0), []
    for at, value in enumerate([5, 5, 5, 6, *[6] * 12], start=1):
        told += [(at, p.value) for p in deltas.take([reading(value, THREADS)], at * _STEP_NS)]
    assert told == [(1, 5), (4, 6), (14, 6)]
    assert Deltas(0).take([reading(0, THREADS)], 1)[0].value == 0  # nothing is a value, too


def test_what_the_vocabulary_does_not_know_is_counted_as_lost() -> None:
    deltas = Deltas(0)
    assert deltas.take([reading(1, "hitmap.no.such")], 1) == []
    assert deltas.lost == {"unknown_metric": 1}
    assert len(deltas.take([reading(1), reading(1, FLUSHES), reading(1, pid=8)], 2)) == 3
