"""The paths beside the OpenAI API's that tools look for, and usage as hitmap's own collector reads it."""

from __future__ import annotations

import itertools
import json
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

from collector import usage
from collector.prometheus import parse
from collector.usage import stream
from engine.serve import EngineServer
from engine.telemetry import TelemetryConfig
from tests.engine.serving.live import eventually, give_begin_token, serving, settings

_numbers = itertools.count()


def call(server: EngineServer, path: str, body: Any = None, method: str | None = None) -> tuple[Any, str]:
    """The answer, as JSON where it is some, and its content type."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text, kind = answer.read(), answer.headers.get("content-type", "")
    return (json.loads(text) if kind == "application/json" else text.decode()), kind


def complete(server: EngineServer, prompt: Any, **more: Any) -> Any:
    return call(server, "/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0} | more)[0]


def test_tokens_and_text_are_the_same_thing(server: EngineServer) -> None:
    text = "Grüße, 世界! \N{GRINNING FACE}"
    told, _ = call(server, "/tokenize", {"prompt": text, "model": "tiny"})
    assert told["count"] == len(told["tokens"])
    assert told["max_model_len"] == 4096
    assert call(server, "/detokenize", {"tokens": told["tokens"]})[0] == {"prompt": text}


def test_a_plain_prompt_gets_the_begin_token_and_a_chat_has_its_own(
    server: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = give_begin_token(server, monkeypatch)
    chat = {"messages": [{"role": "user", "content": "some words"}]}
    for body, path, by_default in (
        ({"prompt": "some words"}, "completions", True),
        (chat, "chat/completions", False),
    ):
        bare = call(server, "/tokenize", body | {"add_special_tokens": False})[0]["tokens"]
        tokens = {False: bare, True: [begin, *bare]}
        for more, added in (({}, by_default), *(({"add_special_tokens": added}, added) for added in tokens)):
            assert call(server, "/tokenize", body | more)[0]["tokens"] == tokens[added]
            usage = call(server, f"/v1/{path}", {"max_tokens": 1} | body | more)[0]["usage"]
            assert usage["prompt_tokens"] == len(tokens[added])
    assert complete(server, [5, 6, 7])["usage"]["prompt_tokens"] == 3


def test_the_template_is_what_a_chat_computes(server: EngineServer) -> None:
    chat = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"}]}
    text = call(server, "/apply-template", chat)[0]["prompt"]
    tokens = call(server, "/tokenize", chat)[0]["tokens"]
    assert call(server, "/tokenize", {"prompt": text})[0]["tokens"] == tokens
    answer, _ = call(server, "/v1/chat/completions", chat | {"max_tokens": 1})
    assert answer["usage"]["prompt_tokens"] == len(tokens)


def test_metrics_are_prometheus_text(server: EngineServer) -> None:
    complete(server, "count me")
    text, kind = call(server, "/metrics")
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    samples = {sample.name: sample.value for sample in parse(text.encode()).samples}
    assert samples["hitmap_engine_requests_received_total"] >= 1


def test_an_empty_cache_finds_nothing(server: EngineServer) -> None:
    prompt = f"{next(_numbers)} " + "will be forgotten, all of it. " * 8
    cached = []
    for path in (None, None, "/reset_prefix_cache"):
        if path:
            call(server, path, method="POST")
        cached.append(complete(server, prompt)["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == cached[2] == 0 < cached[1]


def test_health_and_version(server: EngineServer) -> None:
    assert call(server, "/health")[0] == ""
    assert call(server, "/health", method="HEAD")[0] == ""
    told = call(server, "/version")[0]
    assert told.pop("version")
    assert told == {"service_name": "hitmap-engine", "service_instance_id": server.telemetry.instance_id}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_health_fails_once_the_core_is_dead_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        monkeypatch.setattr(server.engine._stepper, "step", sys.exit)
        with pytest.raises(urllib.error.HTTPError) as failed:
            complete(server, "whoever comes now")
        assert failed.value.code == 500
        assert eventually(lambda: not server.engine.alive)
        with pytest.raises(urllib.error.HTTPError) as failed:
            call(server, "/health")
        assert failed.value.code == 503
        assert "hitmap_engine_steps_total" in call(server, "/metrics")[0]


def test_where_kv_events_are_published(server: EngineServer) -> None:
    assert call(server, "/kv_event_sources")[0] == {}
    told = TelemetryConfig(kv_events="tcp://127.0.0.1:*", kv_replay="tcp://127.0.0.1:*")
    with serving(telemetry=told) as publishing:
        source = call(publishing, "/kv_event_sources")[0]["0"]
        assert source["enable_kv_cache_events"] is True
        assert all(source[name].startswith("tcp://127.0.0.1:") for name in ("endpoint", "replay_endpoint"))


@pytest.mark.parametrize("streamed", [False, True])
def test_the_collector_reads_the_tiers_out_of_usage(streamed: bool) -> None:
    """The prompt's blocks have gone to the host tier when it comes again; a part of it has gone from there, too."""
    with serving(settings(device_blocks=16, host_blocks=64, max_model_len=256)) as server:
        prompt = list(range(300, 300 + 8 * 16 + 5))
        complete(server, prompt)
        for start in (600, 900):
            complete(server, list(range(start, start + 12 * 16)))
        if streamed:
            asked = {
                "prompt": prompt,
                "max_tokens": 4,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            response = stream.joined(stream.events(call(server, "/v1/completions", asked)[0]))
        else:
            response = complete(server, prompt)
    told = usage.read(response)
    assert told["prompt_tokens"] == len(prompt)
    assert told["completion_tokens"] == 4
    assert told["cached_tokens"] == 8 * 16
    assert told["device_tokens"] + told["host_tokens"] == 8 * 16
    assert told["host_tokens"] > 0
    assert told["remote_tokens"] == 0
