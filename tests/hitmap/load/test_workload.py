"""Workload files: bodies, records of logs, and what a load wrote itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from hitmap.load import run, workload
from hitmap.load.arrivals import arrivals
from hitmap.load.blocks import TokenPrompts
from hitmap.load.forms import Form, Replay, form
from hitmap.load.plan import Plan, outline
from tests.hitmap.load.server import LlmServer
from tests.hitmap.load.test_traces import call, request, session, write

ASK = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}


def planned(path: Path, speed: float = 1.0) -> Plan:
    return workload.plan(path, arrivals("uniform", 4.0, 0), speed=speed)


def due(plan: Plan) -> list[float]:
    return [request.due_s for request in plan]


def test_bodies_without_times_go_by_the_arrival_process(tmp_path: Path) -> None:
    path = write(tmp_path / "asks.jsonl", ASK, "", ASK | {"session_id": "a", "phase": "x", "request_id": "r"})
    plan = planned(path)
    assert due(plan) == [0.0, 0.25]
    first, second = plan
    assert first.body(()) == second.body(()) == ASK
    assert (first.session, first.labels) == ("", {})
    assert (second.session, second.labels) == ("a", {"phase": "x"})


def test_due_times_count_from_the_begin_of_the_load(tmp_path: Path) -> None:
    path = write(tmp_path / "asks.jsonl", {"due_s": 5, "body": ASK}, ASK | {"due_s": 1.5})
    assert due(planned(path)) == [1.5, 5]
    assert due(planned(path, speed=0.5)) == [3, 10]


def test_a_recorded_log_is_sent_again_at_its_distances(run1: Path) -> None:
    records = [json.loads(line) for line in (run1 / "requests.jsonl").read_text().splitlines()]
    plan = planned(run1 / "requests.jsonl")
    sent = sorted(record["sent_unix_ns"] for record in records)
    assert due(plan) == pytest.approx([(time - sent[0]) / 1e9 for time in sent], abs=1e-6)
    by_time = sorted(records, key=lambda record: record["sent_unix_ns"])
    for request_, record in zip(plan, by_time, strict=True):
        assert request_.body(()) == record["body"]
        assert request_.labels == {"phase": record["phase"]}


def test_what_a_load_logged_can_be_sent_again(server: LlmServer, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    path = write(
        tmp_path / "asks.jsonl", *(ASK | {"seed": n, "due_s": n / 50, "session_id": "a"} for n in range(4))
    )
    assert run(planned(path), server.url, log, {"phase": "before"}).completed == 4
    sent, server.bodies = server.bodies, []
    again = planned(log)
    assert due(again) == pytest.approx([0, 0.02, 0.04, 0.06], abs=1e-6)  # whatever the server took
    assert {(request_.session, request_.labels["phase"]) for request_ in again} == {("a", "before")}
    assert run(again, server.url).completed == 4
    assert server.bodies == sent


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([ASK, "{"], "line 2: "),
        ([ASK, [1]], "line 2: Expected `object`"),
        ([ASK, {"model": "m"}], "request 2 has neither messages nor a prompt"),
        ([ASK, {"body": 3}], "request 2 has neither messages nor a prompt"),
        ([ASK | {"due_s": 1}, ASK], r"times of several kinds \(no time, due_s\)"),
        ([ASK | {"due_s": 1}, ASK | {"sent_unix_ns": 1}], r"several kinds \(due_s, sent_unix_ns\)"),
        ([ASK | {"due_s": "soon"}], "request 1 has a due_s that is no number"),
        ([ASK | {"due_s": -1}], "request 1 has a due_s that is no time"),
        ([ASK | {"due_s": 10**400}], "request 1 has a due_s that is no time"),
        ([ASK | {"sent_unix_ns": 10**400}], "request 1 has a sent_unix_ns that is no time"),
    ],
)
def test_faulty_requests_are_named(tmp_path: Path, lines: list[object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        planned(write(tmp_path / "asks.jsonl", *lines))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        form(tmp_path / "none")
    with pytest.raises(UserError, match="cannot be read"):
        form(tmp_path)
    for name in ("bad.gz", "bad.xz"):
        (tmp_path / name).write_bytes(b"no archive")
        with pytest.raises(UserError, match="cannot be read"):
            form(tmp_path / name)
    for text in (b"", b"\x00\xff", b"a,b\n", b"3\n"):
        (tmp_path / "other").write_bytes(text)
        with pytest.raises(UserError, match="holds no requests"):
            form(tmp_path / "other")


def test_a_form_is_known_by_its_first_line(tmp_path: Path) -> None:
    cases = [
        (Form.MOONCAKE, [request(0, 100, 1, 0)], 100),
        (Form.AGENTS, [session("a", call(0, 100, 1, 1))], 100),
        (Form.AZURE, ["\ufeffTIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46,100,1"], 100),
        (Form.REQUESTS, [{"prompt": "x" * 100}], 100),
    ]
    replay = Replay(lambda: TokenPrompts(range(400)), arrivals("uniform", 1, 0))
    for expected, lines, length in cases:
        path = write(tmp_path / f"{expected.name}.jsonl", *lines)
        assert form(path) == expected
        (only,) = replay.plan(path)
        assert len(only.body(())["prompt"]) == length


def test_bodies_that_a_server_should_refuse_are_counted_and_sent(tmp_path: Path, server: LlmServer) -> None:
    """What is wrong with a body is the server's to say."""
    odd = [{"messages": 5}, {"prompt": "a", "max_tokens": {"x": 1}, "model": ["m"]}, {"prompt": {"x": 1}}]
    plan = planned(write(tmp_path / "odd.jsonl", *odd))
    assert (outline(plan).requests, outline(plan).max_tokens) == (3, 0)
    assert run(plan, server.url).sent == 3
    assert [body["model"] for body in server.bodies] == ["small"] * 3
