"""`hitmap engine`: serves until it is told to stop, takes faults while it runs, begins again on the same ports."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cachemodel.errors import UserError
from engine.serve import EngineServer
from hitmap.commands.engine import command
from tests.engine.serving.live import eventually

HITMAP = [sys.executable, "-m", "hitmap"]
READY = re.compile(r"hitmap engine: (\S+) on (http://127\.0\.0\.1:(\d+)); gRPC on 127\.0\.0\.1:(\d+)")


def refused(*arguments: str) -> tuple[int, str]:
    """The exit code and the line of a command that fails."""
    result = CliRunner().invoke(command, arguments)
    if isinstance(result.exception, UserError):
        return result.exception.exit_code, str(result.exception)
    assert isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def asked(url: str, path: str, body: Any = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        text = answer.read()
    return json.loads(text) if text.startswith(b"{") else text


class Process:
    """`hitmap engine serve` with the demo's model."""

    def __init__(self, log: Path, *options: str) -> None:
        self._log = log
        with log.open("w") as stderr:
            self.popen = subprocess.Popen(
                [*HITMAP, "engine", "serve", "--port", "0", "--grpc-port", "0", "--threads", "1", *options],
                stderr=stderr,
            )
        assert eventually(lambda: self.starts() == 1 or self.popen.poll() is not None, 60), self.said()
        ready = READY.search(self.said())
        assert ready, self.said()
        self.model, self.url, self.port, self.grpc_port = ready.groups()

    def said(self) -> str:
        return self._log.read_text()

    def starts(self) -> int:
        return len(READY.findall(self.said()))

    def stop(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(30)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "log", "--inject", "layer=prefix,delay_ms=1", "--served-model-name", "mine")
    yield process
    if process.popen.poll() is None:
        process.popen.kill()
        process.popen.wait()


def cached(process: Process, prompt: str) -> int:
    answer = asked(process.url, "/v1/completions", {"prompt": prompt, "max_tokens": 1, "model": "mine"})
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_it_begins_again_on_the_same_ports_without_its_cache(process: Process) -> None:
    prompt = "a prompt of some length, so that there are blocks to find. " * 4
    assert cached(process, prompt) == 0
    assert cached(process, prompt) > 0
    asked(process.url, "/v1/admin/faults", {"spec": "evict=0.1"})
    streaming = socket.create_connection(("127.0.0.1", int(process.port)), timeout=30)
    body = b'{"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    streaming.sendall(head % len(body) + body)
    assert b"200 OK" in streaming.recv(65536)

    asked(process.url, "/v1/admin/restart", method="POST")
    assert eventually(lambda: process.starts() == 2, 60), process.said()
    first, second = READY.findall(process.said())
    assert first == second == ("mine", process.url, process.port, process.grpc_port)
    received = b"".join(iter(lambda: streaming.recv(65536), b""))
    assert b"[DONE]" not in received or b'"error"' in received
    assert cached(process, prompt) == 0
    faults = asked(process.url, "/v1/admin/faults")["faults"]
    assert [fault["spec"] for fault in faults] == ["layer=prefix,delay_ms=1"]
    arguments = Path(f"/proc/{process.popen.pid}/cmdline").read_bytes().decode().split("\0")

    asked(process.url, "/v1/admin/restart", method="POST")
    assert eventually(lambda: process.starts() == 3, 60), process.said()
    assert Path(f"/proc/{process.popen.pid}/cmdline").read_bytes().decode().split("\0") == arguments
    assert process.stop() == 0
    said = process.said().splitlines()
    assert said[0] == "hitmap engine: loading demo ..."
    assert said[1].endswith("; no spans, which --otlp would send")
    assert said[2] == f"watch it with: hitmap attach {process.url}"
    assert said[9:] == ["hitmap engine: stopping: requests under way have 5 s; Ctrl-C again ends them"]


def test_faults_are_injected_listed_and_cleared(server: EngineServer) -> None:
    run = CliRunner().invoke
    assert run(command, ["inject", server.url, "--list"]).output == "no fault is on\n"
    shown = run(command, ["inject", f"{server.url}/v1/", "layer=host,delay_ms=5"]).output.splitlines()
    assert (shown[0], shown[1].split()[1]) == ("on now:", "layer=host,delay_ms=5")
    assert shown[2:] == ["compare: hitmap report --a 'fault=' --b 'fault=layer=host*'"]
    shown = run(command, ["inject", server.url, "lose_events=0.5,for_s=60"]).output.splitlines()
    assert [line.split()[1] for line in shown[1:3]] == ["layer=host,delay_ms=5", "lose_events=0.5,for_s=60"]
    assert shown[3:] == ["it marks no request: `hitmap sources` shows the gaps"]
    told = json.loads(run(command, ["inject", server.url.removeprefix("http://"), "--list", "--json"]).output)
    assert [fault["spec"] for fault in told["faults"]] == [fault.spec for fault in server.faults.active()]
    assert [fault.kind for fault in server.faults.active()] == ["delay_ms", "lose_events"]
    (first, second) = server.faults.active()
    asked(server.url, f"/v1/admin/faults?id={first.id}", method="DELETE")
    assert server.faults.active() == (second,)
    assert run(command, ["inject", server.url, "--clear"]).output == "no fault is on\n"
    assert server.faults.active() == ()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["serve", "--host", "0.0.0.0"], 2, "0.0.0.0 can be reached from elsewhere: set a --token"),
        (["serve", "--model", "/no/such"], 1, "/no/such is no folder"),
        (["serve", "--inject", "layer=host"], 2, "layer=host"),
        (["serve", "--kv-replay", "tcp://127.0.0.1:5558"], 2, "--kv-replay needs --kv-events"),
        (["serve", "--device-blocks", "-1"], 2, "--device-blocks"),
        (["serve", "--served-model-name", "a\nb"], 2, "a line of text"),
        (["serve", "--served-model-name", "\udcff"], 2, "a line of text"),
        (["serve", "--threads", "100000"], 2, "--threads"),
        (["serve", "--seed", "9" * 30], 2, "--seed"),
        (["serve", "--block-size", "2147483647", "--port", "0", "--grpc-port", "0"], 1, "choose fewer"),
        (["serve", "--device-blocks", "0", "--port", "0"], 2, "--device-blocks"),
        (["serve", "--max-model-len", "0"], 2, "--max-model-len"),
        (["serve", "--block-size", "0"], 2, "--block-size"),
        (["inject", "http://127.0.0.1:9", "--list"], 1, "no hitmap engine at"),
        (["inject", "127.0.0.1:9", "--list"], 1, "no hitmap engine at http://127.0.0.1:9"),
        (["inject", "ftp://here", "--list"], 2, "ftp://here is not the address of a server"),
        (["inject", "http://127.0.0.1:9"], 2, "say one of"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: list[str], code: int, says: str) -> None:
    exit_code, said = refused(*arguments)
    assert exit_code == code
    assert says in said


def test_a_port_that_is_taken(server: EngineServer) -> None:
    taken = str(server.port)
    for options in (["--port", taken], ["--port", "0", "--grpc-port", taken]):
        code, said = refused("serve", "--threads", "1", *options)
        assert code == 1
        assert f"cannot listen on 127.0.0.1:{taken}" in said


def test_a_fault_that_is_none_is_refused_with_what_is_allowed(server: EngineServer) -> None:
    code, said = refused("inject", server.url, "layer=nowhere,delay_ms=1")
    assert code == 2
    assert "there is no layer 'nowhere'; there are frontend, queue, prefix" in said
    assert refused("inject", server.url, "evict=2")[0] == 2


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A server that answers whatever it is asked in these bytes, once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n{}", "it answers something else"),
        (b"HTTP/1.0 200 OK\r\n\r\n[1]", "it answers something else"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"faults": [{"id": "x", "spec": 1}]}', "it answers something else"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + DEEP, "no hitmap engine at"),
        (b"HTTP/1.0 500 No\r\n\r\n" + DEEP, "it answers 500"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 99\r\n\r\n{", "no hitmap engine at"),
        (b"\x00\x01\r\n\r\n", "no hitmap engine at"),
        (b"", "no hitmap engine at"),
        (b'HTTP/1.0 404 No\r\n\r\n{"error": {"message": "x", "param": "spec"}}', "it answers 404"),
        (b'HTTP/1.0 404 No\r\n\r\n{"detail": "Not Found"}', "it answers 404"),
    ],
)
def test_who_is_no_engine_is_told_so(reply: bytes, says: str) -> None:
    with answering(reply) as url:
        code, said = refused("inject", url, "--list")
    assert code == 1
    assert says in said


def test_the_token_goes_nowhere_else() -> None:
    with answering(b'HTTP/1.0 200 OK\r\n\r\n{"faults": []}') as elsewhere:
        redirect = f"HTTP/1.0 302 Found\r\nlocation: {elsewhere}/\r\n\r\n".encode()
        with answering(redirect) as url:
            code, said = refused("inject", url, "--list", "--token", "secret")
        socket.create_connection(
            ("127.0.0.1", int(elsewhere.rpartition(":")[2]))
        ).close()  # nobody came before
    assert code == 1
    assert "it answers 302" in said


def test_what_a_server_calls_a_fault_does_not_steer_the_terminal() -> None:
    with answering(b'HTTP/1.0 200 OK\r\n\r\n{"faults": [{"id": 1, "spec": "\\u001b[31mred\\n"}]}') as url:
        shown = CliRunner().invoke(command, ["inject", url, "--list"]).output
    assert shown == "on now:\n   1  \ufffd[31mred\u21b5\n"


def test_errors_come_without_a_traceback() -> None:
    done = subprocess.run(
        [*HITMAP, "engine", "serve", "--model", "/no/such"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    loading, error = done.stderr.splitlines()
    assert loading == "hitmap engine: loading /no/such ..."
    assert error.startswith("hitmap: /no/such is no folder")


def test_every_option_says_what_it_does() -> None:
    for name in ("serve", "inject", "bench"):
        for parameter in command.commands[name].params:  # type: ignore[attr-defined]
            assert not isinstance(parameter, click.Option) or parameter.help, f"{name} {parameter.name}"
    environment = os.environ | {"COLUMNS": "100"}
    shown = CliRunner(env=environment).invoke(command, ["serve", "--help"]).output
    for field in ("--max-num-batched-tokens", "--disk-blocks", "--inject", "--kv-events", "--otlp"):
        assert field in shown
