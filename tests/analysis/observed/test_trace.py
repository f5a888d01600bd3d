"""A request with all that was seen of it: its spans in order, whose processes, and what nothing tells."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from analysis.observed.request import trace
from analysis.observed.spans import spans
from cachemodel.errors import UserError
from cachemodel.layers import ObservationLayer
from hitmap.cli import cli
from tests.analysis.observed.world import (
    HOST,
    MAJOR,
    PID,
    moment,
    put_points,
    put_request,
    put_span,
    watched,
)
from tests.databases import Database

THREAD_MAJOR = "hitmap.thread.page_faults.major"
OURS = {"host.name": HOST, "process.pid": str(PID)}


def planted(db: Database, **told: float) -> None:
    """A request whose client's span is above it, with a lookup and a prefill below."""
    put_request(db.client, "r1", 100, 300, span_id=0xB, prefill_us=150_000, prefix_us=50_000, observed=told)
    put_span(db.client, f"{0xA:016x}", "", "chat", 90, 310, service="client")
    put_span(db.client, f"{0xB:016x}", f"{0xA:016x}", "llm_request", 100, 300, resource=OURS, **told)
    put_span(
        db.client,
        f"{0xD:016x}",
        f"{0xB:016x}",
        "prefill",
        150,
        300,
        resource=OURS,
        **{"hitmap.layer": "prefill"},
    )
    put_span(
        db.client,
        f"{0xC:016x}",
        f"{0xB:016x}",
        "lookup",
        100,
        150,
        resource=OURS,
        **{"hitmap.layer": "prefix", **told},
    )
    put_span(db.client, f"{0xE:016x}", "", "somebody else's", 100, 150, trace="u")


def test_spans_stand_below_their_parents_in_order_of_time(db: Database) -> None:
    planted(db, **{THREAD_MAJOR: 256.0})
    told = trace(db.client, "r1")
    assert [(s.name, s.depth, s.own, s.layer) for s in told.spans] == [
        ("chat", 0, False, ""),
        ("llm_request", 1, True, ""),
        ("lookup", 2, True, "prefix"),
        ("prefill", 2, True, "prefill"),
    ]
    assert [(s.start_us, s.duration_us) for s in told.spans] == [
        (-10_000, 220_000),
        (0, 200_000),
        (0, 50_000),
        (50_000, 150_000),
    ]
    assert told.spans[2].counted == {THREAD_MAJOR: 256.0}
    assert THREAD_MAJOR not in told.spans[2].attributes


def test_what_its_own_threads_counted_is_all_its_own(db: Database) -> None:
    planted(db, **{THREAD_MAJOR: 256.0})
    (one,) = trace(db.client, "r1").observed
    assert (one.layer, one.metric, one.attributes) == (
        ObservationLayer.KERNEL,
        "process.paging.faults",
        MAJOR,
    )
    assert (one.value, one.share, one.estimate, one.of) == (256.0, 1.0, 256.0, "the request")


def test_the_process_is_the_one_that_its_spans_name(db: Database) -> None:
    planted(db)
    watched(db.client)
    watched(db.client, pid=9)
    put_points(
        db.client,
        [(100, 300, 12)],
        "hitmap.tlb_flushes",
        {"hitmap.tlb_flush.reason": "remote_ipi_send"},
        source="ebpf",
    )
    put_points(
        db.client,
        [(100, 300, 99)],
        "hitmap.tlb_flushes",
        {"hitmap.tlb_flush.reason": "remote_ipi_send"},
        pid=9,
    )
    told = trace(db.client, "r1")
    assert [(p.host, p.pid, p.by) for p in told.processes] == [(HOST, PID, "spans")]
    (flushes,) = [one for one in told.observed if one.metric == "hitmap.tlb_flushes"]
    assert (flushes.value, flushes.source, flushes.layer) == (12, "ebpf", ObservationLayer.KERNEL)
    assert ObservationLayer.KERNEL not in {gap.layer for gap in told.missing}


def test_a_name_given_to_the_probe_finds_the_process(db: Database) -> None:
    put_request(db.client, "r1", 100, 300)
    watched(db.client, **{"hitmap.server": "s"})
    watched(db.client, pid=9, **{"hitmap.server": "another"})
    assert [(p.pid, p.by) for p in trace(db.client, "r1").processes] == [(PID, "name")]


def test_a_port_finds_the_process_unless_two_hosts_have_it(db: Database) -> None:
    put_request(db.client, "r1", 100, 300)
    db.client.insert(
        "servers",
        [[moment(-5000), "s", "vllm", "http://127.0.0.1:8000/"]],
        column_names=["time", "server", "kind", "url"],
    )
    watched(db.client, **{"server.port": "8000"})
    watched(db.client, pid=9, **{"server.port": "9000"})
    assert [(p.pid, p.by) for p in trace(db.client, "r1").processes] == [(PID, "port")]
    watched(db.client, pid=5, host="node-2", **{"server.port": "8000"})
    assert trace(db.client, "r1").processes == []


def test_what_nothing_tells_is_said_with_what_would(db: Database) -> None:
    put_request(db.client, "r1", 100, 300)
    told = trace(db.client, "r1")
    assert {gap.layer for gap in told.missing} == set(ObservationLayer)
    assert all("hitmap" in gap.do for gap in told.missing)
    assert told.observed == []


def test_spans_in_a_ring_and_without_their_parent_are_shown_once(db: Database) -> None:
    for one, parent in (("1", "2"), ("2", "1"), ("3", "9"), ("4", "4")):
        put_span(db.client, one * 16, parent * 16, f"s{one}", 100, 200)
    told = spans(db.client, int("3" * 16, 16), round(moment(100).timestamp() * 1e6))
    assert sorted(span.name for span in told.spans) == ["s1", "s2", "s3", "s4"]


def test_a_request_that_is_not_there(db: Database) -> None:
    with pytest.raises(UserError, match="no request"):
        trace(db.client, "nothing")


def test_the_command_prints_all_five_layers_and_json(db: Database) -> None:
    planted(db, **{THREAD_MAJOR: 256.0})
    watched(db.client)
    shown = CliRunner().invoke(cli, ["trace", "--store", db.dsn, "r1"], env={"COLUMNS": "140"})
    assert shown.exit_code == 0
    assert "It took 200 ms: prefill 150, prefix 50.0 ms." in shown.output
    assert "256 major faults" in shown.output
    for layer in ("kernel", "runtime", "hardware", "microarchitecture"):
        assert layer in shown.output
    told = json.loads(CliRunner().invoke(cli, ["trace", "--store", db.dsn, "r1", "--json"]).output)
    assert told["observed"][0]["value"] == 256.0
    assert [span["name"] for span in told["spans"]] == ["chat", "llm_request", "lookup", "prefill"]
    page = CliRunner().invoke(cli, ["trace", "--store", db.dsn, "r1", "--format", "markdown"]).output
    assert "| kernel | page faults, major | 256 |" in page
