"""Each rule that hitmap brings: a planted breach fires when and as high as planted, a near miss is silent, and where
nothing is told it says so."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from clickhouse_connect.driver.client import Client
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from analysis.alerts.evaluate import evaluate
from analysis.alerts.model import Alert, Verdict
from analysis.alerts.table import rules
from cachemodel.observed import (
    BY_NAME,
    EXECUTABLE,
    GPU_ID,
    GPU_NAME,
    HOST,
    PID,
    SCOPE,
    SERVER,
    SERVICE,
    SHOOTDOWNS,
    SOURCE,
    TLB_REASONS,
)
from tests.analysis.alerts import planted
from tests.analysis.alerts.planted import LATER, START, VALUES, second
from tests.collector.spans import insert
from tests.databases import Database

MAJOR, MINOR = ({"system.paging.fault.type": kind, "hitmap.source": "procfs"} for kind in ("major", "minor"))
FLUSHES = [{"hitmap.tlb_flush.reason": reason, "hitmap.source": "ebpf"} for reason in TLB_REASONS]
STORM = [one for one in FLUSHES if one["hitmap.tlb_flush.reason"] in SHOOTDOWNS]
CALM = [one for one in FLUSHES if one not in STORM]
TOUCHED = [
    {"hitmap.fault.mode": "user", "hitmap.fault.access": a, "hitmap.source": "ebpf"}
    for a in ("read", "write")
]


@dataclass(frozen=True)
class Case:
    """plant: puts values in. worse: breaches, over `windows` windows. near: just not, as far as it is told; it is the
    threshold where nothing else is said. samples: of each breached window. labels: of the alert about server s."""

    rule: str
    plant: Callable[[Client, str, VALUES], None]
    worse: float
    near: float
    well: float
    samples: float
    labels: dict[str, str] = field(default_factory=dict)


KERNEL = {"gpu": "GPU-7", "gpu_name": "H200", "kernel": "gemm"}
PROCESS = {"host": "node-1", "pid": "42", "executable": "python3"}
CASES = [
    Case("hit-ratio-low", planted.requests, 0.4, 0.85, 0.95, 2000),
    Case("hit-ratio-low", planted.counted_hits, 0.4, 0.85, 0.95, 2000),
    Case("queue-grows", planted.queue, 9, 5, -3, 3),
    Case("preemption-storm", planted.preemptions, 1.5, 0.5, 0, 2),
    Case("kv-usage-high", planted.usage, 0.99, 0.95, 0.5, 4),
    Case("kv-thrash", planted.thrash, 0.6, 0.2, 0.0, 200),
    Case("silent-publisher", planted.publisher, 0, 1, 30, 20_000),
    Case("major-fault-storm", planted.process("process.paging.faults", MAJOR), 250, 100, 0, 5, PROCESS),
    Case("fault-storm", planted.process("process.paging.faults", MAJOR, MINOR), 80_000, 50_000, 10, 10, PROCESS),
    Case("fault-storm", planted.process("hitmap.page_faults", *TOUCHED), 80_000, 50_000, 10, 10, PROCESS),
    Case("tlb-shootdown-storm", planted.process("hitmap.tlb_flushes", *STORM), 20_000, 10_000, 10, 5, PROCESS),
    Case("tensor-miss-ratio-high", planted.kernels, 0.5, 0.32, 0.1, 3, KERNEL),
]  # fmt: skip
EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{CASES.index(case)}")
RULES = {rule.id: rule for rule in rules()}


def judge(db: Database, id: str, seconds: float, begin: float = 0, *, hold_s: int | None = None) -> Verdict:
    """hold_s: instead of the rule's own."""
    rule = RULES[id] if hold_s is None else replace(RULES[id], hold_s=hold_s)
    report = evaluate(db.client, second(begin), second(seconds), [rule], now=LATER)
    (verdict,) = report.verdicts
    assert verdict.error == ""
    return verdict


def needed(case: Case) -> int:
    """The windows that make an alert of this rule."""
    return max(1, -(-RULES[case.rule].hold_s // RULES[case.rule].window_s))


@EVERY
def test_a_planted_breach_fires_and_tells_when_and_how_far(db: Database, case: Case) -> None:
    """Two windows are well, as many breach as are needed and one more, the second of them worst, then all is well. The
    other server is well throughout."""
    rule, count = RULES[case.rule], needed(case) + 1
    middle = (case.worse + case.near) / 2 if rule.unit != "events" else case.worse
    breach = [case.worse if i == 1 else middle for i in range(count)]
    values = [case.well, case.well, *breach, case.well]
    case.plant(db.client, "s", values)
    case.plant(db.client, "other", [case.well] * len(values))
    verdict = judge(db, case.rule, len(values) * rule.window_s)
    (alert,) = verdict.alerts
    assert alert.labels == _labels(case, "s")
    assert alert.start == second(2 * rule.window_s)
    assert alert.end == second((2 + count) * rule.window_s)
    assert alert.worst == pytest.approx(case.worse, rel=0.01)
    assert alert.worst_at == second((3 if rule.unit != "events" else 2) * rule.window_s)
    assert (alert.windows, alert.state) == (count, "resolved")
    assert alert.samples == pytest.approx(count * case.samples)
    assert {tuple(subject.labels.items()) for subject in verdict.subjects} == {
        tuple(_labels(case, server).items()) for server in ("s", "other")
    }
    assert all(subject.windows == len(values) for subject in verdict.subjects)


@EVERY
def test_a_near_miss_is_silent(db: Database, case: Case) -> None:
    """At the threshold nothing fires; nor do breaches that do not last."""
    count = needed(case)
    short = [case.worse] * (count - 1) if count > 1 else []
    values = [case.near] * (count + 2) + [case.well, *short, case.well]
    case.plant(db.client, "s", values)
    verdict = judge(db, case.rule, len(values) * RULES[case.rule].window_s)
    assert verdict.alerts == ()
    (subject,) = verdict.subjects
    assert subject.windows == len(values)
    assert verdict.no_data == ""


@pytest.mark.parametrize("id", RULES)
def test_without_data_a_rule_says_so_and_what_it_takes(db: Database, id: str) -> None:
    verdict = judge(db, id, 600)
    assert (verdict.alerts, verdict.subjects) == ((), ())
    assert verdict.no_data == f"it takes {RULES[id].needs}"
    assert "hitmap " in verdict.no_data


@EVERY
def test_data_outside_the_range_is_no_data(db: Database, case: Case) -> None:
    rule = RULES[case.rule]
    case.plant(db.client, "s", [case.worse] * (needed(case) + 1))
    verdict = judge(db, case.rule, 7200, begin=3600)
    assert (verdict.alerts, verdict.subjects, bool(verdict.no_data)) == ((), (), True)
    assert rule.hold_s < 3600


def _labels(case: Case, server: str) -> dict[str, str]:
    if case.rule == "tensor-miss-ratio-high":
        return {"host": server, **case.labels}
    return {**case.labels, "server": server}


def only(verdict: Verdict) -> Alert:
    (alert,) = verdict.alerts
    return alert


def test_a_window_with_few_tokens_is_neither_a_breach_nor_an_all_clear(db: Database) -> None:
    planted.requests(db.client, "s", [0.1] * 4)
    planted.requests(db.client, "s", [None] * 4 + [1.0], tokens=900)
    planted.requests(db.client, "s", [None] * 5 + [0.1] * 4)
    verdict = judge(db, "hit-ratio-low", 9)
    alert = only(verdict)
    assert (alert.start, alert.end, alert.windows, alert.samples) == (START, second(9), 8, 16_000)
    assert verdict.thin == 1


def test_where_all_windows_are_thin_that_is_the_reason(db: Database) -> None:
    planted.requests(db.client, "s", [0.1] * 9, tokens=900)
    verdict = judge(db, "hit-ratio-low", 9)
    assert (verdict.alerts, verdict.thin) == ((), 9)
    assert verdict.no_data == "9 windows, none with 1,000 prompt tokens"


def test_requests_go_before_counters_of_the_same_server(db: Database) -> None:
    """Counters say that nothing hits; the requests know better. Of the other server there are counters alone."""
    planted.requests(db.client, "s", [0.95] * 8)
    planted.counted_hits(db.client, "s", [0.0] * 8)
    planted.counted_hits(db.client, "other", [0.0] * 8)
    assert only(judge(db, "hit-ratio-low", 8)).labels == {"server": "other"}


def test_counters_that_cannot_be_true_are_not_judged(db: Database) -> None:
    planted.counted_hits(db.client, "s", [1.2] * 8)
    verdict = judge(db, "hit-ratio-low", 8)
    assert (verdict.alerts, verdict.subjects, verdict.thin) == ((), (), 8)


def test_hits_of_the_device_cache_and_of_the_connector_add_up(db: Database) -> None:
    for metric, grown in (
        ("prefix_cache.query_tokens", 2000),
        ("prefix_cache.hit_tokens", 1000),
        ("external_cache.hit_tokens", 900),
    ):
        planted.scrapes(db.client, "s", metric, {n + 0.5: (1, grown) for n in range(8)})
    assert judge(db, "hit-ratio-low", 8).alerts == ()


def test_events_counted_by_two_sources_or_by_thread_too_are_counted_once(db: Database) -> None:
    """The process as a whole, its two threads, and another source: 60 major faults a second each, the limit is 100."""
    told = [(tick, tick + 0.9, 60.0) for tick in range(20)]
    half = [(begin, end, value / 2) for begin, end, value in told]
    planted.points(db.client, "s", "process.paging.faults", MAJOR, told)
    for thread in ("1", "2"):
        planted.points(db.client, "s", "process.paging.faults", {**MAJOR, "thread.id": thread}, half)
    planted.points(db.client, "s", "process.paging.faults", {**MAJOR, "hitmap.source": "perf"}, told)
    assert judge(db, "major-fault-storm", 20).alerts == ()
    planted.points(db.client, "s", "process.paging.faults", {**MAJOR, "thread.id": "3"}, told)
    assert only(judge(db, "major-fault-storm", 20)).worst == pytest.approx(120)


def test_a_point_that_reaches_into_the_window_does_not_raise_its_rate(db: Database) -> None:
    """Points of 4 s with 360 faults, 90 a second: two of them end in the first window of 5 s."""
    told = [(begin, begin + 4.0, 360.0) for begin in (-4, 0.001, 4.002, 8.003, 12.004)]
    planted.points(db.client, "s", "process.paging.faults", MAJOR, told)
    verdict = judge(db, "major-fault-storm", 15, hold_s=0)
    assert (verdict.alerts, verdict.subjects[0].windows) == ((), 3)


def test_a_short_point_is_not_taken_for_the_whole_window(db: Database) -> None:
    """100 faults in 10 ms are 20 a second of a window of 5 s, not 10,000."""
    planted.points(
        db.client, "s", "process.paging.faults", MAJOR, [(5 * n, 5 * n + 0.01, 100.0) for n in range(4)]
    )
    assert judge(db, "major-fault-storm", 20).alerts == ()


def test_what_a_probe_sends_over_otlp_is_judged(db: Database) -> None:
    """The export itself, through what the collector's writer does with it: a storm of shootdowns, a tensor kernel."""
    export = ExportMetricsServiceRequest()
    resource = export.resource_metrics.add()
    for name, value in ((HOST, "node-1"), (EXECUTABLE, "python3"), (SERVER, "s"), ("service.name", SERVICE)):
        resource.resource.attributes.add(key=name).value.string_value = value
    resource.resource.attributes.add(key=PID).value.int_value = 42
    flushes, ratio = (resource.scope_metrics.add(scope={"name": SCOPE}).metrics.add() for _ in range(2))
    flushes.name, ratio.name = "hitmap.tlb_flushes", "hitmap.gpu.tensor.miss_ratio"
    flushes.sum.aggregation_temporality, flushes.sum.is_monotonic = 1, True
    for tick in range(10):
        begin, end = (int((START.timestamp() + at) * 1e9) for at in (tick, tick + 0.999))
        point = flushes.sum.data_points.add(start_time_unix_nano=begin, time_unix_nano=end, as_int=30_000)
        point.attributes.add(key="hitmap.tlb_flush.reason").value.string_value = "remote_ipi_send"
        point.attributes.add(key=SOURCE).value.string_value = "ebpf"
        burst = ratio.gauge.data_points.add(time_unix_nano=end, as_double=0.4)
        for name, value in ((GPU_ID, "GPU-7"), (GPU_NAME, "H200"), ("hitmap.gpu.kernel", "gemm")):
            burst.attributes.add(key=name).value.string_value = value
    insert(db.client, "metrics", "probe", export.SerializeToString())
    storm, kernel = (only(judge(db, id, 10)) for id in ("tlb-shootdown-storm", "tensor-miss-ratio-high"))
    assert (storm.labels, storm.worst) == ({**PROCESS, "server": "s"}, pytest.approx(30_000))
    assert (kernel.labels, kernel.worst, kernel.samples) == ({"host": "node-1", **KERNEL}, 0.4, 10)


def test_cumulative_sums_and_those_of_others_are_not_read_as_differences(db: Database) -> None:
    told = [(tick, tick + 0.9, 9e6) for tick in range(20)]
    planted.points(db.client, "s", "process.paging.faults", MAJOR, told, temporality=2)
    planted.points(db.client, "s", "process.paging.faults", MAJOR, told, service="hostmetrics")
    assert judge(db, "major-fault-storm", 20).no_data


def test_other_flushes_and_minor_faults_are_no_storm(db: Database) -> None:
    told = [(tick, tick + 0.9, 90_000.0) for tick in range(20)]
    for one in CALM:
        planted.points(db.client, "s", "hitmap.tlb_flushes", one, told)
    planted.points(db.client, "s", "process.paging.faults", MINOR, told)
    assert judge(db, "tlb-shootdown-storm", 20).alerts == ()
    assert judge(db, "major-fault-storm", 20).alerts == ()
    assert only(judge(db, "fault-storm", 20)).worst == pytest.approx(90_000)


def test_each_process_is_judged_by_itself(db: Database) -> None:
    told = [(tick, tick + 0.9, 60.0) for tick in range(20)]
    for pid in ("1", "2"):
        planted.points(db.client, "s", "process.paging.faults", MAJOR, told, pid=pid)
    assert judge(db, "major-fault-storm", 20).alerts == ()
    assert [s.labels["pid"] for s in judge(db, "major-fault-storm", 20).subjects] == ["1", "2"]


def test_blocks_evicted_long_ago_or_from_another_tier_are_no_thrash(db: Database) -> None:
    columns = ["time", "server", "source", "rank", "epoch", "seq", "pos", "action", "block", "medium", "tier"]
    rows = []
    for block in range(400):
        for when, action, tier in ((-90, "removed", "GPU"), (10, "removed", "CPU"), (30, "stored", "GPU")):
            rows.append([second(when), "s", "kv", 0, START, len(rows), 1, action, block, tier, "device"])
    db.client.insert("kv_events", rows, column_names=columns)
    verdict = judge(db, "kv-thrash", 60)
    assert (verdict.alerts, verdict.subjects[0].windows) == ((), 1)


def test_a_block_evicted_just_before_the_range_counts(db: Database) -> None:
    columns = ["time", "server", "source", "rank", "epoch", "seq", "pos", "action", "block", "medium", "tier"]
    rows = []
    for when, action in ((-20, "removed"), (20, "stored")):
        for block in range(200):
            rows.append([second(when), "s", "kv", 0, START, len(rows), 1, action, block, "GPU", "device"])
    db.client.insert("kv_events", rows, column_names=columns)
    alert = only(judge(db, "kv-thrash", 60, hold_s=0))
    assert (alert.worst, alert.start, alert.end) == (1.0, START, second(60))


def test_preemptions_that_requests_tell_serve_where_no_counter_does(db: Database) -> None:
    rows = [[second(n * 3), "s", str(n), n + 1, 3] for n in range(40)]
    db.client.insert(
        "requests", rows, column_names=["time", "server", "request_id", "span_id", "preemptions"]
    )
    alert = only(judge(db, "preemption-storm", 120))
    assert (alert.worst, alert.windows, alert.samples) == (pytest.approx(1.0), 2, 40)


def test_a_publisher_that_was_never_switched_on_is_not_silent(db: Database) -> None:
    for server, signals in (
        ("s", [("KV-cache events", False, "none", "a flag")]),
        ("t", [("metrics", True, "", "")]),
    ):
        db.client.insert("servers", [[START, server, signals]], column_names=["time", "server", "signals"])
        planted.requests(db.client, server, [0.0] * 5, window=60, tokens=20_000)
    assert judge(db, "silent-publisher", 300).no_data


def test_prompts_that_were_served_from_the_cache_prove_no_silence(db: Database) -> None:
    planted.publisher(db.client, "s", [None])
    planted.requests(db.client, "s", [1.0] * 5, window=60, tokens=20_000)
    assert judge(db, "silent-publisher", 300).alerts == ()


def test_what_explains_an_alert_can_be_pasted(db: Database) -> None:
    """The slowest request of the worst window, the misses of the time, and the report before and after."""
    planted.requests(db.client, "blue, it's", [0.95, 0.4, 0.3, 0.4, 0.4, 0.4])
    alert = only(judge(db, "hit-ratio-low", 6))
    assert alert.worst_at == second(2)
    assert alert.look == (
        "hitmap misses '2026-11-29T12:00:01/2026-11-29T12:00:06,server=blue**it'\"'\"'s'",
        "hitmap trace 'blue, it'\"'\"'s-2-0'",
        "hitmap report --a '2026-11-29T11:55:01/2026-11-29T12:00:01,server=blue**it'\"'\"'s'"
        " --b '2026-11-29T12:00:01/2026-11-29T12:00:06,server=blue**it'\"'\"'s'",
    )


def test_all_metrics_of_the_rules_are_those_that_probes_send_or_servers_tell() -> None:
    told = {
        metric.name
        for dialect in ("vllm", "sglang", "engine", "trtllm", "llama_cpp")
        for metric in importlib.import_module(f"collector.dialects.{dialect}.metrics").METRICS
    }
    for rule in rules():
        assert set(rule.metrics) <= told | BY_NAME.keys(), rule.id
