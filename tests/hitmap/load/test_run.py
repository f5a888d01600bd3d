"""A plan against a real server over real sockets: what is sent, what is counted, what is logged."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from cachemodel.errors import UsageError, UserError
from collector.request_log import UsageRow, parse_line
from hitmap.load import Plan, Planned, run
from hitmap.load.client import ERROR_IN_STREAM, HUNG_UP, INTERRUPTED, NOT_UNDERSTOOD, TIMEOUT
from hitmap.load.plan import Body
from hitmap.load.sender import OVER_LIMIT, SESSION_OVER
from hitmap.load.summary import Tally
from hitmap.load.view import summary_lines
from tests.hitmap.load.server import WORDS, LlmServer

TEXT = "".join(WORDS)


def asks(text: str, due_s: float = 0.0, session: str = "", **more: object) -> Planned:
    def body(answers: Sequence[str]) -> Body:
        return {"messages": [{"role": "user", "content": "/".join((*answers, text))}], **more}

    return Planned(due_s, body, {"template": "test"}, session)


def plan(*requests: Planned) -> Plan:
    return Plan("a test", lambda: iter(requests))


def said(body: Body) -> str:
    return str(body["messages"][-1]["content"])


def test_all_is_sent_counted_and_timed(server: LlmServer) -> None:
    summary = run(plan(*(asks(f"q{number}", number / 100) for number in range(20))), server.url)
    assert (summary.planned, summary.sent, summary.completed) == (20, 20, 20)
    assert summary.failed == summary.not_sent == {}
    assert (summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens) == (2000, 500, 80)
    assert summary.cached_share == 0.25
    assert summary.ttft_s
    assert summary.e2e_s
    assert summary.lag_s
    assert summary.time_per_output_token_s
    assert summary.ttft_s.count == summary.e2e_s.count == summary.time_per_output_token_s.count == 20
    assert summary.ttft_s.p50 <= summary.e2e_s.max
    assert sorted(said(body) for body in server.bodies) == sorted(f"q{number}" for number in range(20))
    first = server.bodies[0]
    assert (first["model"], first["stream"], first["stream_options"]) == (
        "small",
        True,
        {"include_usage": True},
    )


def test_nobody_waits_for_a_slow_server(server: LlmServer) -> None:
    server.behaviour = lambda body: "slow" if said(body) == "q0" else "ok"
    done: list[str] = []

    def progress(_elapsed_s: float, tally: object) -> None:
        if len(server.bodies) == 10:  # all others came although the first has no answer
            done.append("all there")
            server.release.set()

    summary = run(
        plan(*(asks(f"q{number}", number / 100) for number in range(10))), server.url, progress=progress
    )
    assert done
    assert summary.completed == 10


def test_latency_counts_from_when_a_request_was_due(server: LlmServer) -> None:
    """A client that is late itself must not make the server look better."""

    def late() -> list[Planned]:
        return [asks("q0"), asks("q1", 0.0)]

    def requests() -> object:
        yield late()[0]
        time.sleep(0.3)  # the plan holds the sender up
        yield late()[1]

    summary = run(Plan("late", requests), server.url)  # type: ignore[arg-type]
    assert summary.lag_s
    assert summary.e2e_from_due_s
    assert summary.lag_s.max >= 0.3
    assert summary.e2e_from_due_s.max >= 0.3


def test_what_is_due_beyond_the_limit_is_counted_and_not_sent(server: LlmServer) -> None:
    server.behaviour = lambda _body: "slow"

    def progress(_elapsed_s: float, tally: Tally) -> None:
        if tally.planned == 10 and server.most_in_flight == 4:
            server.release.set()

    requests = plan(*(asks(f"q{number}", number / 100) for number in range(10)))
    summary = run(requests, server.url, progress=progress, max_in_flight=4)
    assert summary.not_sent == {OVER_LIMIT: 6}
    assert (summary.planned, summary.sent, summary.completed) == (10, 4, 4)
    assert server.most_in_flight == 4


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("refuse", "HTTP 503", "too many requests"),
        ("error", ERROR_IN_STREAM, "out of blocks"),
        ("cut", HUNG_UP, "the answer ended before the model did"),
        ("reset", HUNG_UP, ""),
        ("nonsense", NOT_UNDERSTOOD, ""),
    ],
)
def test_failures_are_told_by_kind(
    server: LlmServer, tmp_path: Path, how: str, kind: str, words: str
) -> None:
    server.behaviour = lambda body: how if said(body) == "bad" else "ok"
    log = tmp_path / "log.jsonl"
    summary = run(plan(asks("bad"), asks("good", 0.01)), server.url, log)
    assert (summary.failed, summary.completed) == ({kind: 1}, 1)
    assert words in summary.errors[kind]
    assert summary.e2e_s
    assert summary.e2e_s.count == 1
    failed = next(record for record in read(log) if said(record["body"]) == "bad")
    assert failed["error_kind"] == kind
    assert words in failed["error"]


DEEP = "[" * 100_000
WORD = '"choices": [{"text": "a", "finish_reason": "stop"}]'


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("says", "words"),
    [
        (DEEP, "recursion"),
        ('{"choices":' + DEEP, "recursion"),
        ("[1]", ""),
        ('{"choices": [1]}', ""),
        ('{"choices": [{"delta": {"tool_calls": 1}}]}', ""),
    ],
)
def test_an_answer_that_is_none_is_a_failure(
    server: LlmServer, tmp_path: Path, says: str, words: str, stream: bool
) -> None:
    server.behaviour = lambda _body: says
    summary = run(plan(asks("q", stream=stream)), server.url, tmp_path / "log.jsonl")
    assert summary.failed == {NOT_UNDERSTOOD: 1}
    assert words in summary.errors[NOT_UNDERSTOOD]


def test_json_without_an_answer_is_not_understood(server: LlmServer) -> None:
    server.behaviour = lambda _body: "{}"
    summary = run(plan(asks("q", stream=False)), server.url)
    assert (summary.completed, summary.failed) == (0, {NOT_UNDERSTOOD: 1})


@pytest.mark.parametrize(
    "usage", ['"many"', "[1]", "7", f'{{"prompt_tokens": {"9" * 400}, "completion_tokens": {"9" * 400}}}']
)
def test_a_usage_that_cannot_be_one_is_not_known(server: LlmServer, usage: str) -> None:
    server.behaviour = lambda _body: f'{{{WORD}, "usage": {usage}}}'
    summary = run(plan(asks("q")), server.url)
    assert summary.completed == 1
    assert (summary.prompt_tokens, summary.completion_tokens) == (None, None)


def test_a_request_has_its_time(server: LlmServer) -> None:
    server.behaviour = lambda body: "slow" if said(body) == "bad" else "ok"
    summary = run(plan(asks("bad"), asks("good")), server.url, timeout_s=0.3)
    assert (summary.failed, summary.completed) == ({TIMEOUT: 1}, 1)


def test_a_session_waits_for_its_answers_and_others_do_not(server: LlmServer) -> None:
    turns = [asks(f"t{number}", 0.0, "talk") for number in range(3)]
    summary = run(plan(*turns, asks("other")), server.url)
    assert summary.completed == 4
    talk = [said(body) for body in server.bodies if said(body) != "other"]
    assert talk == ["t0", f"{TEXT}/t1", f"{TEXT}/{TEXT}/t2"]


def test_a_session_is_over_at_its_first_failure(server: LlmServer) -> None:
    server.behaviour = lambda body: "refuse" if said(body).endswith("t1") else "ok"
    summary = run(plan(*(asks(f"t{number}", 0.0, "talk") for number in range(4))), server.url)
    assert (summary.completed, summary.failed, summary.not_sent) == (1, {"HTTP 503": 1}, {SESSION_OVER: 2})


def test_told_to_stop_it_counts_what_was_in_flight(server: LlmServer) -> None:
    server.behaviour = lambda _body: "slow"
    stopping = threading.Event()

    def progress(_elapsed_s: float, tally: object) -> None:
        if len(server.bodies) == 2:
            stopping.set()

    waiting = [asks("t0", 0.0, "talk"), asks("t1", 0.0, "talk"), asks("q"), asks("never", 600.0)]
    summary = run(plan(*waiting), server.url, progress=progress, stopping=stopping)
    assert summary.interrupted
    assert (summary.planned, summary.sent, summary.completed) == (3, 2, 0)
    assert (summary.failed, summary.not_sent) == ({INTERRUPTED: 2}, {INTERRUPTED: 1})


def read(log: Path) -> list[Body]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_the_log_is_what_the_collector_reads(server: LlmServer, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    before_s = time.time()
    run(plan(asks("q", 0.0, "talk")), server.url, log, {"phase": "before"}, traceparent=True)
    row = parse_line(log.read_bytes(), "blue", time.time())
    assert isinstance(row, UsageRow)
    record = read(log)[0]
    headers = server.headers[0]
    assert row.request_id == "cmpl-" + headers["x-request-id"] == "cmpl-" + record["client_request_id"]
    assert headers["traceparent"] == f"00-{record['trace_id']}-{record['parent_span_id']}-01"
    assert before_s - 1 <= row.time <= time.time()
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens) == (100, 25, 4)
    assert row.client_ttft_us is not None
    assert row.client_e2e_us is not None
    assert 0 <= row.client_ttft_us <= row.client_e2e_us
    assert row.finish_reason == "length"
    assert row.labels == {"phase": "before", "template": "test"}
    assert record["session_id"] == "talk"
    assert record["due_unix_ns"] <= record["sent_unix_ns"] <= record["first_token_unix_ns"]
    assert record["first_token_unix_ns"] <= record["last_token_unix_ns"] <= record["done_unix_ns"]


def test_what_a_server_does_not_say_is_unknown(server: LlmServer, tmp_path: Path) -> None:
    server.behaviour = lambda _body: "silent"
    log = tmp_path / "log.jsonl"
    summary = run(plan(asks("q")), server.url, log)
    assert summary.completed == 1
    assert summary.prompt_tokens is summary.cached_tokens is summary.cached_share is None
    assert summary.time_per_output_token_s is None
    row = parse_line(log.read_bytes(), "blue", time.time())
    assert isinstance(row, UsageRow)
    assert row.prompt_tokens is None


def test_a_request_that_is_not_streamed_has_no_first_token(server: LlmServer) -> None:
    summary = run(plan(asks("q", stream=False)), server.url)
    assert (summary.completed, summary.ttft_s, summary.prompt_tokens) == (1, None, 100)
    assert "stream_options" not in server.bodies[0]


def test_a_body_keeps_a_model_that_is_served(server: LlmServer) -> None:
    run(plan(asks("a", model="large"), asks("b", model="gone")), server.url)
    assert {said(body): body["model"] for body in server.bodies} == {"a": "large", "b": "small"}
    server.bodies.clear()
    run(plan(asks("a", model="small")), server.url, model="large")
    assert server.bodies[0]["model"] == "large"


def test_a_server_that_is_down_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match="no LLM server answers at http://127"):
            run(plan(asks("q", 600.0)), url)


def test_wrong_calls_are_refused(server: LlmServer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="serves no model 'gpt'; it serves small, large"):
        run(plan(asks("q")), server.url, model="gpt")
    with pytest.raises(UsageError, match="cannot be called 'usage'"):
        run(plan(asks("q")), server.url, labels={"usage": "1"})
    with pytest.raises(UserError, match="cannot be written"):
        run(plan(asks("q")), server.url, tmp_path)
    with pytest.raises(UserError, match="write it as http://"):
        run(plan(asks("q")), "127.0.0.1")
    assert not server.bodies


def test_a_log_that_cannot_grow_ends_the_load(server: LlmServer) -> None:
    with pytest.raises(UserError, match="/dev/full cannot be written"):
        run(plan(asks("q"), asks("later", 600.0)), server.url, Path("/dev/full"))


def test_a_summary_is_plain_data(server: LlmServer) -> None:
    summary = run(plan(asks("q")), server.url)
    assert json.loads(json.dumps(asdict(summary)))["completed"] == 1


def test_an_interrupted_load_says_of_how_many(server: LlmServer) -> None:
    stopping = threading.Event()

    def progress(_elapsed_s: float, tally: Tally) -> None:
        if tally.completed == 2:
            stopping.set()

    requests = plan(asks("q"), asks("r"), *(asks("never", 600.0 + number) for number in range(3)))
    summary = run(requests, server.url, progress=progress, stopping=stopping)
    assert (summary.planned, summary.whole_plan) == (2, 5)
    assert next(summary_lines(summary)).startswith("a test: 2 of 5 due, 2 sent, 2 completed in ")
