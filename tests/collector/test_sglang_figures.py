"""SGLang: what its metrics, spans and log become; old names and new ones, one rank and several."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from collector.dialects.sglang.detect import canonical_names
from collector.dialects.sglang.log import reader
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.pipeline import Pipeline
from collector.prometheus import parse
from collector.series import SeriesTracker
from tests.collector.servers import sglang
from tests.collector.servers.watched import growth, latest, units, watch
from tests.conftest import Database

# -- metrics


def both_prefixes(n: int) -> str:
    return sglang.new_metrics(n) + sglang.new_metrics(n, prefix="sglang_")


@pytest.mark.parametrize(
    "say",
    [sglang.new_metrics, lambda n: sglang.new_metrics(n, prefix="sglang_"), both_prefixes],
    ids=["colon", "underscore", "both at once"],
)
def test_metrics_of_a_new_server(say: Callable[[int], str], db: Database, tmp_path: Path) -> None:
    watch(db.dsn, tmp_path, sglang.new(), [say(2), say(5)])
    grown = growth(db.client)
    assert {name: value for name, value in grown.items() if "token" in name or "bytes" in name} == {
        "prompt_tokens": 3 * 1000,
        "completion_tokens": 3 * 50,
        **{f"prompt_tokens_by_source {source}": 3 * each for source, each in sglang.SOURCES.items()},
        **{
            f"cached_tokens_by_tier {tier}": 3 * sglang.SOURCES[tier] for tier in ("device", "host", "remote")
        },
        "kv_load.tokens": 3 * 128,
        "kv_load.bytes": 3 * 4096 * 2,  # each of the two ranks moves its own
        "remote_load.tokens": 3 * 32,
        "inter_token_latency.count": 3,
        "inter_token_latency.sum": pytest.approx(3 * 0.02),
        "inter_token_latency.bucket": 3,
    }
    assert grown["preemptions"] == 3
    assert grown["queue_time.sum"] == pytest.approx(3 * 0.05)
    assert grown["kv_transfer.latency.sum"] == 3 * 12.5
    gauges = latest(db.client)
    assert gauges["requests.running"] == [3.0], "the total alone, neither its parts nor a second rank"
    assert gauges["prefix_cache.last_batch_hit_ratio"] == [0.8]
    assert gauges["kv_cache.page_tokens"] == [64.0]
    told = units(db.client)
    assert told["kv_transfer.latency.sum"] == "ms"
    assert told["queue_time.sum"] == "s"
    assert "prefix_cache.hit_ratio_gauge" not in told


def test_metrics_of_an_old_server(db: Database, tmp_path: Path) -> None:
    watch(db.dsn, tmp_path, sglang.old(), [sglang.old_metrics(2), sglang.old_metrics(5)])
    grown = growth(db.client)
    assert grown["prompt_tokens"] == 3000
    assert grown["cached_tokens_by_tier"] == 2400, "without a tier: it does not say which"
    assert grown["inter_token_latency.count"] == 3
    assert latest(db.client)["kv_cache.used_tokens"] == [4096.0]


def test_both_names_of_a_metric_count_once(db: Database, tmp_path: Path) -> None:
    bodies = [
        sglang.new_metrics(n) + sglang.old_metrics(n).replace("prompt_tokens", "prompts_no_longer")
        for n in (2, 5)
    ]
    watch(db.dsn, tmp_path, sglang.new(), bodies)
    assert growth(db.client)["inter_token_latency.count"] == 3


def read_by_metric(body: str) -> dict[str, list[str]]:
    """The labels tp_rank of the series that stand for each metric."""
    batch = SeriesTracker("s", canonical_names).batch(parse(body.encode()), 1_795_953_914_000_000)
    found: dict[str, list[str]] = {}
    for row in batch.series_rows:
        found.setdefault(row["metric"], []).append(row["labels"].get("tp_rank", ""))
    return {metric: sorted(ranks) for metric, ranks in found.items() if metric}


def test_each_data_parallel_rank_counts_and_its_copies_do_not() -> None:
    """DP attention: eight TP ranks, of which 0 to 3 are one DP rank and 4 to 7 another."""
    name = "sglang:realtime_tokens_total"
    body = f"# TYPE {name} counter\n" + "".join(
        f'{name}{{dp_rank="{tp // 4}",mode="decode",pp_rank="0",tp_rank="{tp}"}} 5\n' for tp in range(8)
    )
    assert read_by_metric(body)["step.tokens_by_mode"] == ["0", "4"]


def test_the_lowest_rank_is_known_by_what_else_it_says() -> None:
    """Rank 10 shows a family a scrape earlier than rank 9, which is there with another one."""
    body = (
        "# TYPE sglang:page_size gauge\n"
        + "".join(f'sglang:page_size{{pp_rank="0",tp_rank="{rank}"}} 64\n' for rank in (10, 9))
        + '# TYPE sglang:evicted_tokens_total counter\nsglang:evicted_tokens_total{pp_rank="0",tp_rank="10"} 7\n'
    )
    found = read_by_metric(body)
    assert found["kv_cache.page_tokens"] == ["9"]
    assert "kv_cache.evicted_tokens" not in found


# -- spans


def test_spans_of_a_request_and_of_one_that_was_given_up(db: Database, tmp_path: Path) -> None:
    with Pipeline(db.dsn, tmp_path) as pipeline:
        receiver = OtlpGrpcReceiver(pipeline.sink, pipeline.tally, "127.0.0.1:0")
        receiver.start()
        provider = TracerProvider(resource=Resource.create({"service.name": "sglang-1"}))
        exporter = OTLPSpanExporter(endpoint=f"http://{receiver.endpoint}", insecure=True)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("sglang server")
        rid = "1a2b3c4d5e6f47089900aabbccddeeff"
        root = tracer.start_span(f" Req {rid[:8]}", attributes={"rid": rid, "module": "sglang::request"})
        below = trace.set_span_in_context(root)
        thread = tracer.start_span("scheduler [TP 0] (host:12345678 | pid:7)", context=below)
        tracer.start_span("prefill_forward", context=trace.set_span_in_context(thread)).end()
        thread.end()
        root.set_attributes(
            {
                **{"gen_ai.request.id": rid, "gen_ai.response.model": sglang.MODEL},
                **{"gen_ai.response.finish_reasons": '["stop"]', "gen_ai.usage.prompt_tokens": 1000},
                **{"gen_ai.usage.cached_tokens": 800, "gen_ai.usage.completion_tokens": 50},
                **{"gen_ai.latency.time_to_first_token": 0.25, "gen_ai.latency.e2e": 1.25},
                **{
                    "gen_ai.latency.time_in_model_prefill": 0.24,
                    "gen_ai.latency.time_in_model_decode": 1.0,
                },
            }
        )
        root.end()
        start = 1_795_953_914_000_000_000
        gone = tracer.start_span("prefill Req deadbeef", start_time=start, attributes={"rid": "deadbeef01"})
        gone.end(end_time=start + 70_000_000)
        provider.shutdown()
        receiver.stop()
    answer = db.client.query("SELECT * FROM requests ORDER BY request_id").named_results()
    told, given_up = answer
    expected = {
        **{"dialect": "sglang", "server": "sglang-1", "model": sglang.MODEL, "request_id": rid},
        **{"ttft_us": 250_000, "e2e_us": 1_250_000, "decode_us": 1_000_000, "finish_reason": "stop"},
        **{"queue_us": None, "prefill_us": 240_000, "frontend_us": 10_000, "other_us": 0},
        **{"prompt_tokens": 1000, "cached_tokens": 800, "completion_tokens": 50, "device_tokens": None},
    }
    assert {column: told[column] for column in expected} == expected
    expected = {
        **{"request_id": "deadbeef01", "e2e_us": 70_000, "ttft_us": None, "prefill_us": None},
        **{"cached_tokens": None, "prompt_tokens": None, "other_us": None, "finish_reason": ""},
    }
    assert {column: given_up[column] for column in expected} == expected


# -- log

NEW_LOG = """\
[2026-11-29 12:00:00 TP0] max_total_num_tokens=131072, chunked_prefill_size=8192, context_len=40960
[2026-11-29 12:00:01 DP1 TP0] Prefill batch, #new-seq: 1, #new-token: 200, #cached-token: 800, token usage: 0.01, \
#running-req: 0, #queue-req: 2, #pending-token: 900, cuda graph: False, input throughput (token/s): 1234.50
[2026-11-29 12:00:01 DP1 TP0] Prefill batch, #new-seq: 1, #new-token: 200, #cached-token: 800, token usage: 0.01, \
#running-req: 0, #queue-req: 2, #pending-token: 900, cuda graph: False, input throughput (token/s): 1234.50
[2026-11-29 12:00:02.250 TP0] Decode batch [41], #running-req: 3, #full token: 4096, full token usage: 0.03, \
accept len: 2.50, cuda graph: True, gen throughput (token/s): 77.01, #queue-req: 0
[2026-11-29 12:00:03 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 640, \
#new_token_ratio: 0.3000 -> 0.9000
[2026-11-29 12:00:04 TP0] Cache flushed successfully!
[2026-11-29 12:00:05] INFO:     127.0.0.1:50000 - "POST /generate HTTP/1.1" 200 OK
[2026-11-29 12:00:06] my prompt is: Prefill batch, #new-seq: 1
[2026-13-45 12:00:06] Cache flushed successfully!
"""
OLD_LOG = """\
[2024-11-29 12:00:01 TP0] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 93, cache hit rate: 93.00%, \
token usage: 0.00, #running-req: 0, #queue-req: 0
[2024-11-29 12:00:02 TP0] Decode batch. #running-req: 1, #token: 41, token usage: 0.00, gen throughput (token/s): 7.03
"""


def events(text: str) -> list[tuple[str, float, dict[str, Any]]]:
    """Name, seconds after the log's noon (local time) and attributes of each event."""
    read = reader("s")
    found = []
    for line in text.splitlines():
        noon = datetime.fromisoformat(f"{line[1:5]}-11-29 12:00:00").timestamp()
        for entry in read(line, 0.0):
            (logs,) = ExportLogsServiceRequest.FromString(entry.payload).resource_logs
            (record,) = logs.scope_logs[0].log_records
            values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}
            found.append((record.event_name, round(record.time_unix_nano / 1e9 - noon, 6), values))
    return found


def test_log_lines_of_a_new_server() -> None:
    batch = {
        **{"dp_rank": 1, "tp_rank": 0, "new_seq": 1, "new_token": 200, "cached_token": 800},
        **{"token_usage": 0.01, "running_req": 0, "queue_req": 2, "pending_token": 900},
        **{"cuda_graph": False, "input_throughput": 1234.5},
    }
    assert events(NEW_LOG) == [
        ("sglang.prefill_batch", 1.0, batch),
        ("sglang.prefill_batch", 1.000001, batch),
        (
            "sglang.decode_batch",
            2.25,
            {
                **{"tp_rank": 0, "step": 41, "running_req": 3, "full_token": 4096, "full_token_usage": 0.03},
                **{"accept_len": 2.5, "cuda_graph": True, "gen_throughput": 77.01, "queue_req": 0},
            },
        ),
        (
            "sglang.retract",
            3.0,
            {"tp_rank": 0, "retracted_reqs": 2, "new_tokens_gained": 640, "new_token_ratio": 0.3},
        ),
        ("sglang.cache_flushed", 4.0, {"tp_rank": 0}),
    ]


@given(st.text(max_size=60))
def test_odd_log_lines_stop_nothing(tail: str) -> None:
    for head in ("", "[2026-11-29 12:00:00] ", "[2026-11-29 12:00:00 TP0] Prefill batch, "):
        assert len(reader("s")(head + tail, 0.0)) <= 1


@pytest.mark.parametrize("year", ["0001", "1960", "2026-13", "9999"])
def test_a_time_that_cannot_be_is_no_event(year: str) -> None:
    assert reader("s")(f"[{year}-11-29 12:00:00] Cache flushed successfully!", 0.0) == ()


def test_a_huge_line_is_not_searched_to_its_end() -> None:
    line = "[2026-11-29 12:00:00 TP0] Prefill batch, #new-seq: 1, " + "a" * (1 << 20) + ": 1"
    ((_, _, told),) = events(line)
    assert told == {"tp_rank": 0, "new_seq": 1}


def test_log_lines_of_an_old_server() -> None:
    (prefill, _, told), (decode, _, numbers) = events(OLD_LOG)
    assert (prefill, decode) == ("sglang.prefill_batch", "sglang.decode_batch")
    assert (told["cached_token"], told["cache_hit_rate"]) == (93, 0.93)
    assert (numbers["token"], numbers["gen_throughput"]) == (41, 7.03)


def test_the_log_reaches_the_store_and_a_second_reading_adds_nothing(db: Database, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(NEW_LOG)
    for _ in range(2):
        watch(db.dsn, tmp_path / "spool", sglang.new(), [sglang.new_metrics(1)], server_log=log)
    query = "SELECT EventName, ServiceName, LogAttributes['cached_token'] FROM otel_logs ORDER BY Timestamp"
    rows = db.client.query(query).result_rows
    assert rows[:2] == [("sglang.prefill_batch", "s", "800")] * 2
    assert len(rows) == 5
