"""SGLang: how it is recognised, what attach says of it and the flags it names, where its KV events are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.attach import Attachment, AttachOptions, detect, kv_endpoints
from collector.detection import Capability, KvSource
from collector.dialects.sglang.capabilities import Evidence, capabilities
from collector.dialects.sglang.detect import kv_sources
from collector.spool import Spool
from tests.collector.publisher import Publisher, recorded
from tests.collector.servers import sglang, vllm
from tests.collector.support import Server, take, wait_until


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool")
    yield opened
    opened.close()


def table(server: Server) -> dict[str, Capability]:
    with server:
        detection = detect(server.url)
    return {capability.signal: capability for capability in detection.capabilities}


# -- attach


def test_attach_says_what_it_sees_and_keeps_no_key() -> None:
    with sglang.new() as server:
        detection = detect(server.url)
    assert (detection.kind, detection.version, detection.models) == ("sglang", "0.5.23", (sglang.MODEL,))
    assert detection.facts["page_size"] == "64"
    assert detection.facts["disable_radix_cache"] == "False"
    assert "secret" not in str(detection)
    rows = {capability.signal: capability for capability in detection.capabilities}
    assert [signal for signal, row in rows.items() if row.seen] == [
        "metrics",
        "request spans (latency, cached tokens)",
        "prefix-cache hits",
        "cached tokens by request",
        "cached tokens by tier (device, host, storage)",
        "host tier (HiCache): loads, writes, time",
        "storage tier (HiCache L3)",
        "queue and prefill apart",
        "preemptions (retracted requests)",
    ]
    flag = rows["KV-cache events"].flag
    assert flag.startswith("--kv-events-config '")
    assert json.loads(flag.partition("'")[2].rpartition("'")[0]) == {
        "publisher": "zmq",
        "endpoint": "tcp://127.0.0.1:5557",
        "replay_endpoint": "tcp://127.0.0.1:5558",
    }
    assert any(note.startswith("prefix_cache.last_batch_hit_ratio: every batch") for note in detection.notes)


def test_a_bare_server_is_told_its_flags() -> None:
    rows = table(sglang.bare())
    assert not any(row.seen for row in rows.values())
    assert rows["metrics"].flag == "--enable-metrics"
    assert rows["prefix-cache hits"].flag == "start it without --disable-radix-cache"
    assert rows["request spans (latency, cached tokens)"].flag.startswith(
        "--enable-trace --otlp-traces-endpoint 127.0.0.1:4317,"
    )
    assert "--enable-cache-report" in rows["cached tokens by request"].flag
    assert rows["host tier (HiCache): loads, writes, time"].flag == "--enable-hierarchical-cache"
    assert rows["storage tier (HiCache L3)"].flag.endswith("--hicache-storage-backend BACKEND")


def test_an_old_server_answers_under_the_old_path() -> None:
    with sglang.old() as server:
        detection = detect(server.url)
    assert detection.version == "0.4.1"
    rows = {capability.signal: capability for capability in detection.capabilities}
    assert rows["prefix-cache hits"].evidence == "a counter of cached tokens, of finished requests"
    assert rows["cached tokens by request"].flag == "a log of the responses (hitmap attach --log FILE)"
    assert rows["queue and prefill apart"].seen is False
    spans = rows["request spans (latency, cached tokens)"]
    assert (spans.seen, spans.evidence) == (False, "this version sends none")
    assert spans.flag.startswith("a newer SGLang, then --enable-trace ")
    assert rows["KV-cache events"].flag.startswith("a newer SGLang, then --kv-events-config ")


def test_spans_that_go_elsewhere_are_not_seen() -> None:
    rows = table(sglang.new(otlp_traces_endpoint="tempo:4317"))
    spans = rows["request spans (latency, cached tokens)"]
    assert (spans.seen, spans.evidence) == (False, "enable_trace, but sent to tempo:4317")
    assert spans.flag == "--otlp-traces-endpoint 127.0.0.1:4317"


def test_without_server_info_what_cannot_be_asked_is_not_denied() -> None:
    server = sglang.new()
    del server.answers["/server_info"]
    rows = table(server)
    assert rows["metrics"].seen
    assert rows["KV-cache events"].seen is None
    assert rows["request spans (latency, cached tokens)"].seen is None
    assert rows["cached tokens by request"].seen is None


CONFIG = '{"publisher": "zmq", "endpoint": "tcp://*:5557", "topic": "kv"}'


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (
            {
                "kv_events": {
                    **{"publisher": "zmq", "endpoint_host": "0.0.0.0", "endpoint_port_base": 5557},
                    **{"topic": "kv", "dp_size": 2, "block_size": 64, "replay_endpoint_port_base": 6000},
                }
            },
            [
                KvSource(0, "tcp://0.0.0.0:5557", "tcp://0.0.0.0:6000", "kv", False),
                KvSource(1, "tcp://0.0.0.0:5558", "tcp://0.0.0.0:6001", "kv", False),
            ],
        ),
        (
            {
                "kv_events": {"endpoint_host": "127.0.0.1", "endpoint_port_base": 5557, "dp_size": 1},
                "kv_events_config": '{"publisher": "zmq", "endpoint": "tcp://127.0.0.1:5557", "bind": true}',
            },
            [KvSource(0, "tcp://127.0.0.1:5557", "", "", False)],
        ),
        (
            {"kv_events": {"endpoint_host": "127.0.0.1", "endpoint_port_base": 5557, "dp_size": 1}},
            [KvSource(0, "tcp://127.0.0.1:5557", "", "", True)],
        ),
        ({"kv_events_config": CONFIG}, [KvSource(0, "tcp://*:5557", "", "kv", False)]),
        ({"kv_events_config": '{"publisher": "null"}'}, []),
        ({"kv_events_config": "not json", "kv_events": None}, []),
        ({"kv_events": {}}, []),
        ({}, []),
    ],
)
def test_kv_publishers(info: dict[str, Any], expected: list[KvSource]) -> None:
    assert list(kv_sources(info)) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
HOST = {"endpoint_host": json_values, "endpoint_port_base": json_values, "dp_size": json_values}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "kv_events": json_values | st.fixed_dictionaries(HOST),
            "kv_events_config": json_values | st.just(CONFIG),
            **dict.fromkeys(("dp_size", "enable_trace", "otlp_traces_endpoint", "version"), json_values),
            **dict.fromkeys(("disable_radix_cache", "hicache_storage_backend"), json_values),
        },
    )
)
def test_odd_answers_of_a_server_stop_nothing(info: dict[str, Any]) -> None:
    sources = kv_sources(info)
    assert len(sources) <= 1024
    rows = capabilities(Evidence("http://127.0.0.1:1", "127.0.0.1:4317", 0, set(), info, sources))
    assert all(row.evidence for row in rows)


@pytest.mark.parametrize(("binds", "hitmap_binds"), [(True, False), (False, True)])
def test_who_binds_is_the_servers_to_say(binds: bool, hitmap_binds: bool) -> None:
    config = json.dumps({"publisher": "zmq", "endpoint": "tcp://127.0.0.1:5557", "bind": binds})
    with sglang.new(kv_events_config=config) as server:
        (endpoint,) = kv_endpoints(detect(server.url), AttachOptions("s"))
    assert (endpoint.events, endpoint.bind) == ("tcp://127.0.0.1:5557", hitmap_binds)


def test_its_kv_events_are_followed_where_it_says_they_are(spool: Spool) -> None:
    """The publisher binds a concrete address, which only `bind` tells. Frames and replay are as SGLang has them; what
    the frames hold is a recording of vLLM."""
    messages = recorded(vllm.RUN1 / "kv_events.jsonl")[:40]
    with Publisher(old_replies=True) as publisher:
        config = {"publisher": "zmq", "endpoint": publisher.events, "replay_endpoint": publisher.replay}
        publisher.send(messages[:30], lose=range(30))
        with sglang.new(kv_events_config=json.dumps({**config, "bind": True})) as server:
            detection = detect(server.url)
            with Attachment(detection, AttachOptions("s", interval_s=9), spool) as attachment:
                publisher.wait_for_subscriber()
                publisher.send(messages[30:])
                wait_until(lambda: attachment.status()[1].counts.get("messages") == 40)
    rows = take(spool, "kv_events")
    assert {row["server"] for row in rows} == {"s"}
    assert len({row["seq"] for row in rows}) == 40
