"""What no client library would send: the server says what is wrong in OpenAI's words, or hangs up, and serves on."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.serve import EngineServer
from engine.serving import connection
from tests.engine.serving.live import eventually, is_idle, serving


@contextmanager
def connected(server: EngineServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        yield sock


def read_all(sock: socket.socket) -> bytes:
    """Until the server closes."""
    parts = []
    try:
        while part := sock.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def post(
    server: EngineServer, path: str, body: bytes, headers: dict[str, str] | None = None, method: str = "POST"
) -> tuple[int, dict[str, str], Any]:
    """status, headers, body as JSON where it is some."""
    lines = [f"{method} {path} HTTP/1.1", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in ({"host": "localhost"} | (headers or {})).items()]
    with connected(server) as sock:
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        head, _, answer = read_all(sock).partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    told = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return int(first.split()[1]), told, json.loads(answer) if answer.startswith(b"{") else answer


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DEEP = b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
PARTS = b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "%s"}]}]}'


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "says"),
    [
        (COMPLETIONS, b'{"prompt": "\xff\xfe"}', 400, "invalid_json", "not JSON in UTF-8"),
        (COMPLETIONS, b'{"prompt": "\\ud800"}', 400, "invalid_json", "not JSON in UTF-8"),
        (COMPLETIONS, b"", 400, "invalid_json", "not JSON"),
        (COMPLETIONS, b"{", 400, "invalid_json", "not JSON"),
        (COMPLETIONS, b"[1]", 400, "invalid_json", "a JSON object"),
        (COMPLETIONS, DEEP, 400, "invalid_json", "not JSON"),
        (COMPLETIONS, b"{}", 400, None, "required field `prompt`"),
        (COMPLETIONS, b'{"prompt": {"a": 1}}', 400, None, "prompt: Expected"),
        (COMPLETIONS, b'{"prompt": [1, "a"]}', 400, None, "a list of texts, token ids"),
        (COMPLETIONS, b'{"prompt": [[]]}', 400, None, "token ids"),
        (COMPLETIONS, b'{"prompt": "a", "max_tokens": 1e400}', 400, "invalid_json", "range"),
        (COMPLETIONS, b'{"prompt": "a", "top_k": 4294967296}', 400, None, "top_k: Expected"),
        (COMPLETIONS, b'{"prompt": "a", "stream": 1}', 400, None, "stream: Expected `bool`"),
        (COMPLETIONS, b'{"prompt": "a", "best_of": 3}', 400, "unsupported_parameter", "best_of"),
        (CHAT, b'{"messages": "hi"}', 400, None, "messages: Expected `array`"),
        (CHAT, b'{"messages": [{"role": "user"}], "tools": [{}]}', 400, None, "tools[0]"),
        (CHAT, b'{"messages": [3]}', 400, None, "messages[0]"),
        (CHAT, PARTS % b"image_url", 400, "unsupported_parameter", "messages[0].content[1]: images are not supported"),
        (CHAT, PARTS % b"input_audio", 400, "unsupported_parameter", "audio is not supported"),
        (CHAT, PARTS % b"poem", 400, None, "messages[0].content[1].type: Invalid enum value 'poem'"),
        (COMPLETIONS, b'{"prompt": "a", "vllm_xargs": {"a": 1}}', 400, None, "unknown field `a`"),
        (COMPLETIONS, b'{"prompt": "a", "vllm_xargs": {"kv_cache_report_mode": "all"}}', 400, None, "Invalid enum"),
        (COMPLETIONS, b'{"prompt": "a", "skip_reading_prefix_cache": 1}', 400, None, "Expected `bool`"),
        ("/tokenize", b'{"prompt": "a", "messages": [{"role": "user"}]}', 400, None, "either a prompt or"),
        ("/detokenize", b'{"tokens": [99999999]}', 400, None, "outside the vocabulary"),
        ("/v1/admin/faults", b"layer=nowhere,delay_ms=1", 400, "invalid_fault", "there are frontend, queue"),
        ("/v1/admin/faults", b'{"specs": "x"}', 400, None, "a line of text"),
        ("/v1/nothing", b"{}", 404, "not_found", "Not Found"),
        ("/health", b"", 405, "method_not_allowed", "Method Not Allowed"),
    ],
)  # fmt: skip
def test_a_bad_request_is_answered(
    server: EngineServer, path: str, body: bytes, status: int, code: str | None, says: str
) -> None:
    told, _, answer = post(server, path, body)
    assert told == status
    assert says in answer["error"]["message"]
    assert answer["error"]["code"] == code
    assert set(answer["error"]) == {"message", "type", "param", "code"}


def test_a_body_that_no_prompt_needs(server: EngineServer) -> None:
    most = server.frontend.message_bytes
    status, _, answer = post(server, COMPLETIONS, b'{"prompt": "' + b"a" * most + b'"}')
    assert status == 413
    assert str(most) in answer["error"]["message"]
    with connected(server) as sock:  # chunked: nobody says how long it will be
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        for _ in range(most // 0x10000 + 2):
            sock.sendall(chunk)
        assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 4096,
    ],
)
def test_rubbish_is_answered_with_400_or_hung_up_on(server: EngineServer, rubbish: bytes) -> None:
    with connected(server) as sock:
        sock.sendall(rubbish)
        answer = read_all(sock)
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")
    assert post(server, "/health", b"", method="GET")[0] == 200


def test_rubbish_behind_a_request_ends_the_connection(server: EngineServer) -> None:
    body = b'{"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true}'
    with connected(server) as sock:
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        sock.sendall(body)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"\x00rubbish\r\n\r\n")
        read_all(sock)
    assert eventually(lambda: is_idle(server))


def test_pipelined_requests_are_answered_in_turn(server: EngineServer) -> None:
    one = b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n"
    last = b"GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with connected(server) as sock:
        sock.sendall(one * 50 + last)
        assert read_all(sock).count(b"HTTP/1.1 200 OK") == 51


def test_an_offer_of_http_2_is_ignored(server: EngineServer) -> None:
    """As curl --http2 and Java's HttpClient make it; the body must not be lost."""
    offer = {
        "connection": "Upgrade, HTTP2-Settings, close",
        "upgrade": "h2c",
        "http2-settings": "AAMAAABkAAQAAP__",
    }
    body = b'{"prompt": "a", "max_tokens": 1}'
    head = [f"{name}: {value}" for name, value in offer.items()]
    for pause in (False, True):
        with connected(server) as sock:
            lines = [
                "POST /v1/completions HTTP/1.1",
                "host: localhost",
                *head,
                f"content-length: {len(body)}",
                "",
                "",
            ]
            sock.sendall("\r\n".join(lines).encode())
            if pause:
                time.sleep(0.05)
            sock.sendall(body)
            answer = read_all(sock)  # to the end: it asked to close
        assert answer.startswith(b"HTTP/1.1 200 ")
    with connected(server) as sock:
        sock.sendall(b"CONNECT evil.example:80 HTTP/1.1\r\nhost: evil.example:80\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 400 ")


def test_a_head_without_end(server: EngineServer) -> None:
    with connected(server) as sock:
        sock.sendall(b"GET /version HTTP/1.1\r\n")
        try:
            for _ in range(100):
                sock.sendall(b"x-filler: " + b"a" * 4096 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b"200 OK" not in read_all(sock)


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /vers", b"POST /v1/completions HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc", b"\r\n\r\n"],
)
def test_who_says_nothing_more_is_hung_up_on(
    server: EngineServer, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    monkeypatch.setattr(connection, "BODY_S", 0.2)
    with connected(server) as sock:
        sock.sendall(begun)
        assert not read_all(sock).startswith(b"HTTP/1.1 200")


def test_a_page_in_a_browser_gets_nothing(server: EngineServer) -> None:
    origin = {"origin": "http://evil.example"}
    assert post(server, "/v1/admin/restart", b"", origin)[0] == 403
    assert post(server, "/version", b"", {"host": f"evil.example:{server.port}"}, "GET")[0] == 403
    assert post(server, "/version", b"", {"host": f"[::1]:{server.port}"}, "GET")[0] == 200
    assert post(server, "/version", b"", {"host": "127.0.0.2"}, "GET")[0] == 200


def test_with_a_token_only_who_shows_it_is_served() -> None:
    with serving(token="secret") as server:
        assert post(server, "/health", b"", method="GET")[0] == 200
        status, _, answer = post(server, "/v1/models", b"", method="GET")
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        assert post(server, "/v1/models", b"", {"authorization": "Bearer secre"}, "GET")[0] == 401
        assert (
            post(server, "/v1/models", b"", {"authorization": "Bearer secret", "host": "me"}, "GET")[0] == 200
        )
        assert post(server, "/v1/admin/restart", b"", {"authorization": "Bearer secret"})[0] == 400


def test_a_full_queue_is_said_with_when_to_come_again() -> None:
    from tests.engine.serving.live import settings

    body = b'{"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with (
        serving(settings(max_num_seqs=1, max_waiting=1)) as server,
        connected(server) as a,
        connected(server) as b,
    ):
        a.sendall(head + body)
        assert eventually(lambda: server.engine.stats().running == 1)
        b.sendall(head + body)
        assert eventually(lambda: server.engine.stats().waiting == 1)
        status, headers, answer = post(server, COMPLETIONS, b'{"prompt": "b"}')
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "overloaded", "1")


def test_dropping_a_stream_gives_its_blocks_back(server: EngineServer) -> None:
    body = b'{"prompt": "a", "max_tokens": 3000, "ignore_eos": true, "stream": true}'
    before = aborted(server)
    with connected(server) as sock:
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        sock.sendall(body)
        assert b"200 OK" in sock.recv(65536)
        assert eventually(lambda: server.engine.stats().running == 1)
    assert eventually(lambda: is_idle(server))
    assert aborted(server) == before + 1


def aborted(server: EngineServer) -> float:
    """Requests that ended so, by the server's own count."""
    line = next(
        line
        for line in server.telemetry.exposition().decode().splitlines()
        if 'finished_total{reason="abort"}' in line
    )
    return float(line.rpartition(" ")[2])
