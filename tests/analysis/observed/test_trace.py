"""A request with all that was seen of it: its spans in order, whose processes, and what nothing tells."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from analysis.observed import words
from analysis.observed.model import Span
from analysis.observed.request import trace
from analysis.observed.spans import shown as shown_spans
from analysis.observed.spans import spans
from cachemodel.errors import UserError
from cachemodel.layers import ObservationLayer
from hitmap.cli import cli
from store.client import connect
from store.embedded import Embedded
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


def micros(ms: float) -> int:
    return round(moment(ms).timestamp() * 1e6)


def attached(db: Database, port: int = 8000) -> None:
    db.client.insert(
        "servers",
        [[moment(-5000), "s", "vllm", f"http://127.0.0.1:{port}/"]],
        column_names=["time", "server", "kind", "url"],
    )


def shown(db: Database, *more: str, columns: int = 110) -> str:
    result = CliRunner().invoke(
        cli, ["trace", "--store", db.dsn, *more], env={"COLUMNS": str(columns)}, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


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
    attached(db)
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
    told = spans(db.client, int("3" * 16, 16), micros(100), micros(200))
    assert sorted(span.name for span in told.spans) == ["s1", "s2", "s3", "s4"]


def test_a_request_that_is_not_there(db: Database) -> None:
    with pytest.raises(UserError, match="no request"):
        trace(db.client, "nothing")


def test_the_command_prints_all_five_layers_and_json(db: Database) -> None:
    planted(db, **{THREAD_MAJOR: 256.0})
    watched(db.client)
    shown = CliRunner().invoke(cli, ["trace", "--store", db.dsn, "r1"], env={"COLUMNS": "140"})
    assert shown.exit_code == 0
    assert "It took 200 ms, 100 of them to the first token: prefill 150, prefix 50.0 ms." in shown.output
    assert "256 major faults" in shown.output
    for layer in ("kernel", "runtime", "hardware", "microarchitecture"):
        assert layer in shown.output
    told = json.loads(CliRunner().invoke(cli, ["trace", "--store", db.dsn, "r1", "--json"]).output)
    assert told["observed"][0]["value"] == 256.0
    assert [span["name"] for span in told["spans"]] == ["chat", "llm_request", "lookup", "prefill"]
    page = CliRunner().invoke(cli, ["trace", "--store", db.dsn, "r1", "--format", "markdown"]).output
    assert "| kernel | page faults, major | 256 |" in page


def test_a_process_that_works_for_one_with_spans_is_watched_with_it(db: Database) -> None:
    """The engine's core makes no spans of a request: it is known by the port of the front end that started it."""
    planted(db)
    watched(db.client, **{"server.port": "8000"})
    watched(db.client, pid=PID + 1, **{"server.port": "8000"})
    watched(db.client, pid=9, host="node-2", **{"server.port": "8000"})
    watched(db.client, pid=10, **{"server.port": "9000"})
    assert [(p.pid, p.by) for p in trace(db.client, "r1").processes] == [(PID, "spans"), (PID + 1, "port")]


def test_a_server_below_another_is_not_the_process_of_the_one_above(db: Database) -> None:
    """A gateway's request holds a server's spans: what that one's process counts is of all its callers."""
    put_request(db.client, "g1", 100, 300, server="gateway", span_id=0x1A)
    gateway = {"host.name": HOST, "process.pid": "77"}
    put_span(db.client, f"{0x1A:016x}", "", "POST", 100, 300, service="gateway", resource=gateway)
    put_span(db.client, f"{0x1B:016x}", f"{0x1A:016x}", "llm_request", 120, 280, resource=OURS)
    watched(db.client)
    watched(db.client, pid=77)
    assert [p.pid for p in trace(db.client, "g1").processes] == [77]


def in_container(host: str, pid: int, name: str, pod: str = "") -> dict[str, str]:
    """What a probe on the node tells of a process in there."""
    inside = {"hitmap.container.host.name": host, "hitmap.container.process.pid": str(pid)}
    return {**inside, "container.id": name, **({"k8s.pod.uid": pod} if pod else {})}


def node(db: Database) -> None:
    """Two pods of one node, each with a server of pid 1 and what it started at port 8000, one with a sidecar."""
    watched(db.client, pid=101, **in_container("vllm-0", 1, "c0", "p0"), **{"server.port": "8000"})
    watched(db.client, pid=102, **in_container("vllm-0", 2, "c0", "p0"), **{"server.port": "8000"})
    watched(db.client, pid=103, **in_container("vllm-0", 1, "sidecar", "p0"), **{"server.port": "15000"})
    watched(db.client, pid=201, **in_container("vllm-1", 1, "c1", "p1"), **{"server.port": "8000"})
    watched(db.client, pid=202, **in_container("vllm-1", 2, "c1", "p1"), **{"server.port": "8000"})


@pytest.mark.parametrize(
    ("resource", "pids"),
    [
        ({"host.name": "vllm-0", "process.pid": "2", "container.id": "c0"}, [(101, "spans"), (102, "spans")]),
        ({"host.name": "vllm-1", "process.pid": "1"}, [(201, "spans"), (202, "port")]),
        ({"host.name": "vllm-1", "process.pid": "201"}, []),
        ({"container.id": "c1"}, [(201, "spans"), (202, "spans")]),
        ({"container.id": "c0", "k8s.pod.uid": "p0"}, [(101, "spans"), (102, "spans")]),
        ({"k8s.pod.uid": "p0"}, [(101, "spans"), (102, "spans"), (103, "spans")]),
        ({"k8s.pod.uid": "p2"}, []),
        ({"container.id": "", "k8s.pod.uid": ""}, []),
    ],
)
def test_spans_from_a_container_name_processes_as_it_knows_them(
    db: Database, resource: dict[str, str], pids: list[tuple[int, str]]
) -> None:
    node(db)
    put_request(db.client, "r1", 100, 300, span_id=0xB)
    put_span(db.client, f"{0xB:016x}", "", "llm_request", 100, 300, resource=resource)
    assert [(p.pid, p.by) for p in trace(db.client, "r1").processes] == pids
    put_request(db.client, "r2", 100, 300)  # no span of its own: those of its server are looked for
    assert [(p.pid, p.by) for p in trace(db.client, "r2").processes] == pids


def test_two_containers_at_the_port_of_a_server_name_nobody(db: Database) -> None:
    node(db)
    attached(db)
    put_request(db.client, "r1", 100, 300)
    assert trace(db.client, "r1").processes == []


def test_a_sender_that_is_no_probe_of_ours_may_say_anything(db: Database) -> None:
    planted(db)
    for pid in ("", "abc", "-1", "99999999999999999999"):
        watched(db.client, **{"process.pid": pid})
    put_span(
        db.client,
        f"{0xF:016x}",
        f"{0xB:016x}",
        "odd",
        150,
        160,
        resource={"host.name": HOST, "process.pid": "abc"},
        **{THREAD_MAJOR: "many", "hitmap.thread.cpu_us": "nan", "hitmap.thread.off_cpu_us": "1e400"},
    )
    told = trace(db.client, "r1")
    assert told.processes == []
    (odd,) = [span for span in told.spans if span.name == "odd"]
    assert odd.counted == {}
    assert odd.attributes[THREAD_MAJOR] == "many"


def test_what_a_row_of_no_number_counted_is_not_told(db: Database) -> None:
    counted = {
        THREAD_MAJOR: float("nan"),
        "hitmap.thread.page_faults.minor": -1.0,
        "hitmap.thread.cpu_us": 3.0,
    }
    planted(db, **counted)
    assert [one.metric for one in trace(db.client, "r1").observed] == ["process.cpu.time"]


def test_of_a_trace_of_thousands_of_spans_the_request_and_its_nearest_are_there(db: Database) -> None:
    """An agent's trace: a thousand calls before this one, and as many after it."""
    put_request(db.client, "r1", 100_000, 100_200, span_id=0xB)
    root = f"{1:016x}"
    db.client.command(
        """INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, Duration)
        SELECT fromUnixTimestamp64Milli({begin:Int64} + toInt64(number) * 40), 't',
               lower(leftPad(hex(number + 100000), 16, '0')), {root:String}, 'step', 'agent', 30000000
        FROM numbers(5000)""",
        parameters={"begin": micros(0) // 1000, "root": root},
    )
    put_span(db.client, root, "", "agent", 0, 200_000, service="agent")
    put_span(db.client, f"{0xA:016x}", root, "chat", 99_990, 100_210, service="client")
    put_span(db.client, f"{0xB:016x}", f"{0xA:016x}", "llm_request", 100_000, 100_200)
    put_span(db.client, f"{0xC:016x}", f"{0xB:016x}", "prefill", 100_000, 100_100)
    told = trace(db.client, "r1")
    assert len(told.spans) == 1000
    assert [span.name for span in told.spans if span.own] == ["llm_request", "prefill"]
    assert [span.depth for span in told.spans if span.name in ("agent", "chat", "llm_request")] == [0, 1, 2]
    assert "its trace has 5,004 spans: the 1,000 nearest to it in time are here" in told.notes
    nearest = shown_spans(told.spans, 20)
    assert [span.name for span in nearest if span.name != "step"] == [
        "agent",
        "chat",
        "llm_request",
        "prefill",
    ]
    assert max(abs(span.start_us) for span in nearest if span.name == "step") < 500_000
    assert "Its spans, 60 of 1,000" in shown(db, "r1")


def test_a_request_of_thousands_of_spans_keeps_itself_and_what_is_above(db: Database) -> None:
    spans_of = [
        Span("a", "", "client", "c", -10, 1000, 0),
        Span("b", "a", "request", "s", 0, 900, 1, own=True),
        *(Span(f"p{n}", "b", "pass", "s", float(n), 1, 2, own=True) for n in range(500)),
    ]
    kept = shown_spans(spans_of, 60)
    assert len(kept) == 60
    assert [span.span_id for span in kept[:2]] == ["a", "b"]
    assert shown_spans(spans_of[:3], 60) == spans_of[:3]
    assert shown_spans([], 60) == []


def test_a_recording_that_was_played_twice_shows_the_spans_of_its_last_time(db: Database) -> None:
    put_request(db.client, "r1", 700_100, 700_300, span_id=0xB)
    for played in (0, 700_000):
        put_span(db.client, f"{0xB:016x}", "", "llm_request", played + 100, played + 300)
    assert [span.start_us for span in trace(db.client, "r1").spans] == [0]


def test_clocks_that_disagree_are_said(db: Database) -> None:
    put_request(db.client, "r1", 100, 300, span_id=0xB)
    put_span(db.client, f"{0xA:016x}", "", "chat", 150, 360, service="client")
    put_span(db.client, f"{0xB:016x}", f"{0xA:016x}", "llm_request", 100, 300)
    told = trace(db.client, "r1")
    assert told.notes == ["the clock of s is at least 50.0 ms behind that of client"]
    assert "50.0 ms behind" in shown(db, "r1")


def test_the_command_names_the_port_of_the_server_and_folds_what_is_the_same(db: Database) -> None:
    put_request(db.client, "r1", 100, 300)
    attached(db, 8123)
    text = " ".join(shown(db, "r1").split())
    assert (
        "runtime, kernel, hardware, microarchitecture: no probe watched its server's processes then;" in text
    )
    assert "sudo hitmap probe --port 8123 (" in text
    watched(db.client, **{"server.port": "8123"})
    text = " ".join(shown(db, "r1").split())
    assert (
        "runtime: CPU caches were not counted, or could not be; beside the server, run sudo hitmap probe --port 8123"
        " --pmu" in text
    )


def test_counters_that_stayed_0_are_one_line_and_rows_in_json(db: Database) -> None:
    planted(db)
    watched(db.client)
    put_points(db.client, [(0, 400, 0)])
    put_points(db.client, [(0, 400, 8)], attributes={"system.paging.fault.type": "minor"})
    lines = shown(db, "r1").splitlines()
    assert "  python3 (4711): page faults, major" in [line.rstrip() for line in lines]
    (row,) = [line for line in lines if "page faults, minor" in line]
    assert "4" in row.split()
    told = json.loads(shown(db, "r1", "--json"))
    (major,) = [one for one in told["observed"] if one["attributes"] == MAJOR]
    assert (major["value"], major["share"]) == (0, 1.0)


def test_one_point_of_a_process_alone_is_not_said_to_be_counted_for_the_request(db: Database) -> None:
    planted(db)
    put_points(db.client, [(0, 400, 8)])
    watched(db.client)
    (row,) = [line for line in shown(db, "r1").splitlines() if "page faults, major" in line]
    assert "100 %" in row
    assert "counted for it" not in row


@pytest.mark.parametrize("columns", [80, 110, 150])
def test_names_that_would_steer_a_terminal_do_not(db: Database, columns: int) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e[bold]x"
    put_request(db.client, evil, 100, 300, span_id=0xB, labels={"a": evil}, model=evil)
    put_span(db.client, f"{0xB:016x}", "", evil, 100, 300, resource=OURS, service=evil)
    watched(db.client, **{"process.executable.name": evil, "hitmap.server": "s"})
    output = shown(db, evil, columns=columns)
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert "[bold]x" in output
    page = shown(db, evil, "--format", "markdown")
    assert not {"\x1b", "\x07", "\u202e"} & set(page)


def test_a_request_of_which_only_a_log_tells(db: Database) -> None:
    attached(db)
    watched(db.client, **{"server.port": "8000"})
    put_request(db.client, "r1", 100, 300, e2e_us=None, ttft_us=None, client_e2e_us=812_000)
    told = trace(db.client, "r1")
    assert (told.e2e_us, told.together, told.observed) == (None, None, [])
    assert "its client waited 812 ms for all of it" in told.notes
    assert shown(db, "r1").startswith("r1: nothing tells how long it took.")


def test_a_request_that_took_no_time(db: Database) -> None:
    planted(db)
    put_request(db.client, "r0", 100, 100)
    watched(db.client)
    told = trace(db.client, "r0")
    assert told.observed == []
    assert "it took no time that its server could tell: nothing was counted meanwhile" in told.notes
    assert shown(db, "r0").startswith("It took 0.0 ms")


def test_ids_of_two_servers_that_are_or_begin_alike(db: Database) -> None:
    put_request(db.client, "chat-1", 100, 300)
    put_request(db.client, "chat-1", 100, 500, server="other")
    put_request(db.client, "chat-12", 100, 700, server="other")
    with pytest.raises(UserError, match="--server other or s"):
        trace(db.client, "chat-1")
    assert trace(db.client, "chat-1", "other").e2e_us == 400_000
    with pytest.raises(UserError, match="chat-1, chat-12"):
        trace(db.client, "chat")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (99.7, "{fault}", "100"),
        (12.5, "{fault}", "12"),
        (2.25, "{fault}", "2.2"),
        (1e-7, "{fault}", "< 0.01"),
        (0.0, "{fault}", "0"),
        (4e-5, "s", "40.0 us"),
        (0.0, "s", "0.0 ms"),
        (2_500, "us", "2.5 ms"),
        (3 << 30, "By", "3.0 GiB"),
        (0.321, "1", "32.1 %"),
    ],
)
def test_numbers_are_written_as_people_read_them(value: float, unit: str, text: str) -> None:
    assert words.amount(value, unit) == text


@pytest.mark.parametrize(
    ("metric", "attributes", "text"),
    [
        (
            "hitmap.tlb_flushes",
            {"hitmap.tlb_flush.reason": "remote_ipi_send"},
            "TLB flushes, remote IPI send",
        ),
        ("process.cpu.time", {"cpu.mode": "user"}, "CPU time, user"),
        ("hitmap.pmu.llc.misses", {}, "LLC misses"),
        ("hw.gpu.io", {"network.io.direction": "receive"}, "GPU I/O, receive"),
        ("hitmap.gpu.l2.misses", {"hitmap.gpu.kernel": "sm90_xmma_gemm"}, "GPU L2 misses, sm90_xmma_gemm"),
    ],
)
def test_metrics_are_called_as_people_call_them(metric: str, attributes: dict[str, str], text: str) -> None:
    assert words.name(metric, attributes) == text


def test_how_it_ended_and_preemptions_are_told(db: Database) -> None:
    put_request(db.client, "r1", 100, 300, finish_reason="abort", preemptions=3)
    told = trace(db.client, "r1")
    assert (told.finish_reason, told.preemptions) == ("abort", 3)
    assert "ended by abort, preempted 3 times" in shown(db, "r1")
    put_request(db.client, "r2", 100, 300)
    assert "ended by" not in shown(db, "r2")


def test_in_colour_it_is_drawn_as_well(db: Database) -> None:
    """There the prompt is asked for, which nothing tells of this request."""
    planted(db)
    result = CliRunner().invoke(
        cli, ["trace", "--store", db.dsn, "r1"], env={"COLUMNS": "110", "FORCE_COLOR": "1"}, color=True
    )
    assert result.exit_code == 0, result.output
    assert "\x1b[" in result.output
    assert "llm_request" in result.output


def test_requests_without_a_length_make_shares_too_high_and_are_said(db: Database) -> None:
    planted(db)
    watched(db.client)
    put_request(db.client, "r2", 150, 250, e2e_us=None)
    told = trace(db.client, "r1")
    assert told.together == 1.0
    assert (
        "1 more came meanwhile of which nothing tells how long they took: its shares may be too high"
        in told.notes
    )


def test_whoever_may_only_look_at_an_embedded_store_sees_all_of_it(
    db: Database, store_server: Embedded
) -> None:
    planted(db)
    watched(db.client)
    put_points(db.client, [(0, 400, 8)])
    where = f"{store_server.reader_dsn.rpartition('/')[0]}/{db.dsn.rpartition('/')[2]}"
    with connect(where) as reader:
        told = trace(reader, "r1")
    assert [one.value for one in told.observed] == [1 / 50, 4]


def test_a_process_has_no_part_where_the_requests_thread_counted_the_same(db: Database) -> None:
    """Nor of waits, which are mostly those of threads that have nothing to do; the probe's own cost is no layer."""
    planted(db, **{THREAD_MAJOR: 256.0})
    watched(db.client)
    put_points(db.client, [(100, 300, 106)])
    put_points(db.client, [(100, 300, 1.1)], "hitmap.off_cpu_time", {})
    put_points(
        db.client, [(100, 300, 7)], "hitmap.tlb_flushes", {"hitmap.tlb_flush.reason": "remote_ipi_send"}
    )
    put_points(db.client, [(100, 300, 0.5)], "hitmap.probe.cpu.time", {})
    told = trace(db.client, "r1")
    parts = {
        (one.metric, one.own): words.part(one, told)
        for one in told.observed
        if one.metric in ("process.paging.faults", "hitmap.off_cpu_time", "hitmap.tlb_flushes")
    }
    assert parts == {
        ("process.paging.faults", True): "256",
        ("process.paging.faults", False): "",
        ("hitmap.off_cpu_time", False): "",
        ("hitmap.tlb_flushes", False): "7",
    }
    assert not any(one.metric.startswith("hitmap.probe.") for one in told.observed)
    assert words.ESTIMATED in told.notes


# Page faults of a reading that is longer than the request: what its own threads did not count was a neighbour's.

MINOR = {"system.paging.fault.type": "minor"}
THREAD_MINOR = "hitmap.thread.page_faults.minor"
READ = {"hitmap.fault.mode": "user", "hitmap.fault.access": "read"}
IPI = {"hitmap.tlb_flush.reason": "remote_ipi_send"}


def neighbours(db: Database, **told: float) -> None:
    """A request of 200 ms in a reading of 1 s, in which another one of its process waited for 256 pages."""
    planted(db, **told)
    watched(db.client)
    for metric, attributes, count in (
        ("process.paging.faults", MAJOR, 256),
        ("hitmap.page_faults", READ, 260),
        ("hitmap.tlb_flushes", IPI, 100),
    ):
        put_points(db.client, [(0, 1000, count)], metric, attributes, source="ebpf")


def parts(db: Database) -> dict[str, float | None]:
    return {one.metric: one.estimate for one in trace(db.client, "r1").observed if not one.own and one.share}


def test_what_its_threads_did_not_count_is_not_its_own(db: Database) -> None:
    neighbours(db, **{THREAD_MAJOR: 0.0, THREAD_MINOR: 4.0})
    found = {one.metric: one for one in trace(db.client, "r1").observed if one.source == "ebpf"}
    assert found["process.paging.faults"].value == pytest.approx(51.2)
    assert found["process.paging.faults"].estimate == 0
    assert found["hitmap.page_faults"].estimate == pytest.approx(4)
    assert found["hitmap.tlb_flushes"].estimate == pytest.approx(20)  # nobody counts those by thread
    notes = trace(db.client, "r1").notes
    assert "page faults of its process beyond those of its own threads are taken for others'" in notes
    (apart,) = [note for note in notes if note.startswith("readings of its process are 1,000 ms apart")]
    assert "it took 200 ms" in apart


def test_its_own_count_does_not_add_to_a_part(db: Database) -> None:
    """Of a request that waited for all of them in half of a reading the part by time is the less."""
    neighbours(db, **{THREAD_MAJOR: 256.0, THREAD_MINOR: 4.0})
    assert parts(db)["process.paging.faults"] == pytest.approx(51.2)
    assert not [note for note in trace(db.client, "r1").notes if "taken for others'" in note]


@pytest.mark.parametrize("told", [{}, {THREAD_MINOR: 4.0}])
def test_what_its_threads_do_not_count_is_by_time(db: Database, told: dict[str, float]) -> None:
    neighbours(db, **told)
    assert parts(db)["process.paging.faults"] == pytest.approx(51.2)
    assert parts(db)["hitmap.page_faults"] == pytest.approx(52)
