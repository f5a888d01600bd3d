"""The wire under a canary: real sockets, awkward answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest

from cachemodel.errors import UsageError, UserError
from collector.canary import Budget, HttpTransport, Options, Report, run
from collector.canary.wire import Answer as Told
from tests.collector.canary.fakes import finding
from tests.collector.support import Answer, Server, cut, text

CHAT = "POST /v1/chat/completions"
COMPLETIONS = "POST /v1/completions"
MODELS = {"/v1/models": text(json.dumps({"data": [{"id": "m"}]}), content_type="application/json")}
BUDGET = Budget(requests=400, tokens=10**6, seconds=100, rate=1000)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(dict(MODELS)) as running:
        yield running


def whole(tokens: int = 9, **usage: object) -> Answer:
    body = {"id": "x", "choices": [{"text": "a", "finish_reason": "length"}]}
    return text(
        json.dumps(body | {"usage": {"prompt_tokens": tokens, **usage}}), content_type="application/json"
    )


def stream(*events: object, wait_s: float = 0.0, done: bool = True) -> Answer:
    """Events one by one, the connection's end being the end."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        for event in events:
            handler.wfile.write(b"data: " + json.dumps(event).encode() + b"\r\n\r\n")
            handler.wfile.flush()
            time.sleep(wait_s)
        if done:
            handler.wfile.write(b"data: [DONE]\n\n")

    return answer


def send(server: Server, timeout_s: float = 5.0) -> Told:
    transport = HttpTransport(server.url, "secret")
    try:
        return transport.send("/v1/completions", {"prompt": "x"}, {}, timeout_s)
    finally:
        transport.close()


def measure(server: Server, *measures: str, model: str = "", budget: Budget = BUDGET) -> Report:
    transport = HttpTransport(server.url)
    try:
        return run(transport, server.url, measures, Options(longest=64), budget, model=model)
    finally:
        transport.close()


@pytest.mark.alone
def test_the_first_token_is_timed_and_not_the_role(server: Server) -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    token = {"choices": [{"delta": {"content": "a"}, "finish_reason": "length"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3}}}
    server.answers[COMPLETIONS] = stream(role, token, usage, wait_s=0.2)
    answer = send(server)
    assert (answer.error, answer.streamed) == ("", True)
    assert answer.told == {"prompt_tokens": 7, "cached_tokens": 3}
    assert 0.15 < (answer.ttft_s or 0) < 0.39, "after the role, before the usage"
    assert server.requests[-1][1]["Authorization"] == "Bearer secret"


def test_a_token_that_is_no_text_counts_when_it_ends(server: Server) -> None:
    server.answers[COMPLETIONS] = stream({"choices": [{"text": "", "finish_reason": "length"}]})
    assert send(server).ttft_s is not None


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (stream({"choices": []}), "the stream ended before its first token"),
        (stream({"choices": [{"text": "a"}]}, done=False), "the stream ended before its first token"),
        (stream({"error": {"message": "out of memory"}}), "out of memory"),
        (stream([1]), "no answer: not a JSON object"),
        (text("<html>", content_type="text/html"), "no answer: not JSON"),
        (cut(b'{"choices": []}', 5), "no answer: "),
        (text('{"error": {"message": "too\\nlong"}}', status=400), "HTTP 400: too long"),
        (text("", status=503), "HTTP 503"),
    ],
)
def test_what_is_no_answer_says_why(server: Server, answer: Answer, error: str) -> None:
    server.answers[COMPLETIONS] = answer
    told = send(server)
    assert told.error.startswith(error)


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_trickles_ends_at_its_time(server: Server, part: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if part == "body":
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.end_headers()
        else:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(100):
            with suppress(OSError):  # the client hung up
                handler.wfile.write(b":")
                handler.wfile.flush()
                time.sleep(0.05)

    server.answers[COMPLETIONS] = answer
    began = time.monotonic()
    told = send(server, 0.4)
    assert "no whole answer within 0.4 s" in told.error
    assert time.monotonic() - began < 4


def test_a_connection_is_kept_and_a_fresh_one_is_another(server: Server) -> None:
    ports = []
    proper = whole()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        ports.append(handler.client_address[1])
        proper(handler)

    server.answers[COMPLETIONS] = answer
    server._http.RequestHandlerClass.protocol_version = "HTTP/1.1"  # type: ignore[attr-defined]
    transport = HttpTransport(server.url)
    for fresh in (False, False, True, True):
        assert not transport.send("/v1/completions", {}, {}, 5, fresh=fresh).error
    transport.close()
    assert ports[0] == ports[1]
    assert len(set(ports)) == 3


def test_a_server_that_streams_nothing_and_takes_chats_only(server: Server) -> None:
    server.answers[CHAT] = _picky("stream_options", "user", "max_tokens: use max_completion_tokens", "stream")
    report = measure(server, "prefill")
    assert set(report.dropped) >= {"/v1/completions", "stream_options", "user"}
    assert "whole answer" in finding(report, "prefill.ms_per_token").detail or not report.failures


def _picky(*refused: str) -> Answer:
    """Refuses a request for the first of these fields that it has, and answers in one piece without them."""
    proper = whole()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.question)  # type: ignore[attr-defined]
        for name in refused:
            if name.partition(":")[0] in body:
                text(json.dumps({"error": {"message": f"unsupported: {name}"}}), status=400)(handler)
                return
        proper(handler)

    return answer


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"/v1/models": text("no", status=401)}, "wants a key: give --api-key"),
        ({"/v1/models": text("{}", status=404)}, "say which with --model"),
        ({COMPLETIONS: text("no", status=403)}, "wants a key"),
        ({COMPLETIONS: text("boom", status=500)}, "answers no request of m: HTTP 500: boom"),
    ],
)
def test_servers_that_cannot_be_measured(server: Server, answers: dict[str, Answer], words: str) -> None:
    server.answers |= answers
    with pytest.raises(UserError, match=words):
        measure(server, "prefill")


def test_a_model_that_is_not_there(server: Server) -> None:
    with pytest.raises(UserError, match="serves no model 'n'; it serves m"):
        measure(server, "prefill", model="n")


def test_busy_servers_are_left_alone_as_long_as_they_ask(server: Server) -> None:
    proper, times = whole(), []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        times.append(time.monotonic())
        if len(times) == 3:
            handler.send_response(429)
            handler.send_header("Retry-After", "0.7")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        else:
            proper(handler)

    server.answers[COMPLETIONS] = answer
    report = measure(server, "prefill")
    assert report.failures == []
    assert times[3] - times[2] >= 0.7


def test_a_wait_longer_than_the_budget_ends_the_run(server: Server) -> None:
    calls: list[int] = []
    proper = whole()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        calls.append(1)
        if len(calls) > 4:
            handler.send_response(429)
            handler.send_header("Retry-After", "Fri, 31 Dec 2100 23:59:59 GMT")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        else:
            proper(handler)

    server.answers[COMPLETIONS] = answer
    began = time.monotonic()
    report = measure(server, "prefill", "salt")
    assert "no room to wait" in report.courses[-1].stopped
    assert time.monotonic() - began < 20


def _failing(after: int) -> Callable[[BaseHTTPRequestHandler], None]:
    calls: list[int] = []
    proper = whole()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        calls.append(1)
        (proper if len(calls) <= after else text("out of memory", status=500))(handler)

    return answer


def test_a_server_that_breaks_down_is_not_asked_for_ever(server: Server) -> None:
    server.answers[COMPLETIONS] = _failing(after=5)
    report = measure(server, "prefill")
    assert "3 requests in a row failed: HTTP 500: out of memory" in report.courses[-1].stopped
    assert len(report.failures) == 3


@pytest.mark.parametrize(("requests", "tokens"), [(3, 10**6), (17, 10**6), (400, 500), (400, 3_000)])
def test_no_more_comes_in_than_the_budget_has(server: Server, requests: int, tokens: int) -> None:
    """Counted where it arrives."""
    bodies: list[int] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.question)  # type: ignore[attr-defined]
        bodies.append(len(body["prompt"].encode()) + 1)  # a token for each byte, and one to generate
        (text("busy", status=503) if len(bodies) % 7 == 6 else whole(bodies[-1] - 1))(handler)

    server.answers[COMPLETIONS] = answer
    budget = Budget(requests=requests, tokens=tokens, seconds=5, rate=1000)
    with suppress(UserError):  # where it does not even reach for the introduction
        measure(server, "prefill", "salt", "replicas", budget=budget)
    assert len(server.requests) <= requests
    assert sum(bodies) <= tokens


@pytest.mark.parametrize(
    "told",
    [
        "Fri, 31 Dec 2000 00:00:00 +99999999999999999",
        "Fri, 31 Dec 0001 00:00:00 +9999",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "Mon, 32 Foo 99999999999999999999 23:59:59 GMT",
        "nan",
        "soon",
    ],
)
def test_no_retry_after_raises(server: Server, told: str) -> None:

    def busy(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(429)
        handler.send_header("Retry-After", told)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers[COMPLETIONS] = busy
    answer = send(server)
    assert answer.status == 429
    assert answer.retry_after_s is None or answer.retry_after_s >= 0


@pytest.mark.parametrize("key", ["sk-secret\r\nX: y", "sk-\u201csecret", "sk-se\x00cret", "sk- s\xe9cret"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(UsageError, match="API key holds") as refused:
        HttpTransport("http://127.0.0.1:1", key)
    assert "cret" not in str(refused.value)


def test_blanks_around_a_key_are_no_part_of_it(server: Server) -> None:
    server.answers[COMPLETIONS] = whole()
    HttpTransport(server.url, " secret\r\n").send("/v1/completions", {}, {}, 5.0)
    assert server.requests[-1][1]["Authorization"] == "Bearer secret"


def test_a_stream_byte_by_byte_is_read_once_a_byte(server: Server) -> None:
    """Joined anew for each byte, a line of so many would be some hundred gigabytes of copying."""
    line = b"data: " + json.dumps({"choices": [{"text": "a" * 900_000, "finish_reason": "length"}]}).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in line + b"\n\ndata: [DONE]\n\n")
        handler.wfile.write(chunks + b"0\r\n\r\n")

    server.answers[COMPLETIONS] = answer
    told = send(server, 25.0)
    assert (told.error, told.pieces) == ("", 1)
