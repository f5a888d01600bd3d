"""TensorRT-LLM: what attach says without draining anything, its metrics in tokens and blocks, iterations, spans."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Capability
from collector.dialects.trtllm.stats import read_stats
from collector.finaliser import Finaliser
from collector.pipeline import Pipeline
from collector.sink import Entry
from collector.spool import Spool
from tests.collector.publisher import Publisher
from tests.collector.servers import trtllm
from tests.collector.servers.trtllm import TrtllmServer
from tests.collector.spans import exported, span
from tests.collector.support import HASHER, take, text, wait_until
from tests.conftest import Database

YAML = "in the YAML of --config (before: --extra_llm_api_options): "


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.sqlite")
    yield opened
    opened.close()


def table(server: TrtllmServer) -> dict[str, Capability]:
    with server:
        detection = detect(server.url)
        assert detection.kind == "trtllm"
        assert server.drained == 0, "whoever reads /metrics there lost nothing"
        assert server.events_drained == 0
    return {capability.signal: capability for capability in detection.capabilities}


def test_what_a_new_one_tells() -> None:
    rows = table(trtllm.new())
    assert [signal for signal, row in rows.items() if row.seen] == [
        "metrics",
        "block reuse (the prefix cache)",
        "prefix-cache hits, in tokens",
        "prefix-cache hits, in blocks",
        "cached tokens by tier (device, host)",
        "bytes moved between device and host",
        "queue, prefill and decode time as histograms",
    ]
    assert "--drain" in rows["statistics of each iteration"].flag
    assert "event_buffer_max_size" in rows["KV-cache events"].flag
    assert "otlp_traces_endpoint: http://127.0.0.1:4317" in rows["request spans (latency by layer)"].flag


def test_what_builds_with_five_metrics_tell() -> None:
    rows = table(trtllm.old())
    assert rows["metrics"].seen
    stages = rows["queue, prefill and decode time as histograms"]
    assert (stages.seen, stages.evidence) == (False, "queue time only")
    hits = rows["prefix-cache hits, in tokens"]
    assert hits.seen is False
    assert stages.flag == hits.flag == f"TensorRT-LLM 1.2 or newer, then {YAML}return_perf_metrics: true"
    assert rows["block reuse (the prefix cache)"].seen is None


def test_what_one_without_metrics_tells() -> None:
    rows = table(trtllm.bare())
    for signal in ("metrics", "prefix-cache hits, in tokens", "queue, prefill and decode time as histograms"):
        row = rows[signal]
        assert (row.seen, row.flag) == (False, f"{YAML}return_perf_metrics: true"), "1.2.0 is new enough"


def test_block_reuse_that_is_off_is_said() -> None:
    server = trtllm.new()
    server.answers["/prometheus/metrics"] = text(trtllm.all_metrics(reuse="False"))
    row = table(server)["block reuse (the prefix cache)"]
    assert (row.seen, row.flag) == (False, f"{YAML}kv_cache_config: {{enable_block_reuse: true}}")


@pytest.mark.parametrize("prefix", ["trtllm_", "", "both"])
def test_names_with_and_without_the_prefix_are_one(prefix: str, spool: Spool) -> None:
    both = trtllm.all_metrics() + trtllm.all_metrics("")
    with TrtllmServer(both if prefix == "both" else trtllm.all_metrics(prefix), "1.4") as server:
        with Attachment(
            detect(server.url), AttachOptions("s", interval_s=9), spool, hasher=HASHER
        ) as attachment:
            wait_until(lambda: attachment.status()[0].counts.get("rows"))
        assert server.drained == 0
    series = {row["fingerprint"]: row for row in take(spool, "series")}
    figures: dict[str, list[float]] = {}
    for row in take(spool, "samples"):
        figures.setdefault(series[row["fingerprint"]]["metric"], []).append(row["value"])
    assert figures["prompt_tokens"] == [4800]
    assert figures["cached_tokens"] == [3200]
    assert sorted(figures["cached_tokens_by_tier"]) == [640, 2560]
    assert (figures["prefix_cache.hit_blocks"], figures["prefix_cache.miss_blocks"]) == ([50], [25])
    assert (figures["prefill_time.sum"], figures["queue_time.sum"], figures["e2e.count"]) == (
        [2.0],
        [1.5],
        [12],
    )
    units = {row["metric"]: row["unit"] for row in series.values()}
    assert (units["cached_tokens"], units["prefix_cache.hit_blocks"]) == ("tokens", "blocks")
    sources = {row["labels"]["source"] for row in series.values() if row["metric"] == "cached_tokens_by_tier"}
    assert sources == {"device", "host"}


def test_iterations_are_drained_only_when_asked(spool: Spool) -> None:
    with trtllm.new() as server:
        detection = detect(server.url)
        with Attachment(detection, AttachOptions("s", interval_s=0.05), spool, hasher=HASHER) as attachment:
            wait_until(lambda: attachment.status()[0].counts.get("scrapes", 0) > 1)
        assert server.drained == 0
        known = take(spool, "series")
        take(spool, "samples")
        with Attachment(
            detection, AttachOptions("s", interval_s=0.05, drain=True), spool, hasher=HASHER
        ) as attachment:
            status = next(s for s in attachment.sources if "iteration" in s.status().source).status
            wait_until(lambda: status().counts.get("polls", 0) > 2)
            wait_until(lambda: status().state == "running")  # an empty list is a normal answer
    series = {row["fingerprint"]: row for row in known + take(spool, "series")}
    rows = [row | series[row["fingerprint"]] for row in take(spool, "samples")]
    told = {
        name: [(row["value"], row["delta"]) for row in rows if row["metric"] == f"stats.{name}"]
        for name in ("iteration", "hit_blocks", "miss_blocks", "prefill_tokens")
    }
    assert told["iteration"] == [(7, None), (8, None), (9, None)]
    assert told["hit_blocks"] == [(4, None), (6, 2.0), (12, 6.0)]
    assert told["miss_blocks"] == [(4, None), (4, 0.0), (4, 0.0)]
    assert told["prefill_tokens"] == [(256, None)] * 3
    times = [row["time"] for row in rows if row["metric"] == "stats.iteration"]
    assert [round(b - a, 4) for a, b in pairwise(times)] == [0.02, 0.03]


def stored(event_id: int, blocks: list[int], parent: int | None) -> dict[str, Any]:
    tokens = [{"token_id": n, "token_extra_id": 0} for n in range(4)]
    told = [
        {"type": "stored_block", "block_hash": block, "tokens": tokens, "cache_level": 0, "priority": 35}
        for block in blocks
    ]
    return {
        "event_id": event_id,
        "data": {"type": "stored", "parent_hash": parent, "blocks": told},
        "window_size": 128,
    }


def test_kv_events_are_drained_only_when_asked(spool: Spool) -> None:
    with trtllm.new() as server:
        removed = {"event_id": 2, "data": {"type": "removed", "block_hashes": [11]}, "window_size": 128}
        server.events = [stored(0, [10], None), stored(1, [11], 10), removed]
        detection = detect(server.url)
        options = AttachOptions("s", interval_s=0.05, drain=True)
        with Attachment(detection, options, spool, hasher=HASHER) as attachment:
            wait_until(lambda: server.events_drained > 1)
            wait_until(lambda: any("3 events" in status.detail for status in attachment.status()))
    rows = [(row["action"], row["block"], row.get("parent")) for row in take(spool, "kv_events")]
    assert rows == [("stored", 10, None), ("stored", 11, 10), ("removed", 11, None)]


class RankPublisher(Publisher):
    """A publisher of one data-parallel rank: also at ports that are chosen, since a rank's are the base's plus its
    number."""

    def listen(self, events: int, replay: int) -> None:
        self._pub.bind(f"tcp://127.0.0.1:{events}")
        self._router.bind(f"tcp://127.0.0.1:{replay}")


def ports(count: int) -> int:
    """The first of so many free ports in a row."""
    for base in range(21_000, 31_000, count):
        with ExitStack() as taken:
            try:
                for port in range(base, base + count):
                    taken.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return base
    raise AssertionError("no free ports in a row")


def pushed(seq: int, rank: int, *events: dict[str, Any]) -> list[bytes]:
    """A message as KV cache manager V2 publishes it: vLLM's three frames."""
    batch = [1_795_953_914.25 + seq, list(events), rank]
    return [b"kv", seq.to_bytes(8, "big"), msgspec.msgpack.encode(batch)]


def chain(blocks: list[int], parent: int | None = None) -> dict[str, Any]:
    tokens = list(range(32 * len(blocks)))
    about = {"type": "BlockStored", "block_hashes": blocks, "parent_block_hash": parent}
    return {**about, "token_ids": tokens, "block_size": 32, "medium": "GPU"}


def test_kv_events_that_it_publishes_itself_are_taken_of_every_rank(db: Database, tmp_path: Path) -> None:
    """With the publisher on, /kv_cache_events gives an empty list for ever: asked all the same, it adds nothing."""
    high = (1 << 64) - 1
    base = ports(4)
    with RankPublisher() as first, RankPublisher() as second, trtllm.new() as server:
        for rank, publisher in enumerate((first, second)):
            publisher.listen(base + rank, base + 2 + rank)
        first.send([pushed(0, 0, chain([10, high]))], lose=[0])
        options = AttachOptions(
            "s",
            interval_s=0.05,
            drain=True,
            kv_events=f"tcp://127.0.0.1:{base}",
            replay=f"tcp://127.0.0.1:{base + 2}",
            kv_bind=False,
            kv_ranks=2,
        )
        with (
            Pipeline(db.dsn, tmp_path) as pipeline,
            Attachment(detect(server.url), options, pipeline.sink, hasher=HASHER) as attachment,
        ):
            for publisher in (first, second):
                publisher.wait_for_subscriber()
            first.send([pushed(1, 0, {"type": "BlockRemoved", "block_hashes": [high], "medium": "GPU"})])
            second.send([pushed(0, 1, chain([10])), pushed(1, 1, chain([12], 10))])

            def messages(source: str) -> int:
                found = (
                    status.counts.get("messages", 0)
                    for status in attachment.status()
                    if status.source == source
                )
                return next(found)

            wait_until(lambda: messages("kv events s") == 2, timeout_s=30)
            wait_until(lambda: messages("kv events s rank 1") == 2, timeout_s=30)
            wait_until(lambda: server.events_drained > 1)
            assert messages("kv events s (drained)") == 0
    query = "SELECT rank, source, action, block, parent, depth, tier FROM kv_events ORDER BY rank, seq, pos"
    assert db.client.query(query).result_rows == [
        (0, "kv", "stored", 10, None, 0, "device"),
        (0, "kv", "stored", high, 10, 1, "device"),
        (0, "kv", "removed", high, None, 1, "device"),
        (1, "kv", "stored", 10, None, 0, "device"),
        (1, "kv", "stored", 12, 10, 1, "device"),
    ]
    resident = "SELECT rank, block FROM kv_residency WHERE resident ORDER BY rank, block"
    assert db.client.query(resident).result_rows == [(0, 10), (1, 10), (1, 12)]


def test_iterations_without_latency_keep_their_order() -> None:
    readings = list(read_stats([{"iter": 1}, {"iter": 2, "iterLatencyMS": "x"}, {"iter": 3}], 1000))
    assert [reading.time_us for reading in readings] == [998, 999, 1000]


@pytest.mark.parametrize("answer", [{}, [1], "text", None])
def test_what_is_no_list_of_iterations_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="no list of iterations"):
        list(read_stats(answer, 1000))


def test_spans_become_requests(db: Any, tmp_path: Path) -> None:
    attributes: dict[str, str | int | float] = {
        "gen_ai.request.id": "7",
        "gen_ai.latency.time_to_first_token": 0.5,
        "gen_ai.latency.e2e": 2.0,
        "gen_ai.latency.time_in_queue": 0.125,
        "gen_ai.usage.prompt_tokens": 400,
        "gen_ai.usage.completion_tokens": 20,
        "gen_ai.response.finish_reasons": json.dumps(["stop"]),
    }
    unknown = attributes | {"gen_ai.request.id": "8", "gen_ai.latency.time_in_queue": -1}
    made = [
        span(values, scope="trt.llm", name="llm_request", service="trt", span_id=number)
        for number, values in enumerate((attributes, unknown), start=1)
    ]
    with Pipeline(db.dsn, tmp_path, finaliser=partial(Finaliser, grace_s=0)) as pipeline:
        pipeline.sink.put([Entry("traces", exported(*made), 2)])
    rows = db.client.query(
        "SELECT dialect, request_id, ttft_us, e2e_us, queue_us, prefill_us, decode_us, frontend_us, other_us,"
        " prompt_tokens, cached_tokens, completion_tokens, finish_reason FROM requests ORDER BY request_id"
    ).result_rows
    assert rows == [
        ("trtllm", "7", 500_000, 2_000_000, 125_000, 375_000, 1_500_000, None, 0, 400, None, 20, "stop"),
        ("trtllm", "8", 500_000, 2_000_000, None, None, 1_500_000, None, None, 400, None, 20, "stop"),
    ]
