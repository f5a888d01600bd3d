"""SGLang: how it is recognised, what attach says of it and the flags it names, where its KV events are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Capability, KvSource, kv_addresses
from collector.dialects.sglang.capabilities import Evidence, capabilities
from collector.dialects.sglang.detect import kv_sources
from collector.kv.endpoints import kv_endpoints
from collector.pipeline import Pipeline
from tests.collector.publisher import Frames, Publisher
from tests.collector.servers import sglang
from tests.collector.support import HASHER, Server, wait_until
from tests.conftest import Database


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
        **kv_addresses(detection.url),
    }
    assert any(note.startswith("prefix_cache.last_batch_hit_ratio: every batch") for note in detection.notes)


def test_one_total_is_no_count_by_tier() -> None:
    row = table(sglang.old())["cached tokens by tier (device, host, storage)"]
    assert (row.seen, row.evidence, row.flag) == (False, "a counter of one total", "a newer SGLang")


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
    rows = capabilities(Evidence("http://127.0.0.1:1", "127.0.0.1:4317", 0, set(), False, info, sources))
    assert all(row.evidence for row in rows)


@pytest.mark.parametrize(("binds", "hitmap_binds"), [(True, False), (False, True)])
def test_who_binds_is_the_servers_to_say(binds: bool, hitmap_binds: bool) -> None:
    config = json.dumps({"publisher": "zmq", "endpoint": "tcp://127.0.0.1:5557", "bind": binds})
    with sglang.new(kv_events_config=config) as server:
        endpoints = kv_endpoints(detect(server.url), AttachOptions("s"))
    followed = (
        [] if hitmap_binds else [("tcp://127.0.0.1:5557", False)]
    )  # hitmap binds where a person says so
    assert [(endpoint.events, endpoint.bind) for endpoint in endpoints] == followed


# -- its KV events, in its own words

A, B, C, D = -(1 << 63), -2, 1 << 62, -7_450_580_596_923_828_125  # SGLang's hashes are signed


def unsigned(signed: int) -> int:
    return signed % (1 << 64)


def pages(hashes: list[int], parent: int | None, medium: str = "GPU") -> dict[str, Any]:
    """One event of consecutive pages of four tokens each."""
    return {
        **{"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "block_size": 4},
        **{"token_ids": list(range(4 * len(hashes))), "lora_id": None, "medium": medium},
        **{"cache_salt": "tenant-1", "session_id": "chat-7"},
    }


def frames(seq: int, *events: dict[str, Any]) -> Frames:
    batch = [
        1_795_953_914.25 + seq,
        list(events),
        0,
    ]  # always three long: the last is the attention's DP rank
    return [b"kv", seq.to_bytes(8, "big"), msgspec.msgpack.encode(batch)]


MESSAGES = [
    frames(0, pages([A, B, C], None)),
    frames(1, pages([D], C)),
    frames(2, pages([A, B], None, "CPU_PINNED")),
    frames(3, {"type": "BlockRemoved", "block_hashes": [D, C], "medium": "GPU"}),
]


def test_its_kv_events_are_followed_where_it_says_they_are(db: Database, tmp_path: Path) -> None:
    """The publisher binds a concrete address, which only `bind` tells; two messages come by replay, whose replies have
    no topic, and two live."""
    with Publisher(old_replies=True) as publisher, Pipeline(db.dsn, tmp_path) as pipeline:
        config = {"publisher": "zmq", "endpoint": publisher.events, "replay_endpoint": publisher.replay}
        publisher.send(MESSAGES[:2], lose=range(2))
        with sglang.new(kv_events_config=json.dumps({**config, "bind": True})) as server:
            detection = detect(server.url)
            with Attachment(
                detection, AttachOptions("s", interval_s=9), pipeline.sink, hasher=HASHER
            ) as attachment:
                publisher.wait_for_subscriber()
                publisher.send(MESSAGES[2:])
                wait_until(lambda: attachment.status()[1].counts.get("messages") == 4, timeout_s=30)
                assert not attachment.status()[1].counts["missing"]
    rows = db.client.query(
        "SELECT seq, action, block, parent, depth, tier, token_count, block_size FROM kv_events ORDER BY seq, pos"
    ).result_rows
    a, b, c, d = map(unsigned, (A, B, C, D))
    assert rows == [
        (0, "stored", a, None, 0, "device", 4, 4),
        (0, "stored", b, a, 1, "device", 4, 4),
        (0, "stored", c, b, 2, "device", 4, 4),
        (1, "stored", d, c, 3, "device", 4, 4),
        (2, "stored", a, None, 0, "host", 4, 4),
        (2, "stored", b, a, 1, "host", 4, 4),
        (3, "removed", d, None, 3, "device", None, None),
        (3, "removed", c, None, 2, "device", None, None),
    ]
    resident = "SELECT tier, groupArray(block) FROM kv_residency WHERE resident GROUP BY tier ORDER BY tier"
    held = {tier: set(blocks) for tier, blocks in db.client.query(resident).result_rows}
    assert held == {"device": {a, b}, "host": {a, b}}
    everything = str(db.client.query("SELECT * FROM kv_events").result_rows)
    assert "tenant-1" not in everything
    assert "chat-7" not in everything
