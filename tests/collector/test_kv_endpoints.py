"""What a server says of where its KV events are, and how little of that is done without asking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Capability, Detection, KvSource
from collector.kv.endpoints import MOST_RANKS, within_bounds
from collector.kv.sockets import context
from collector.kv.subscriber import KvEndpoint, KvSubscriber
from collector.spool import Spool
from tests.collector.publisher import Publisher, recorded
from tests.collector.servers import sglang
from tests.collector.support import HASHER, Server, text, wait_until

MODELS = {"data": [{"id": "m", "owned_by": "vllm"}]}


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool")
    yield opened
    opened.close()


def vllm(sources: dict[str, Any]) -> Detection:
    """What is found of a server that says this of its KV events."""
    answers = {
        "/metrics": text("vllm:num_requests_running 1\n"),
        "/v1/models": text(json.dumps(MODELS), content_type="application/json"),
        "/kv_event_sources": text(json.dumps(sources), content_type="application/json"),
    }
    with Server(answers) as server:
        return replace(detect(server.url), url="http://10.9.8.7:8000", metrics_url="")


def publishing(endpoint: str, replay: str | None = None) -> dict[str, Any]:
    return {"enable_kv_cache_events": True, "endpoint": endpoint, "replay_endpoint": replay}


def followed(detection: Detection, options: AttachOptions, spool: Spool) -> list[KvEndpoint]:
    """Where an attachment would subscribe."""
    sources = Attachment(detection, options, spool, hasher=HASHER).sources
    return [source.endpoint for source in sources if isinstance(source, KvSubscriber)]


def kv_row(detection: Detection) -> Capability:
    return next(row for row in detection.capabilities if row.signal == "KV-cache events")


@pytest.mark.parametrize(
    ("told", "events"),
    [
        ("tcp://*:5557", "tcp://10.9.8.7:5557"),
        ("tcp://[::]:5557", "tcp://10.9.8.7:5557"),
        ("tcp://[fd00::1]:5557", "tcp://[fd00::1]:5557"),
    ],
)
def test_a_publisher_that_listens_is_connected_to(told: str, events: str, spool: Spool) -> None:
    (endpoint,) = followed(vllm({"0": publishing(told, "tcp://*:5558")}), AttachOptions("s"), spool)
    assert (endpoint.events, endpoint.replay, endpoint.bind) == (events, "tcp://10.9.8.7:5558", False)


@pytest.mark.parametrize(
    "told",
    [
        "tcp://127.0.0.1:5557",  # by vLLM's rule the server connects: hitmap would have to listen
        "tcp://0.0.0.0:5557",
        "tcp://eth0:5557",
        "ipc:///tmp/precious",
        "ipc://*",
        "inproc://x",
        "pgm://eth0;239.192.1.1:5555",
        "tcp://10.0.0.1:5;*:5557",
        "tcp://*:0",
        "tcp://*:65536",
        "tcp://*:²",
        "tcp://no such host\x00*:5",
        "*",
        "",
    ],
)
@pytest.mark.parametrize("kv_bind", [None, True])
def test_nothing_is_bound_because_a_server_said_so(told: str, kv_bind: bool | None, spool: Spool) -> None:
    options = AttachOptions("s", kv_bind=kv_bind)
    assert followed(vllm({"0": publishing(told)}), options, spool) == []


def test_a_file_that_a_server_names_is_left_alone(tmp_path: Path, spool: Spool) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    config = {"publisher": "zmq", "endpoint": f"ipc://{precious}", "bind": False}
    with sglang.new(kv_events_config=json.dumps(config)) as server:
        for kv_bind in (None, True, False):
            detection = detect(server.url)
            with Attachment(
                detection, AttachOptions("s", kv_bind=kv_bind, interval_s=9), spool, hasher=HASHER
            ):
                assert precious.read_text() == "kept"


def test_a_replay_address_that_is_none_is_left_out(spool: Spool) -> None:
    (endpoint,) = followed(vllm({"0": publishing("tcp://*:5557", "ipc:///tmp/x")}), AttachOptions("s"), spool)
    assert endpoint.replay == ""


def test_what_is_not_followed_is_told_with_what_to_pass(spool: Spool) -> None:
    detection = vllm({"0": publishing("tcp://127.0.0.1:5557")})
    row = kv_row(detection)
    assert "connects to who listens" in row.evidence
    assert row.flag.endswith("hitmap attach --kv-events tcp://127.0.0.1:5557 --kv-bind")
    (status,) = Attachment(detection, AttachOptions("s"), spool, hasher=HASHER).status()
    assert (status.source, status.state) == ("kv events s", "waiting")
    assert "pass --kv-events tcp://127.0.0.1:5557 --kv-bind" in status.detail
    odd = vllm({"0": publishing("ipc:///tmp/x\x1b[31m")})
    (status,) = Attachment(odd, AttachOptions("s"), spool, hasher=HASHER).status()
    assert "pass --kv-events ENDPOINT" in status.detail
    assert "\x1b" not in status.detail + kv_row(odd).flag


def test_a_person_may_have_hitmap_listen(run1: Path, spool: Spool) -> None:
    detection = vllm({"0": publishing("tcp://127.0.0.1:5557")})
    options = AttachOptions("s", kv_events="tcp://127.0.0.1:5557", kv_bind=True)
    assert followed(detection, options, spool) == [KvEndpoint("s", "tcp://127.0.0.1:5557", bind=True)]
    options = AttachOptions("s", kv_bind=False)
    assert [e.bind for e in followed(detection, options, spool)] == [False]


def listening(endpoint: str) -> Detection:
    """A server that says that it listens there itself, as hitmap's engine does."""
    return replace(vllm({}), kv_sources=(KvSource(0, endpoint, "", "", connects=False),))


@pytest.mark.parametrize(
    ("told", "given", "kv_bind", "bind"),
    [
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5557", None, False),
        ("tcp://0.0.0.0:5557", "tcp://localhost:5557", None, False),
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5557", True, True),  # a person knows better
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:6000", None, True),  # not what the server speaks of
        ("ipc:///tmp/x", "tcp://127.0.0.1:5557", None, True),
        ("ipc:///tmp/x", "ipc:///tmp/x", None, False),  # by vLLM's rule
    ],
)
def test_nobody_listens_where_the_server_says_that_it_does(
    told: str, given: str, kv_bind: bool | None, bind: bool, spool: Spool
) -> None:
    (endpoint,) = followed(listening(told), AttachOptions("s", kv_events=given, kv_bind=kv_bind), spool)
    assert endpoint.bind is bind


def test_that_a_server_connects_does_not_make_hitmap_listen(spool: Spool) -> None:
    detection = replace(vllm({}), kv_sources=(KvSource(0, "tcp://*:5557", "", "", connects=True),))
    (endpoint,) = followed(detection, AttachOptions("s", kv_events="tcp://*:5557"), spool)
    assert not endpoint.bind


def test_the_events_of_a_server_that_listens_come_though_its_address_was_given(
    run1: Path, spool: Spool
) -> None:
    with Publisher() as publisher:
        options = AttachOptions("s", kv_events=publisher.events)
        with Attachment(listening(publisher.events), options, spool, hasher=HASHER) as attachment:
            publisher.wait_for_subscriber()
            publisher.send(recorded(run1 / "kv_events.jsonl"))
            wait_until(lambda: attachment.status()[0].counts.get("messages") == 244)
            wait_until(lambda: attachment.status()[0].state == "running")


def test_a_list_of_thousands_of_ranks_is_cut_and_told(spool: Spool) -> None:
    many = {str(rank): publishing(f"tcp://*:{20_000 + rank}") for rank in range(3000)}
    detection = vllm({**many, "²": publishing("tcp://*:1"), "9" * 5000: publishing("tcp://*:2")})
    endpoints = followed(detection, AttachOptions("s"), spool)
    assert [endpoint.rank for endpoint in endpoints] == list(range(MOST_RANKS)) == list(range(64))
    assert any("2936 of 3000" in note and "--kv-ranks" in note for note in detection.notes)


def test_a_rank_counts_once(spool: Spool) -> None:
    sources = tuple(KvSource(rank, "tcp://*:5557", "", "") for rank in (1, 0, 1))
    detection = within_bounds(replace(vllm({}), kv_sources=sources))
    assert [source.rank for source in detection.kv_sources] == [0, 1]


def test_subscribers_share_what_zeromq_needs(run1: Path, spool: Spool) -> None:
    messages = recorded(run1 / "kv_events.jsonl")[:10]
    with Publisher() as publisher:
        publisher.send(messages)
        running = [
            KvSubscriber(
                KvEndpoint(f"s{rank}", publisher.events, publisher.replay, rank=rank), spool, hasher=HASHER
            )
            for rank in range(3)
        ]
        for subscriber in running:
            subscriber.start()
        running[0].stop()  # the others go on
        for subscriber in running[1:]:
            wait_until(lambda subscriber=subscriber: subscriber.status().counts.get("messages") == 10)  # type: ignore[misc]
        assert context() is context()
        for subscriber in running:
            subscriber.stop()
