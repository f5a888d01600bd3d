"""LMCache: in an engine's process beside the engine's metrics, as a server of its own, in the engine's log."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from collector.attach import detect
from collector.detection import Capability, LineReader
from collector.dialects.lmcache.detect import canonical_names
from collector.dialects.lmcache.log import reader
from collector.dialects.lmcache.metrics import METRICS
from collector.finaliser import Finaliser
from tests.collector.servers import lmcache, vllm
from tests.collector.servers.watched import growth, latest, units, watch
from tests.collector.spans import exported, insert, span
from tests.collector.support import Server, text
from tests.conftest import Database


def table(server: Server, kind: str) -> dict[str, Capability]:
    with server:
        detection = detect(server.url)
    assert detection.kind == kind
    return {capability.signal: capability for capability in detection.capabilities}


# -- attach


def test_in_the_process_it_is_the_engines_with_rows_of_its_own() -> None:
    with lmcache.in_vllm() as server:
        detection = detect(server.url)
    assert (detection.kind, detection.version) == ("vllm", "0.32.0")
    assert detection.facts["connector"] == "LMCache"
    assert detection.facts["block_size"] == "32"
    rows = {capability.signal: capability for capability in detection.capabilities}
    assert rows["prefix-cache hits"].seen
    assert [signal for signal, row in rows.items() if signal.startswith("LMCache") and row.seen] == [
        "LMCache: tokens looked up and found",
        "LMCache: tokens loaded",
        "LMCache: time to load",
    ]
    assert rows["LMCache: hits by request"].flag == "hitmap attach --server-log FILE"
    assert any("production-stack issue 818" in note for note in detection.notes)
    assert any(note.startswith("kv_cache.usage") for note in detection.notes), "the engine's notes stay"


def test_an_engine_without_it_has_no_such_rows() -> None:
    assert not [signal for signal in table(vllm.recorded(), "vllm") if "LMCache" in signal]


def test_its_server() -> None:
    rows = table(lmcache.server(), "lmcache")
    assert [signal for signal, row in rows.items() if row.seen] == [
        "metrics",
        "tokens looked up and found",
        "hits by tier (host, remote)",
        "what L1 reads, writes and evicts (chunks)",
    ]
    spans = rows["spans of lookups, loads and writes"]
    assert (spans.seen, spans.flag) == (None, "--enable-tracing --otlp-endpoint http://127.0.0.1:4317")


def test_a_server_whose_metrics_are_elsewhere_says_where() -> None:
    with lmcache.api() as server:
        detection = detect(server.url)
    assert (detection.kind, detection.version, detection.metrics_url) == ("lmcache", "0.5.6-abcdef", "")
    row = detection.capabilities[0]
    assert (row.signal, row.seen) == ("metrics", False)
    assert row.flag.startswith("hitmap attach http://127.0.0.1:9090")
    told = {row.signal: (row.seen, row.flag) for row in detection.capabilities}
    for signal in (
        "tokens looked up and found",
        "hits by tier (host, remote)",
        "what L1 reads, writes and evicts (chunks)",
    ):
        assert told[signal] == (False, row.flag), "it is where the metrics are"


# -- metrics


def test_figures_of_its_server(db: Database, tmp_path: Path) -> None:
    watch(db.dsn, tmp_path, lmcache.server(), [lmcache.server_metrics(n) for n in (2, 5)])
    grown = growth(db.client)
    assert {name: value for name, value in grown.items() if ".bucket" not in name} == {
        "lmcache.lookup.query_tokens": 3 * 1024,
        "lmcache.lookup.hit_tokens": 3 * 768,
        "lmcache.lookup.host_tokens": 3 * 512,
        "lmcache.lookup.remote_tokens": 3 * 256,
        "lmcache.lookup.requests": 3,
        "lmcache.host.read_chunks": 3 * 2,
        "lmcache.retrieve.chunks": 3 * 3,
        "lmcache.remote.written_chunks": 3 * 4,
        "lmcache.host.lifetime.sum": 3 * 30,
        "lmcache.host.lifetime.count": 3,
        "lmcache.remote.read_speed.sum": 3 * 2.5,
        "lmcache.remote.read_speed.count": 3,
    }
    told = units(db.client)
    assert told["lmcache.lookup.hit_tokens"] == "tokens"
    assert told["lmcache.host.read_chunks"] == "chunks"
    assert told["lmcache.remote.read_speed.sum"] == "GB/s"


def test_figures_in_the_process_beside_the_engines(db: Database, tmp_path: Path) -> None:
    bodies = [vllm.METRICS + lmcache.in_process_metrics(n) for n in (2, 5)]
    watch(db.dsn, tmp_path, lmcache.in_vllm(), bodies)
    grown = growth(db.client)
    assert {name: value for name, value in grown.items() if ".bucket" not in name} == {
        "lmcache.lookup.query_tokens": 3 * 1024,
        "lmcache.lookup.hit_tokens": 3 * 768,
        "lmcache.retrieve.query_tokens": 3 * 768,
        "lmcache.retrieve.hit_tokens": 3 * 640,
        "lmcache.store.tokens": 3 * 256,
        "lmcache.remote.read_bytes": 3 * 4096,
        "lmcache.retrieve.time.sum": pytest.approx(3 * 0.02),
        "lmcache.retrieve.time.count": 3,
        "lmcache.remote.read_time.sum": 3 * 7,
        "lmcache.remote.read_time.count": 3,
        "lmcache.request.lifespan.sum": 3 * 3,
        "lmcache.request.lifespan.count": 3,
    }
    told = units(db.client)
    assert told["lmcache.retrieve.time.sum"] == "s"
    assert told["lmcache.remote.read_time.sum"] == "ms"
    assert told["lmcache.request.lifespan.sum"] == "min"
    assert latest(db.client)["lmcache.lookup.hit_ratio_gauge"] == [0.75]
    assert told["prompt_tokens"] == "tokens", "the engine's are known as ever"


def test_a_reset_at_run_time_loses_no_growth(db: Database, tmp_path: Path) -> None:
    """reset_counters between the second and the third scrape: 3 requests before it, 4 after."""
    watch(
        db.dsn, tmp_path, lmcache.in_vllm(), [vllm.METRICS + lmcache.in_process_metrics(n) for n in (2, 5, 4)]
    )
    grown = growth(db.client)
    assert grown["lmcache.lookup.hit_tokens"] == (3 + 4) * 768
    assert "prompt_tokens" not in grown, "the engine did not restart: nothing of its own is counted anew"


@pytest.mark.parametrize(
    ("raw", "metric"),
    [
        ("lmcache:num_lookup_hits", "lmcache.lookup.hit_tokens"),
        ("lmcache_mp_lookup_hit_tokens", "lmcache.lookup.hit_tokens"),
        ("lmcache_mp_lookup_hit", "lmcache.lookup.hit_tokens"),
        ("lmcache_mp.lookup_hit", "lmcache.lookup.hit_tokens"),
        ("lmcache_mp_num_chunks_loaded", "lmcache.retrieve.chunks"),
        ("lmcache_mp_l0_block_lifetime_seconds", "kv_block.lifetime"),
        ("lmcache_mp.l0_block_lifetime", "kv_block.lifetime"),
    ],
)
def test_one_name_in_both_modes_and_over_otlp(raw: str, metric: str) -> None:
    assert canonical_names([raw])[raw].name == metric


def test_every_instrument_of_the_server_is_known_over_otlp_too() -> None:
    for metric in METRICS:
        raws = [alias.raw for alias in metric.aliases]
        assert any(raw.startswith("lmcache_mp_") for raw in raws) == any(
            raw.startswith("lmcache_mp.") for raw in raws
        )


# -- spans


def test_its_spans_explain_and_are_no_requests(db: Database) -> None:
    attributes = {"session_id": "chatcmpl-1", "hit_tokens": 768, "requested_tokens": 1024}
    batch = [
        span(attributes, name=name, scope="lmcache_mp.server", service="lmcache", span_id=number)
        for number, name in enumerate(("request", "mp.lookup_prefetch", "mp.retrieve", "mp.store"), 1)
    ]
    insert(db.client, "traces", "b1", exported(*batch))
    Finaliser(db.client).finalise("traces", "b1")
    assert db.client.query("SELECT count() FROM requests").result_rows == [(0,)]
    kept = "SELECT SpanAttributes['hit_tokens'] FROM otel_traces WHERE SpanName = 'request'"
    assert db.client.query(kept).result_rows == [("768",)]


# -- log

LOG = """\
(EngineCore_0 pid=7) \x1b[32;20m[2026-11-29 12:00:00,123] LMCache INFO:\x1b[0m Reqid: chatcmpl-1, Total tokens 1000, \
Inference Engine computed tokens: 256, LMCache hit tokens: 768, need to load: 512 (vllm_v1_adapter.py:1477)
[2026-11-29 12:00:01] LMCache INFO: Reqid: r2, Total tokens 1000, Inference Engine computed tokens: 0, \
LMCache hit tokens: 16, but need to load: 16 < min_retrieve 64, skip retrieve but record for save skip
[2026-11-29 12:00:02,500] LMCache INFO: [req_id=chatcmpl-1] Retrieved 512 out of 512 out of total 1000 tokens
[2026-11-29 12:00:03,500] LMCache INFO: [req_id=chatcmpl-1] Stored 232 out of total 1000 tokens. size: 0.1000 GB, \
cost 12.5000 ms, throughput: 8.0000 GB/s; offload_time: 10.0000 ms, put_time: 2.5000 ms
[2026-11-29 12:00:04,500] LMCache INFO: Creating LMCacheEngine instance vllm-instance
INFO 11-29 12:00:05 [loggers.py:1] Reqid: r9, Total tokens 1000
"""


def events(read: LineReader, lines: str) -> list[tuple[str, float, dict[str, Any]]]:
    """Name, seconds after noon (local time) and attributes of each event."""
    noon = datetime.fromisoformat("2026-11-29 12:00:00").timestamp()
    found = []
    for line in lines.splitlines():
        for entry in read(line, 1_796_000_000.0):
            (logs,) = ExportLogsServiceRequest.FromString(entry.payload).resource_logs
            (record,) = logs.scope_logs[0].log_records
            values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}
            found.append((record.event_name, round(record.time_unix_nano / 1e9 - noon, 6), values))
    return found


def test_log_lines() -> None:
    assert events(reader("s"), LOG) == [
        (
            "lmcache.lookup",
            0.123,
            {
                **{"request_id": "chatcmpl-1", "prompt_tokens": 1000, "engine_cached_tokens": 256},
                **{"hit_tokens": 768, "load_tokens": 512, "load_skipped": False},
            },
        ),
        (
            "lmcache.lookup",
            1.0,
            {
                **{"request_id": "r2", "prompt_tokens": 1000, "engine_cached_tokens": 0},
                **{"hit_tokens": 16, "load_tokens": 16, "load_skipped": True},
            },
        ),
        (
            "lmcache.retrieved",
            2.5,
            {"request_id": "chatcmpl-1", "tokens": 512, "required_tokens": 512, "total_tokens": 1000},
        ),
        (
            "lmcache.stored",
            3.5,
            {"request_id": "chatcmpl-1", "tokens": 232, "total_tokens": 1000, "cost_ms": 12.5},
        ),
    ]


SGLANG = "# TYPE sglang:page_size gauge\nsglang:page_size 64\n"


@pytest.mark.parametrize(
    ("metrics", "kind", "line", "event"),
    [
        (SGLANG, "sglang", "[2026-11-29 12:00:00 TP0] Cache flushed successfully!", "sglang.cache_flushed"),
        (
            vllm.METRICS,
            "vllm",
            "(EngineCore pid=7) INFO 11-29 12:00:00 [block_pool.py:1] Successfully reset prefix cache",
            "vllm.prefix_cache_reset",
        ),
    ],
)
def test_the_engines_log_is_read_for_both(metrics: str, kind: str, line: str, event: str) -> None:
    with lmcache.in_vllm() as server:
        server.answers["/metrics"] = text(metrics + lmcache.in_process_metrics(1))
        detection = detect(server.url)
    assert detection.kind == kind
    assert detection.log_reader is not None
    names = [name for name, _, _ in events(detection.log_reader("s"), f"{line}\n{LOG}")]
    assert names == [event, "lmcache.lookup", "lmcache.lookup", "lmcache.retrieved", "lmcache.stored"]
