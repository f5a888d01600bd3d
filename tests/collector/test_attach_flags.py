"""The flags that attach shows: made for this server, and for no other of its host."""

from __future__ import annotations

import pytest

from collector.attach import detect
from collector.detection import SERVICE_NAME, kv_addresses
from tests.collector.servers import STUBS, Stub, lmcache
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
