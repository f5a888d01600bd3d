"""A server is asked what it is, then its sources run: what it tells, and what becomes of what goes wrong."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect, kv_endpoints
from collector.chains.settings import ChainSettings
from collector.detection import Capability, Detection, kv_addresses
from collector.kv.subscriber import KvEndpoint
from collector.metric import version_key
from collector.otlp.check import Window
from collector.spool import Spool
from tests.collector.following import batch
from tests.collector.publisher import Publisher, recorded
from tests.collector.support import HASHER, Server, take, text, wait_until

MODELS = {"object": "list", "data": [{"id": "tiny-llama", "object": "model", "owned_by": "vllm"}]}


def vllm(metrics: bytes | str, version: str = "0.32.0", kv_sources: str | None = None) -> Server:
    """A server that answers as the recorded one did."""
    answers = {
        "/metrics": text(metrics),
        "/version": text(json.dumps({"version": version}), content_type="application/json"),
        "/v1/models": text(json.dumps(MODELS), content_type="application/json"),
    }
    if kv_sources is not None:
        answers["/kv_event_sources"] = text(kv_sources, content_type="application/json")
    return Server(answers)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.sqlite")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def metrics(run1: Path) -> bytes:
    return (run1 / "metrics" / "r1_10_after_mixed.txt").read_bytes()


def rows(detection: Detection) -> dict[str, Capability]:
    return {capability.signal: capability for capability in detection.capabilities}


def test_the_recorded_server(metrics: bytes, run1: Path) -> None:
    with vllm(metrics, kv_sources=(run1 / "kv_event_sources.json").read_text()) as server:
        detection = detect(server.url)
    assert (detection.kind, detection.version, detection.models) == ("vllm", "0.32.0", ("tiny-llama",))
    assert detection.facts["block_size"] == "32"
    assert detection.facts["num_gpu_blocks"] == "260"
    assert detection.facts["prefix_caching_hash_algo"] == "sha256"
    assert detection.facts["enable_prefix_caching"] == "True"
    assert [(s.rank, s.events, s.replay, s.topic) for s in detection.kv_sources] == [
        (0, "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558", "kv@tiny")
    ]
    table = rows(detection)
    assert {signal for signal, row in table.items() if row.seen} == {
        "metrics",
        "prefix-cache hits",
        "KV-cache events",
        "prompt tokens by source (local, external)",
        "cached tokens by tier (device, host, disk)",
        "lifetime and reuse of blocks",
        "preemptions",
    }
    assert table["queue and prefill time as histograms"].evidence.startswith("lowest bucket 0.3 s")
    assert "--custom-histogram-buckets" in table["queue and prefill time as histograms"].flag
    spans = table["request spans (latency by layer)"]
    assert spans.seen is None
    assert "--otlp-traces-endpoint http://127.0.0.1:4317" in spans.flag
    assert "--enable-prompt-tokens-details" in table["cached tokens by request"].flag
    assert table["requests the client gave up"].seen is False
    load_time = table["time to load KV from host or disk"]
    assert (load_time.seen, load_time.flag) == (
        False,
        "--kv-offloading-size GIB --kv-offloading-backend native",
    )
    connector = table["hits beyond the device (KV connector)"]
    assert (connector.seen, connector.evidence) == (
        None,
        "a counter, 0 so far: there is no connector, or none was asked yet",
    )
    assert connector.flag.startswith("--kv-offloading-size GIB")
    step = table["tokens and time of each step"]
    assert (step.seen, step.flag) == (
        None,
        "--enable-logging-iteration-details, and hitmap attach --server-log FILE",
    )
    assert any(note.startswith("kv_cache.usage") for note in detection.notes)


def test_flags_are_those_of_the_version(metrics: bytes) -> None:
    bare = "\n".join(
        line
        for line in metrics.decode().splitlines()
        if not any(name in line for name in ("kv_block_", "by_source", "external_prefix"))
    )
    with vllm(bare + "\n", version="0.8.5.post1") as server:
        old = rows(detect(server.url))
    assert old["KV-cache events"].seen is None
    assert old["KV-cache events"].flag.startswith("vLLM 0.9 or newer, then --kv-events-config '{")
    assert old["lifetime and reuse of blocks"].flag.startswith("vLLM 0.13 or newer, then --kv-cache-metrics")
    assert old["prompt tokens by source (local, external)"].flag == "vLLM 0.16 or newer"
    assert old["queue and prefill time as histograms"].flag.startswith("vLLM 0.32 or newer, then --custom-")
    with vllm(bare + "\n", kv_sources="{}") as server:
        new = detect(server.url)
    table = rows(new)
    assert table["KV-cache events"].seen is False
    flag = table["KV-cache events"].flag
    assert json.loads(flag.partition("'")[2].rpartition("'")[0]) == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        **kv_addresses(new.url),
    }
    assert table["lifetime and reuse of blocks"].flag.startswith("--kv-cache-metrics")
    assert not any("before" in note for note in new.notes)


def test_a_server_without_stats_is_recognised_by_its_models() -> None:
    with vllm("python_info 1\n") as server:
        detection = detect(server.url)
    assert rows(detection)["metrics"] == Capability(
        "metrics", False, "0 vllm: samples at /metrics", "start it without --disable-log-stats"
    )


@pytest.mark.parametrize(
    "answers",
    [
        {"/metrics": text("a 1\n")},
        {"/metrics": text("<html>", content_type="text/html"), "/v1/models": text("not json")},
        {"/v1/models": text('{"data": [1, {"id": 3, "owned_by": "someone"}]}')},
        {},
    ],
)
def test_what_is_no_server_we_know_is_said(answers: dict[str, object]) -> None:
    with Server(answers) as server, pytest.raises(UserError, match="not as a server hitmap knows"):  # type: ignore[arg-type]
        detect(server.url)


def test_unreachable_locked_and_wrong_addresses_are_said() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(UserError, match="Connection refused; is the server up"):
            detect(f"http://127.0.0.1:{unused.getsockname()[1]}")
    with Server({"/metrics": text("", status=401)}) as server:
        with pytest.raises(UserError, match=r"wants a key \(HTTP 401\): pass --api-key"):
            detect(server.url)
        with pytest.raises(UserError, match="TLS failed"):
            detect(server.url.replace("http", "https"))
    for url in ("ftp://x", "http://", "http://h:port", "http://h:99999"):
        with pytest.raises(UserError, match="is not the address of a server"):
            detect(url)


def test_versions_are_compared_by_number() -> None:
    assert version_key("0.32.0rc1+cpu") == (0, 32, 0)
    assert version_key("0.9.2") < version_key("0.10") < version_key("0.32.0")
    assert version_key("dev") == ()


@pytest.fixture(scope="module")
def detection(metrics: bytes, run1: Path) -> Detection:
    with vllm(metrics, kv_sources=(run1 / "kv_event_sources.json").read_text()) as server:
        return detect(server.url)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            AttachOptions("s"),
            [],  # the server connects, and hitmap listens for nobody because a server says so
            id="as the server says",
        ),
        pytest.param(
            AttachOptions("s", kv_events="tcp://*:5557", replay="tcp://*:5558"),
            [KvEndpoint("s", "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558", False)],
            id="a wildcard is the server's address",
        ),
        pytest.param(
            AttachOptions("s", kv_events="tcp://127.0.0.1:6000", kv_bind=False, kv_ranks=2),
            [
                KvEndpoint("s", "tcp://127.0.0.1:6000", "", False),
                KvEndpoint("s", "tcp://127.0.0.1:6001", "", False, rank=1),
            ],
            id="as the options say, by rank",
        ),
    ],
)
def test_where_kv_events_are_taken_from(
    options: AttachOptions, expected: list[KvEndpoint], detection: Detection
) -> None:
    assert kv_endpoints(detection, options) == expected


def test_an_attachment_collects_from_every_source(metrics: bytes, run1: Path, spool: Spool) -> None:
    messages = recorded(run1 / "kv_events.jsonl")
    with vllm(metrics) as server, Publisher() as publisher:
        publisher.send(messages)
        options = AttachOptions(
            "blue",
            services=("tiny", "old-name"),
            kv_events=publisher.events,
            replay=publisher.replay,
            kv_bind=False,
            log=run1 / "requests.jsonl",
            label_fields=("client_request_id",),
            interval_s=0.1,
            chains=ChainSettings(str(run1.parent / "model")),
        )
        with Attachment(detect(server.url), options, spool, hasher=HASHER) as attachment:
            wait_until(lambda: all(status.state == "running" for status in attachment.status()))
            wait_until(lambda: attachment.status()[1].counts.get("messages") == 244)
            wait_until(lambda: attachment.status()[2].counts.get("rows") == 175)
        names = [status.source for status in attachment.status()]
    assert names == ["metrics blue", "kv events blue", "request log blue", "chains blue"]
    assert len(take(spool, "chains")) == 175
    usage = take(spool, "usage")
    assert len(usage) == 175
    assert all("client_request_id" in row["labels"] for row in usage)
    assert {row["server"] for row in take(spool, "series")} == {"blue"}
    assert len(take(spool, "kv_events")) == 1215 + 938 + 1
    aliases = take(spool, "aliases")
    assert [(row["kind"], row["alias"], row["server"]) for row in aliases] == [
        ("service.name", "tiny", "blue"),
        ("service.name", "old-name", "blue"),
    ]


def test_an_alias_that_moves_back_is_stored_again(detection: Detection, spool: Spool) -> None:
    for server in ("blue", "green", "blue"):
        options = AttachOptions(server, services=("tiny",), kv_events="tcp://*:1")
        with Attachment(detection, options, spool, hasher=HASHER):
            pass
    aliases = sorted(take(spool, "aliases"), key=lambda row: row["updated"])
    assert [row["server"] for row in aliases] == ["blue", "green", "blue"]


@pytest.mark.parametrize("malformed", [False, True], ids=["in use", "malformed"])
def test_a_kv_endpoint_that_cannot_be_used_costs_only_itself(
    malformed: bool, metrics: bytes, spool: Spool
) -> None:
    with vllm(metrics) as server, socket.create_server(("127.0.0.1", 0)) as taken:
        address = "tcp://:x" if malformed else f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        options = AttachOptions("s", kv_events=address, kv_bind=True, interval_s=0.1)
        with Attachment(detect(server.url), options, spool, hasher=HASHER) as attachment:
            wait_until(lambda: [s.state for s in attachment.status()] == ["running", "failing"])
            detail = attachment.status()[1].detail
    assert detail.startswith(f"cannot listen on {address} for KV events: ")
    assert [row["server"] for row in take(spool, "servers")] == ["s"]


def test_no_source_stays_when_the_server_cannot_be_registered(detection: Detection, tmp_path: Path) -> None:
    full = Spool(tmp_path / "full", limit_bytes=1)
    attachment = Attachment(detection, AttachOptions("s", interval_s=0.05), full, hasher=HASHER)
    with pytest.raises(UserError, match=r"s: .*full"):
        attachment.start()
    assert all(source._stopping.is_set() for source in attachment.sources)  # type: ignore[attr-defined]
    full.close()


def test_who_would_have_to_listen_is_told(detection: Detection) -> None:
    row = rows(detection)["KV-cache events"]
    assert row.flag == "hitmap attach --kv-events tcp://127.0.0.1:5557 --kv-bind"


@pytest.mark.parametrize(("days", "kept"), [(400, False), (900, True)])
def test_the_window_holds_for_every_source(days: int, kept: bool, tmp_path: Path, spool: Spool) -> None:
    then = time.time() - 500 * 86_400
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"response_id": "r", "sent_unix_ns": int(then * 1e9), "prompt": "a"}) + "\n")
    metrics = f"vllm:num_requests_running 1 {int(then * 1000)}\n"
    with vllm(metrics) as server, Publisher() as publisher:
        publisher.send([[b"kv", bytes(8), batch(then, 1)]])
        options = AttachOptions(
            "s",
            kv_events=publisher.events,
            replay=publisher.replay,
            kv_bind=False,
            log=log,
            interval_s=9,
            window=Window(max_age_s=days * 86_400),
            chains=ChainSettings("approximate"),
        )
        with Attachment(detect(server.url), options, spool, hasher=HASHER) as attachment:
            states = ["running"] * 3 + ["running" if kept else "waiting"]
            wait_until(lambda: [status.state for status in attachment.status()] == states)
    assert take(spool, "kv_events")[-1]["action"] == ("stored" if kept else "unknown")
    assert len(take(spool, "usage")) == len(take(spool, "chains")) == kept
    assert sum(row["time"] < then + 1 for row in take(spool, "samples")) == 2 * kept, "the sample, and up"
