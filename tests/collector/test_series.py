"""What becomes a series and what is left out: names, times, bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from collector.dialects.vllm.detect import canonical_names
from collector.json_poll import JsonPoller, Reading, gauges
from collector.prometheus import parse
from collector.scrape import Target
from collector.series import SeriesTracker
from collector.source import now_us
from collector.spool import Spool
from tests.collector.scraping import Rows, scraper
from tests.collector.support import Server, take, text


def test_impossible_times_and_duplicate_lines_are_left_out(server: Server, spool: Spool) -> None:
    server.answers["/metrics"] = text("a 1 99999999999999999\nb 1 -5\nc 1\nc 2\n")
    source, rows = scraper(server, spool), Rows(spool)
    source.scrape()
    found = rows.new()
    assert [row["value"] for row in found["c"]] == [1.0]
    assert set(found) == {"c", "up"}
    assert source.status().counts["bad_time"] == 2
    assert "2 left out whose time is long ago or in the future" in source.status().detail


def test_an_old_and_a_new_name_at_once_count_once(server: Server, spool: Spool) -> None:
    both = "".join(
        f"# TYPE vllm:{name} gauge\nvllm:{name} 0.5\n"
        for name in ("gpu_cache_usage_perc", "kv_cache_usage_perc")
    )
    rows = Rows(spool)
    server.answers["/metrics"] = text(both)
    scraper(server, spool).scrape()
    rows.new()
    assert {row["raw_name"]: row["metric"] for row in rows.series.values()} == {
        "up": "up",
        "vllm:gpu_cache_usage_perc": "",
        "vllm:kv_cache_usage_perc": "kv_cache.usage",
    }


@pytest.mark.parametrize(
    ("exposed", "canonical"),
    [
        ("vllm:gpu_prefix_cache_hits_total", "prefix_cache.hit_tokens"),
        ("vllm:prefix_cache_hits_total", "prefix_cache.hit_tokens"),
        ("vllm:gpu_cache_usage_perc", "kv_cache.usage"),
        ("vllm:time_per_output_token_seconds_sum", "inter_token_latency.sum"),
        ("vllm:inter_token_latency_seconds_sum", "inter_token_latency.sum"),
        ("vllm:time_in_queue_requests_count", "queue_time.count"),
        ("vllm:num_preemptions_total", "preemptions"),
    ],
)
def test_names_of_old_and_new_versions(exposed: str, canonical: str) -> None:
    kind = (
        "counter"
        if exposed.endswith("_total")
        else "histogram"
        if exposed[-4:] in ("_sum", "ount")
        else "gauge"
    )
    family = exposed.removesuffix("_sum").removesuffix("_count")
    exposition = parse(f"# TYPE {family} {kind}\n{exposed} 1\n".encode())
    batch = SeriesTracker("s", canonical_names).batch(exposition, 1_795_953_914_000_000)
    assert batch.series_rows[1]["metric"] == canonical


def test_the_number_of_series_is_bounded(spool: Spool) -> None:
    tracker = SeriesTracker("s", canonical_names, max_series=3)
    many = parse(b"".join(b'a{b="%d"} 1\n' % number for number in range(10)))
    batch = tracker.batch(many, 1_795_953_914_000_000)
    assert len(batch.series_rows) == 3
    assert batch.counts["too_many"] == 8


def test_samples_of_long_ago_are_left_out(server: Server, spool: Spool) -> None:
    """Each day is a partition, and an insert may touch no more than a thousand of them."""
    lines = [f'a{{i="{day}"}} 1 {1_100_000_000_000 + day * 86_400_000}\n' for day in range(1300)]
    recent_ms = (now_us() - 399 * 86_400_000_000) // 1000
    server.answers["/metrics"] = text("".join(lines) + f"b 1 {recent_ms}\nc 1\n")
    source, rows = scraper(server, spool), Rows(spool)
    source.scrape()
    assert set(rows.new()) == {"b", "c", "up"}
    assert source.status().counts["bad_time"] == 1300


def test_what_series_are_called_is_bounded_in_memory() -> None:
    tracker = SeriesTracker("s", canonical_names, max_bytes=20_000)
    for scrape in range(100):
        labels = "x" * 5000 + str(scrape)
        batch = tracker.batch(parse(b'a{b="%s"} 1\nc 1\n' % labels.encode()), 1_795_953_914_000_000 + scrape)
        tracker.commit(batch)
    assert batch.counts["too_many"] == 1
    assert len(batch.sample_rows) == 2, "what was known before goes on: c and up"


def test_readings_whose_server_puts_them_long_ago_are_left_out(server: Server, spool: Spool) -> None:
    iterations = [{"iter": 1}, {"iter": 2, "iterLatencyMS": 401 * 86_400_000}, {"iter": 3}]
    server.answers["/stats"] = text(json.dumps(iterations), content_type="application/json")
    poller = JsonPoller(
        "stats s", Target("s", f"{server.url}/stats"), read_iterations, canonical_names, spool
    )
    poller.poll()
    assert [row["value"] for row in take(spool, "samples")] == [2.0, 3.0]
    assert poller.counts["bad_time"] == 1


def read_iterations(answer: object, now_us: int) -> Iterator[Reading]:
    """Each iteration lies back by the latency of the one after it."""
    assert isinstance(answer, list)
    for number, iteration in enumerate(answer):
        after_ms = sum(later.get("iterLatencyMS", 1) for later in answer[number + 1 :])
        yield Reading(now_us - after_ms * 1000, gauges([("iter", (), iteration["iter"])]))
