"""Processes and GPUs over time: all that was counted is in the bins, once; what was not told is None, never 0."""

from __future__ import annotations

import itertools
import math

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.observed.figures import FIGURES, OF_GPUS, OF_PROBES, OF_PROCESSES
from analysis.observed.hosts import MOST_BINS, hosts, lanes, last_told, step_of
from analysis.observed.watched import Hosts, Lane, Watched
from cachemodel.observed import BY_NAME, SHOOTDOWNS, TLB_REASONS
from tests.analysis.observed.world import (
    HOST,
    MAJOR,
    PID,
    START,
    moment,
    put_gauge,
    put_points,
    put_request,
    put_span,
)
from tests.databases import Database

_numbers = itertools.count(20_000)
MINOR = {"system.paging.fault.type": "minor"}
GPU = {"hw.id": "GPU-1", "hw.name": "H200", "hitmap.source": "gpm"}
CPU = "process.cpu.time"


def micros(ms: float) -> int:
    return round(moment(ms).timestamp() * 1e6)


def seen(db: Database, end: float = 10_000, begin: float = 0) -> Hosts:
    return hosts(db.client, micros(begin), micros(end))


def the_process(db: Database, end: float = 10_000, begin: float = 0) -> Watched:
    (one,) = seen(db, end, begin).processes
    return one


def course(db: Database, figure: str, end: float = 10_000, begin: float = 0) -> list[float | None]:
    """Of the only one that is watched, by bin."""
    found = seen(db, end, begin)
    told = lanes(db.client, [*found.processes, *found.gpus], micros(begin), micros(end))
    (lane,) = [lane for lane in told.lanes if lane.figure == figure]
    return list(lane.values)


def test_a_process_with_its_figures(db: Database) -> None:
    put_points(db.client, [(0, 5000, 100), (5000, 10_000, 300)])
    put_points(db.client, [(0, 10_000, 5)], attributes=MINOR)
    put_points(db.client, [(0, 10_000, 2.0)], CPU, {"cpu.mode": "user"})
    put_points(db.client, [(0, 10_000, 3.0)], CPU, {"cpu.mode": "system"})
    one = the_process(db)
    assert (one.host, one.pid, one.executable, one.gpu) == (HOST, PID, "python3", "")
    assert one.figures == {"major": 40, "minor": 0.5, "cpu": pytest.approx(0.5)}


def test_a_rate_is_over_the_time_that_points_cover(db: Database) -> None:
    put_points(db.client, [(2000, 4000, 20)])
    assert the_process(db).figures["major"] == 10
    assert course(db, "major") == [None, None, 10, 10, None, None, None, None, None, None]


def test_nothing_counted_is_0_and_nothing_told_is_absent(db: Database) -> None:
    put_points(db.client, [(0, 10_000, 0)])
    figures = the_process(db).figures
    assert figures == {"major": 0}
    assert seen(db, 30_000, 20_000).processes == []


def test_parts_beyond_the_ends_do_not_count(db: Database) -> None:
    put_points(db.client, [(-500, 500, 10), (500, 9500, 0), (9500, 10_500, 30)])
    assert the_process(db).figures["major"] * 10 == pytest.approx(20)


def test_threads_are_in_their_process_already(db: Database) -> None:
    put_points(db.client, [(0, 10_000, 10)])
    put_points(db.client, [(0, 10_000, 10)], attributes={**MAJOR, "thread.id": "4712"})
    assert the_process(db).figures["major"] == 1


def test_two_sources_that_count_the_same_are_not_added(db: Database) -> None:
    put_points(db.client, [(0, 10_000, 100)], source="procfs")
    put_points(db.client, [(0, 10_000, 120)], source="perf")
    assert the_process(db).figures["major"] == 12
    assert course(db, "major") == [12] * 10


def test_the_same_points_of_two_probes_are_not_doubled(db: Database) -> None:
    for _ in range(2):
        put_points(db.client, [(0, 10_000, 100)])
    assert the_process(db).figures["major"] == 10


def test_errors_of_a_gpu_that_two_probes_watch_are_counted_once(db: Database) -> None:
    for _ in range(2):
        put_points(db.client, [(0, 10_000, 8)], "hw.errors", {**GPU, "error.type": "corrected"}, pid=None)
    assert seen(db).gpus[0].figures == {"corrected": 8}


def test_what_cannot_be_is_not_counted(db: Database) -> None:
    """A sender that is no probe of ours may say anything."""
    put_points(db.client, [(0, 5000, 10), (5000, 6000, math.nan), (6000, 7000, -5), (8000, 7000, 3)])
    put_points(db.client, [(0, 5000, 10)], **{"process.pid": "4711; DROP TABLE"})
    put_gauge(db.client, [(0, 0.5), (1000, math.inf)], "hw.gpu.utilization", GPU)
    found = seen(db)
    assert [one.figures for one in found.processes] == [{"major": 2}]
    assert [one.figures for one in found.gpus] == [{"busy": 0.5}]


def test_shootdowns_stand_apart_from_other_flushes(db: Database) -> None:
    for number, reason in enumerate(TLB_REASONS):
        put_points(
            db.client,
            [(0, 10_000, 10 * 2**number)],
            "hitmap.tlb_flushes",
            {"hitmap.tlb_flush.reason": reason},
        )
    figures = the_process(db).figures
    told = {reason: 2.0**number for number, reason in enumerate(TLB_REASONS)}
    assert figures["shootdowns"] == sum(told[reason] for reason in SHOOTDOWNS)
    assert figures["shootdowns"] + figures["flushes"] == sum(told.values())


def test_series_with_other_windows_add_up_in_each_bin(db: Database) -> None:
    put_points(db.client, [(0, 1000, 0.5), (1000, 2000, 0.1)], CPU, {"cpu.mode": "user"})
    put_points(db.client, [(0, 2000, 0.4)], CPU, {"cpu.mode": "system"})
    assert course(db, "cpu", 2000) == pytest.approx([0.7, 0.3])


def test_a_multiplexed_counter_says_in_each_point_how_long_it_ran(db: Database) -> None:
    for at in range(10):
        put_points(
            db.client, [(1000 * at, 1000 * at + 1000, 100)], "hitmap.pmu.llc.loads",
            {"hitmap.running_ratio": f"0.{at + 1}"}, source="perf",
        )  # fmt: skip
    put_points(db.client, [(0, 10_000, 250)], "hitmap.pmu.llc.misses", {}, source="perf")
    assert the_process(db).figures == {"llc": pytest.approx(0.25)}


def test_without_a_look_up_there_is_no_miss_ratio(db: Database) -> None:
    put_points(db.client, [(0, 2000, 0)], "hitmap.pmu.dtlb.loads", {})
    put_points(db.client, [(0, 2000, 0)], "hitmap.pmu.dtlb.misses", {})
    put_points(db.client, [(0, 2000, 7)], "hitmap.pmu.l1d.misses", {})
    assert the_process(db).figures == {}


def test_seconds_of_a_gauge_weigh_the_same_however_often_it_is_told(db: Database) -> None:
    put_gauge(db.client, [(0, 1.0), *[(1000 + 100 * n, 0.0) for n in range(10)]], "hw.gpu.utilization", GPU)
    (gpu,) = seen(db).gpus
    assert (gpu.gpu, gpu.product, gpu.pid, gpu.figures) == ("GPU-1", "H200", None, {"busy": 0.5})


def test_a_gauge_holds_until_it_is_told_again_and_no_longer(db: Database) -> None:
    told = {"process.pid": str(PID), "process.executable.name": "python3"}
    put_gauge(db.client, [(1500, 5e9), (3600, 6e9)], "process.memory.usage", {}, **told)
    assert course(db, "rss", 6000) == [None, 5e9, 5e9, 6e9, None, None]
    assert the_process(db).figures["rss"] == 6e9, "the most"


def test_a_gpu_is_throttled_in_the_seconds_in_which_anything_holds_it(db: Database) -> None:
    for reason, held in (("sw_power_cap", {0, 1}), ("hw_slowdown", {1, 2})):
        points = [(1000.0 * at, float(at in held)) for at in range(6)]
        put_gauge(db.client, points, "hitmap.gpu.throttled", {**GPU, "hitmap.gpu.throttle.reason": reason})
    (gpu,) = seen(db).gpus
    assert gpu.figures == {"throttled": 0.5}


def test_counts_of_a_gpu_and_bytes_by_second(db: Database) -> None:
    for kind, count in (("corrected", 4), ("uncorrected", 0)):
        put_points(db.client, [(0, 5000, count)], "hw.errors", {**GPU, "error.type": kind}, pid=None)
    for direction, count in (("receive", 2e9), ("transmit", 1e9)):
        put_points(
            db.client, [(0, 5000, count)], "hw.gpu.io", {**GPU, "network.io.direction": direction}, pid=None
        )
    (gpu,) = seen(db).gpus
    assert gpu.figures == {"corrected": 4, "uncorrected": 0, "pcie_in": 4e8, "pcie_out": 2e8}


def test_what_one_kernel_or_pipe_did_is_not_the_gpu(db: Database) -> None:
    put_gauge(db.client, [(0, 0.9)], "hitmap.gpu.l2.hit_ratio", {**GPU, "hitmap.gpu.kernel": "gemm"})
    put_gauge(db.client, [(0, 0.6)], "hitmap.gpu.l2.hit_ratio", GPU)
    for pipe, value in (("any", 0.5), ("hmma", 0.4)):
        put_gauge(db.client, [(0, value)], "hitmap.gpu.tensor.active", {**GPU, "hitmap.gpu.pipe": pipe})
    (gpu,) = seen(db).gpus
    assert gpu.figures == {"l2": 0.6, "tensor": 0.5}


def test_memory_that_a_process_has_on_gpus_is_its_own_figure(db: Database) -> None:
    whose = {"process.pid": str(PID), "process.executable.name": "python3"}
    for gpu, used in (("GPU-1", 2e9), ("GPU-2", 3e9)):
        put_gauge(db.client, [(0, used)], "hw.gpu.memory.usage", {**GPU, "hw.id": gpu}, **whose)
        put_gauge(db.client, [(0, 9e9)], "hw.gpu.memory.usage", {**GPU, "hw.id": gpu})
    found = seen(db)
    assert [one.figures for one in found.processes] == [{"gpu_memory": 5e9}]
    assert [(one.gpu, one.figures) for one in found.gpus] == [
        ("GPU-1", {"memory": 9e9}),
        ("GPU-2", {"memory": 9e9}),
    ]
    told = lanes(db.client, found.processes, micros(0), micros(2000))
    assert [(lane.figure, lane.values) for lane in told.lanes] == [("gpu_memory", [5e9, None])]


def test_a_pid_that_is_given_out_again_is_another_process(db: Database) -> None:
    put_points(db.client, [(0, 5000, 10)])
    put_points(db.client, [(5000, 10_000, 20)], **{"process.executable.name": "nginx"})
    assert {(one.executable, one.figures["major"]) for one in seen(db).processes} == {
        ("python3", 2),
        ("nginx", 4),
    }


def test_processes_are_in_order_of_their_cpu_time_and_hosts_apart(db: Database) -> None:
    for pid, cpu, host in ((1, 0.5, "a"), (2, 2.0, "a"), (1, 1.0, "b")):
        put_points(db.client, [(0, 10_000, cpu)], CPU, {}, pid=pid, host=host)
    put_points(db.client, [(0, 10_000, 0.1)], "hitmap.probe.cpu.time", {}, pid=None, host="a")
    put_points(db.client, [(0, 1000, 7)], "hitmap.probe.lost", {"reason": "dropped"}, pid=None, host="a")
    found = seen(db)
    assert [(one.host, one.pid) for one in found.processes] == [("a", 2), ("b", 1), ("a", 1)]
    assert [(one.host, one.figures) for one in found.probes] == [
        ("a", {"probe_cpu": pytest.approx(0.01), "probe_lost": 7})
    ]


def _attach(client: Client, server: str, url: str) -> None:
    row = {"time": START, "server": server, "url": url}
    client.insert("servers", [list(row.values())], column_names=list(row))


def test_whose_work_a_process_does(db: Database) -> None:
    """The name its probe was given, the name its spans carry, the port; two that could be it are none."""
    _attach(db.client, "at-8000", "http://10.0.0.1:8000")
    _attach(db.client, "at-9000", "http://10.0.0.1:9000")
    _attach(db.client, "also-at-9000", "http://10.0.0.2:9000")
    resources = (
        {"hitmap.server": "named"},
        {"server.port": "8000"},
        {"server.port": "8000"},
        {"server.port": "9000"},
        {},
    )
    for pid, resource in enumerate(resources, 1):
        put_points(db.client, [(0, 1000, 1)], pid=pid, **resource)
    put_span(
        db.client,
        "aa",
        "",
        "chat",
        0,
        10,
        service="spans-say",
        resource={"host.name": HOST, "process.pid": "2"},
    )
    assert {one.pid: one.server for one in seen(db).processes} == {
        1: "named", 2: "spans-say", 3: "at-8000", 4: "", 5: ""
    }  # fmt: skip


def test_whose_work_a_process_in_a_container_does(db: Database) -> None:
    """By the pid it has in there, its container or, where spans tell no more, its pod."""
    for pid, (inner, container, pod) in enumerate(
        [("1", "c0", "p0"), ("1", "c1", "p1"), ("1", "c2", "p2"), ("1", "c3", "p2"), ("1", "c4", "p4")], 1
    ):
        put_points(
            db.client,
            [(0, 1000, 1)],
            "process.cpu.time",
            {},
            pid=pid,
            **{"hitmap.container.host.name": f"in-{container}", "hitmap.container.process.pid": inner},
            **{"container.id": container, "k8s.pod.uid": pod},
        )
    for service, resource in (
        ("by-pid", {"host.name": "in-c0", "process.pid": "1"}),
        ("by-container", {"container.id": "c1"}),
        ("by-pod", {"k8s.pod.uid": "p2"}),
        ("its-sidecar", {"container.id": "c3"}),
    ):
        put_span(db.client, service, "", "chat", 0, 10, service=service, resource=resource)
    assert {one.pid: one.server for one in seen(db).processes} == {
        1: "by-pid", 2: "by-container", 3: "by-pod", 4: "its-sidecar", 5: ""
    }  # fmt: skip


def test_a_server_by_another_name_of_its_service(db: Database) -> None:
    db.client.insert(
        "server_aliases", [["service.name", "vllm", "s"]], column_names=["kind", "alias", "server"]
    )
    put_points(db.client, [(0, 1000, 1)])
    put_span(
        db.client,
        "aa",
        "",
        "chat",
        0,
        10,
        service="vllm",
        resource={"host.name": HOST, "process.pid": str(PID)},
    )
    assert the_process(db).server == "s"


def test_requests_in_flight_beside_a_process(db: Database) -> None:
    put_request(db.client, "a", -500, 1500)
    put_request(db.client, "b", 500, 2500)
    put_request(db.client, "other", 0, 3000, server="t")
    put_points(db.client, [(0, 3000, 1)])
    told = lanes(db.client, seen(db, 3000).processes, micros(0), micros(3000), "s")
    assert told.in_flight == pytest.approx([1.5, 1.5, 0.5])
    assert lanes(db.client, [], micros(0), micros(3000)).in_flight is None


def test_others_are_not_in_a_process_own_lanes(db: Database) -> None:
    put_points(db.client, [(0, 1000, 5)])
    put_points(db.client, [(0, 1000, 50)], host="node-2")
    put_points(db.client, [(0, 1000, 500)], pid=9)
    (mine,) = [one for one in seen(db).processes if (one.host, one.pid) == (HOST, PID)]
    assert lanes(db.client, [mine], micros(0), micros(1000)).lanes == [Lane(mine.key, "major", [5])]


@pytest.mark.parametrize("seconds", [1, 299, 300, 301, 3600, 86_400, 604_800])
def test_bins_are_whole_seconds_and_not_too_many(seconds: int) -> None:
    step = step_of(0, seconds * 1_000_000)
    assert step % 1_000_000 == 0
    assert seconds * 1_000_000 / step <= MOST_BINS


def test_the_last_moment_of_a_range_and_a_day(db: Database) -> None:
    """ClickHouse leaves out parts by whole seconds where a time is compared with one."""
    put_gauge(db.client, [(999.999, 0.5)], "hw.gpu.utilization", GPU)
    assert seen(db, 1000).gpus[0].figures == {"busy": 0.5}
    assert seen(db, 999.999).gpus == []


def test_when_probes_told_anything(db: Database) -> None:
    assert last_told(db.client) is None
    put_points(db.client, [(0, 1000, 0.1), (4000, 5000, 0.1)], "hitmap.probe.cpu.time", {}, pid=None)
    assert last_told(db.client) == (micros(1000), micros(5000))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    points=st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 1000)), min_size=1, max_size=20),
    begin=st.integers(0, 3000),
    length=st.integers(1000, 20_000),
)
def test_bins_hold_what_was_counted_all_of_it_and_once(
    db: Database, points: list[tuple[int, int]], begin: int, length: int
) -> None:
    pid, at, told = next(_numbers), 0, []
    for width, value in points:
        told.append((float(at), float(at + width), float(value)))
        at += width
    put_points(db.client, told, pid=pid)
    end = begin + length
    expected = sum(v * max(0.0, min(b, end) - max(a, begin)) / (b - a) for a, b, v in told)
    mine = [Watched(HOST, pid, "python3")]
    found = lanes(db.client, mine, micros(begin), micros(end))
    values = next((lane.values for lane in found.lanes), [])
    covered = [
        max(0.0, min(begin + 1000 * (n + 1), end, at) - (begin + 1000 * n)) for n in range(len(values))
    ]
    counted = sum((value or 0.0) * ms / 1000 for value, ms in zip(values, covered, strict=True))
    assert counted == pytest.approx(expected, abs=1e-6)
    assert [value is not None for value in values] == [ms > 0 for ms in covered]


def test_figures_are_of_metrics_that_there_are() -> None:
    for figure in FIGURES.values():
        assert figure.metric in BY_NAME
        assert not figure.over or FIGURES[figure.over].row.kind == figure.row.kind
        known = {*figure.row.attributes, "hitmap.gpu.kernel"}
        assert set(figure.where or {}) <= known
    assert len(FIGURES) == len(OF_PROCESSES) + len(OF_GPUS) + len(OF_PROBES), "names are given once"
