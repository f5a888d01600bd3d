"""The flags that attach shows: made for this server, and for no other of its host."""

from __future__ import annotations

import json

import pytest

from collector.attach import detect
from collector.detection import SERVICE_NAME, kv_addresses
from collector.fetch import get
from tests.collector.servers import STUBS, Stub, engine, lmcache
from tests.collector.support import text
from tests.collector.test_attach import rows


def test_servers_of_one_host_are_told_ports_of_their_own() -> None:
    urls = ("http://127.0.0.1:8000", "http://127.0.0.1:8001", "http://localhost:30000", "http://127.0.0.1")
    local = [address for url in urls for address in kv_addresses(url).values()]
    assert len(set(local)) == len(local)
    assert kv_addresses(urls[1]) == {
        "endpoint": "tcp://127.0.0.1:18001",
        "replay_endpoint": "tcp://127.0.0.1:28001",
    }
    assert kv_addresses("https://10.9.8.7/v1") == {
        "endpoint": "tcp://*:10443",
        "replay_endpoint": "tcp://*:20443",
    }


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.name)
def test_flags_name_the_service(stub: Stub) -> None:
    with stub.make() as server:
        open_, named = detect(server.url), detect(server.url, service="my vllm")
    assert SERVICE_NAME not in str(named)
    assert str(named).count("OTEL_SERVICE_NAME='my vllm'") == str(open_).count(SERVICE_NAME)


def test_lmcache_is_a_connector_that_tells_for_itself() -> None:
    with lmcache.in_vllm() as server:
        table = rows(detect(server.url))
    assert table["hits beyond the device (KV connector)"].seen is True
    assert table["time to load KV from host or disk"].flag == ""
    assert table["KV-cache events"].evidence.startswith("/kv_event_sources does not answer")


@pytest.mark.parametrize(
    ("sent", "failed", "seen", "evidence"),
    [
        (0, 0, True, "all layers; 0 sent so far"),
        (5, 0, True, "all layers; 5 sent so far"),
        (5, 3, True, "5 sent, 3 not taken"),
        (0, 3, False, "nobody takes them at its --otlp address: 3 lost"),
    ],
)
def test_spans_of_the_engine_that_nobody_takes(sent: int, failed: int, seen: bool, evidence: str) -> None:
    with engine.new() as server:
        body = (
            get(f"{server.url}/metrics")
            .body.decode()
            .replace('outcome="sent"} 0', f'outcome="sent"}} {sent}')
        )
        server.answers["/metrics"] = text(body.replace('outcome="failed"} 0', f'outcome="failed"}} {failed}'))
        row = rows(detect(server.url, service="mine"))["request spans (latency by layer)"]
    assert (row.seen, row.evidence) == (seen, evidence)
    assert row.flag == ("--otlp 127.0.0.1:4317" if failed else "")


def test_an_engine_says_what_it_calls_itself() -> None:
    with engine.new() as server:
        detection = detect(server.url)
        assert detection.service == "hitmap-engine"
        assert len(detection.instance) == 36
        for odd in ({}, {"service_name": 5, "service_instance_id": "x" * 300}, {"service_name": None}):
            server.answers["/version"] = text(json.dumps(odd))
            detection = detect(server.url)
            assert (detection.service, detection.instance) == ("", "")
    with engine.bare() as server:
        assert rows(detect(server.url))["request spans (latency by layer)"].flag == "--otlp 127.0.0.1:4317"
