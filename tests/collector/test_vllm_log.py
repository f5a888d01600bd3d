"""vLLM's own log, lines of a running 0.32.0: what becomes of them, and what is left alone."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from collector.attach import Attachment, AttachOptions, detect
from collector.dialects.vllm.log import HIT_RATIO_WINDOW, reader
from collector.pipeline import Pipeline
from tests.collector.support import HASHER, Server, text, wait_until

NOW = datetime(2026, 11, 29, 18, 0).timestamp()
STATS = (
    "(APIServer pid=20241) INFO 11-29 12:05:21 [loggers.py:335] Engine 000: Avg prompt throughput: 473.4 tokens/s,"
    " Avg generation throughput: 63.2 tokens/s, Running: 4 reqs, Waiting: 0 reqs, CPU KV cache usage: 20.1%,"
    " Prefix cache hit rate: 68.6%"
)
ITERATION = (
    "(APIServer pid=20241) INFO 11-29 12:05:14 [loggers.py:199] Engine 000: Iteration(1): 2 context requests,"
    " 91 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 109.92 ms,"
    " CPU KV cache usage: 6.2%"
)
RESET = "(EngineCore pid=20709) INFO 11-29 12:05:46 [block_pool.py:861] Successfully reset prefix cache"
ABORTED = (
    "(APIServer pid=1) INFO 11-29 12:05:50 [async_llm.py:836]"
    " Aborted request(s) chatcmpl-a-97467303,chatcmpl-b-0badcafe."
)


def read(line: str, now_s: float = NOW) -> list[tuple[str, datetime, dict[str, Any]]]:
    """Name, local time and attributes of each event of a line."""
    found = []
    for entry in reader("s")(line, now_s):
        (logs,) = ExportLogsServiceRequest.FromString(entry.payload).resource_logs
        (record,) = logs.scope_logs[0].log_records
        values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}
        found.append((record.event_name, datetime.fromtimestamp(record.time_unix_nano / 1e9), values))
    return found


def test_the_line_of_every_ten_seconds_says_over_what_its_hit_rate_is() -> None:
    expected = {
        "engine": 0,
        "computed_prompt_tokens_per_s": 473.4,
        "generated_tokens_per_s": 63.2,
        "running": 4,
        "waiting": 0,
        "kv_cache_usage": 0.201,
        "prefix_hit_ratio": 0.686,
        "hit_ratio_window": HIT_RATIO_WINDOW,
    }
    assert read(STATS) == [("vllm.engine_stats", datetime(2026, 11, 29, 12, 5, 21), expected)]


def test_further_parts_of_that_line() -> None:
    line = STATS.replace("Waiting: 0 reqs", "Waiting: 2 reqs, Deferred: 1 reqs, Preemptions: 3").replace(
        "CPU", "GPU"
    )
    ((_, _, values),) = read(line + ", External prefix cache hit rate: 98.5%, MM cache hit rate: 92.0%")
    more = {"waiting": 2, "deferred": 1, "preemptions": 3, "external_hit_ratio": 0.985, "mm_hit_ratio": 0.92}
    assert more.items() <= values.items()
    assert values["kv_cache_usage"] == 0.201


def test_without_a_hit_rate_there_is_no_window() -> None:
    ((_, _, values),) = read(STATS.partition(", Prefix")[0])
    assert not {"prefix_hit_ratio", "hit_ratio_window"} & values.keys()


def test_an_iteration() -> None:
    expected = {
        "engine": 0,
        "iteration": 1,
        "context_requests": 2,
        "context_tokens": 91,
        "generation_requests": 1,
        "generation_tokens": 1,
        "elapsed_ms": 109.92,
        "kv_cache_usage": 0.062,
    }
    assert read(ITERATION) == [("vllm.iteration", datetime(2026, 11, 29, 12, 5, 14), expected)]


def test_a_reset_and_aborted_requests() -> None:
    assert read(RESET) == [("vllm.prefix_cache_reset", datetime(2026, 11, 29, 12, 5, 46), {})]
    ids = [(values["request_id"], values["internal_id"]) for _, _, values in read(ABORTED)]
    assert ids == [("chatcmpl-a", "chatcmpl-a-97467303"), ("chatcmpl-b", "chatcmpl-b-0badcafe")]


@pytest.mark.parametrize(
    "line",
    [
        "",
        'INFO:     127.0.0.1:5000 - "GET /metrics HTTP/1.1" 200 OK',
        "(APIServer pid=1) INFO 11-29 12:05:14 [logger.py:39] Received request c-1: prompt: 'Running: 4 reqs'",
        "(APIServer pid=1) INFO 11-29 12:05:14 [x.py:1] Engine 000: started",
        "(EngineCore pid=20709) INFO [block_pool.py:861] Successfully reset prefix cache",
    ],
)
def test_lines_that_mean_nothing(line: str) -> None:
    assert read(line) == []


@given(st.sampled_from([STATS, ITERATION, RESET, ABORTED]), st.text(max_size=30), st.integers(0, 200))
def test_no_line_stops_the_reader(line: str, text: str, position: int) -> None:
    for odd in (line[:position] + text + line[position:], text, line[position:]):
        read(odd)


@pytest.mark.parametrize(
    ("told", "now", "expected"),
    [
        ("12-31 23:59:58", datetime(2027, 1, 1, 0, 0, 5), datetime(2026, 12, 31, 23, 59, 58)),
        ("01-01 00:00:03", datetime(2026, 12, 31, 23, 59, 59), datetime(2027, 1, 1, 0, 0, 3)),
        ("02-29 10:00:00", datetime(2026, 3, 5), datetime(2024, 2, 29, 10)),
        ("02-30 10:00:00", datetime(2026, 3, 5), datetime(2026, 3, 5)),
    ],
)
def test_the_year_is_the_latest_that_does_not_lie_ahead(told: str, now: datetime, expected: datetime) -> None:
    ((_, time, _),) = read(RESET.replace("11-29 12:05:46", told), now.timestamp())
    assert time == expected


def test_a_growing_log_reaches_the_store(db: Any, run1: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lines = (STATS, "something else", ITERATION, ABORTED)
    with Server({"/metrics": text((run1 / "metrics" / "r1_10_after_mixed.txt").read_bytes())}) as server:
        detection = detect(server.url)
        options = AttachOptions("blue", server_log=log, interval_s=9)
        with (
            Pipeline(db.dsn, tmp_path / "spool") as pipeline,
            Attachment(detection, options, pipeline.sink, hasher=HASHER) as attachment,
        ):
            status = attachment.sources[-1].status
            wait_until(lambda: status().state == "waiting" and "not there yet" in status().detail)
            log.write_text("\n".join(lines) + "\n")
            wait_until(lambda: status().counts.get("rows") == 4)
            assert status().counts["other"] == 1
            assert status().detail.startswith("4 events from")
    rows = db.client.query(
        "SELECT ServiceName, ScopeName, EventName, SeverityText, Body, LogAttributes['request_id'] FROM otel_logs"
        " ORDER BY EventName, LogAttributes['request_id']"
    ).result_rows
    assert rows == [
        ("blue", "hitmap.vllm", "vllm.aborted", "INFO", "", "chatcmpl-a"),
        ("blue", "hitmap.vllm", "vllm.aborted", "INFO", "", "chatcmpl-b"),
        ("blue", "hitmap.vllm", "vllm.engine_stats", "INFO", "", ""),
        ("blue", "hitmap.vllm", "vllm.iteration", "INFO", "", ""),
    ]
