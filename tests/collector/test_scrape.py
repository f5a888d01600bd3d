from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from collector.dialects.vllm.detect import canonical_names
from collector.fetch import FetchError, get
from collector.json_poll import JsonPoller, Reading, gauges
from collector.prometheus import parse
from collector.resume import Stored
from collector.scrape import Scraper, Target
from collector.series import SeriesTracker, fingerprint
from collector.sink import Backpressure
from collector.source import now_us
from collector.spool import Spool
from collector.tally import Tally
from store.client import connect
from tests.collector.support import Answer, Server, cut, take, text, wait_until

LABELS = 'engine="0",model_name="tiny-llama"'


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with_file = Spool(tmp_path / "spool.sqlite", Tally())
    yield with_file
    with_file.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def scraper(server: Server, spool: Spool, **options: Any) -> Scraper:
    stored = options.pop("stored", dict)
    return Scraper(
        Target("s", f"{server.url}/metrics", timeout_s=1.0, **options), canonical_names, spool, stored
    )


class Rows:
    """The rows a scraper stored, read by the series' name."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.series: dict[int, dict[str, Any]] = {}

    def new(self) -> dict[str, list[dict[str, Any]]]:
        """Samples since the last look, by raw name."""
        self.series |= {row["fingerprint"]: row for row in take(self._spool, "series")}
        found: dict[str, list[dict[str, Any]]] = {}
        for row in take(self._spool, "samples"):
            found.setdefault(self.series[row["fingerprint"]]["raw_name"], []).append(row)
        return found

    def deltas(self, raw_name: str) -> list[float | None]:
        return [row["delta"] for row in self.new().get(raw_name, [])]


def test_the_recorded_run_with_an_external_tier(run3: Path, server: Server, spool: Spool) -> None:
    source, rows, growth = scraper(server, spool), Rows(spool), []
    for file in sorted((run3 / "metrics").iterdir()):
        server.answers["/metrics"] = text(
            file.read_bytes(), content_type="text/plain; version=1.0.0; charset=utf-8"
        )
        source.scrape()
        found = rows.new()
        growth.append({name: samples[-1]["delta"] for name, samples in found.items()})
    assert [g["vllm:external_prefix_cache_hits_total"] for g in growth] == [None, 0.0, 0.0, 448.0]
    assert sum(g["vllm:external_prefix_cache_queries_total"] or 0 for g in growth) == 1070
    assert sum(g["vllm:prompt_tokens_total"] or 0 for g in growth) == 4398
    assert [g["up"] for g in growth] == [None] * 4
    named = {row["raw_name"]: row for row in rows.series.values()}
    assert named["vllm:external_prefix_cache_hits_total"] == {
        "fingerprint": fingerprint(
            "s", "vllm:external_prefix_cache_hits_total", (("engine", "0"), ("model_name", "tiny-llama"))
        ),
        "server": "s",
        "metric": "external_cache.hit_tokens",
        "raw_name": "vllm:external_prefix_cache_hits_total",
        "kind": "counter",
        "unit": "tokens",
        "labels": {"engine": "0", "model_name": "tiny-llama"},
    }
    assert named["vllm:time_to_first_token_seconds_sum"]["metric"] == "ttft.sum"
    assert named["vllm:iteration_tokens_total_count"]["metric"] == "step.tokens.count"
    assert named["http_requests_total"]["metric"] == ""
    assert not any(name.endswith("_created") for name in named)
    assert source.status().state == "running"


def test_rows_reach_the_real_store(run3: Path, server: Server, spool: Spool, db: Any) -> None:
    source = scraper(server, spool)
    for file in sorted((run3 / "metrics").iterdir()):
        server.answers["/metrics"] = text(file.read_bytes())
        source.scrape()
    for kind in ("series", "samples"):
        batch = spool.seal(kind, 1_000_000, 1 << 30)
        assert batch is not None
        db.client.raw_insert(kind, insert_block=spool.payload(batch), fmt="JSONEachRow")
    answer = db.client.query(
        "SELECT metric, sum(delta), argMax(value, time) FROM samples JOIN series USING (fingerprint)"
        " WHERE metric IN ('external_cache.hit_tokens', 'prefix_cache.hit_tokens') GROUP BY metric ORDER BY metric"
    )
    assert answer.result_rows == [
        ("external_cache.hit_tokens", 448.0, 448.0),
        ("prefix_cache.hit_tokens", 3328.0, 3328.0),
    ]


def test_growth_goes_on_where_the_store_stands(run3: Path, server: Server, spool: Spool, db: Any) -> None:
    """Every text is scraped by a collector that has just been started; each knows what the one before stored."""

    def collect(file: Path, started: float = 0.0) -> None:
        body = file.read_bytes()
        if started:
            body = re.sub(rb"(?m)^(process_start_time_seconds) .*", rb"\1 %f" % started, body)
        server.answers["/metrics"] = text(body)
        source = scraper(server, spool, stored=partial(Stored(lambda: connect(db.dsn)).samples, "s"))
        source.start()
        wait_until(lambda: source.status().state == "running")
        del server.answers["/metrics"]
        source.scrape()
        source.stop()
        for kind in ("series", "samples"):
            if batch := spool.seal(kind, 1_000_000, 1 << 30):
                db.client.raw_insert(kind, insert_block=spool.payload(batch), fmt="JSONEachRow")
                spool.done(batch)

    deltas = (
        "SELECT delta FROM samples WHERE fingerprint = (SELECT fingerprint FROM series FINAL"
        " WHERE metric = 'prompt_tokens') ORDER BY time"
    )
    files = sorted((run3 / "metrics").iterdir())
    for file in files:
        collect(file)
    assert [row[0] for row in db.client.query(deltas).result_rows] == [None, 1466.0, 1466.0, 1466.0]
    collect(files[-1], started=1.9e9)
    assert db.client.query(deltas).result_rows[-1][0] == 4398.0, "the server was started anew in between"


def counter(
    value: float, *, created: float | None = None, started: float | None = None, name: str = "a"
) -> bytes:
    lines = [f"# TYPE {name}_total counter", f"{name}_total {value}"]
    if created is not None:
        lines += [f"# TYPE {name}_created gauge", f"{name}_created {created}"]
    if started is not None:
        lines.append(f"process_start_time_seconds {started}")
    return "\n".join([*lines, ""]).encode()


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        pytest.param([counter(5), counter(7), counter(7)], [None, 2.0, 0.0], id="growth"),
        pytest.param([counter(5), counter(3)], [None, 3.0], id="it fell: everything since is growth"),
        pytest.param(
            [counter(5, created=1e9), counter(8, created=1e9 + 60)],
            [None, 8.0],
            id="made anew, already above",
        ),
        pytest.param(
            [counter(5, started=1e9), counter(8, started=1e9 + 60)], [None, 8.0], id="process started anew"
        ),
        pytest.param(
            [counter(5, started=1e9), counter(8, started=1e9 + 1)],
            [None, 3.0],
            id="a start time that jitters",
        ),
        pytest.param(
            [counter(5, created=1e9), counter(8)], [None, 3.0], id="no longer says when it was made"
        ),
    ],
)
def test_growth_of_a_counter(
    bodies: list[bytes], expected: list[float | None], server: Server, spool: Spool
) -> None:
    source, rows, found = scraper(server, spool), Rows(spool), []
    for body in bodies:
        server.answers["/metrics"] = text(body)
        source.scrape()
        found += rows.deltas("a_total")
    assert found == expected


def test_a_restart_counts_once_for_every_part_of_a_histogram(server: Server, spool: Spool) -> None:
    def body(count: int, created: float) -> bytes:
        return (
            f'# TYPE h histogram\nh_bucket{{e="0",le="1.0"}} {count}\nh_bucket{{e="0",le="+Inf"}} {count}\n'
            f'h_sum{{e="0"}} {count / 2}\nh_count{{e="0"}} {count}\nh_created{{e="0"}} {created}\n'
        ).encode()

    source, rows, found = scraper(server, spool), Rows(spool), []
    for count, created in ((4, 1e9), (6, 1e9 + 60), (7, 1e9 + 60)):
        server.answers["/metrics"] = text(body(count, created))
        source.scrape()
        found.append({name: [row["delta"] for row in samples] for name, samples in rows.new().items()})
    assert found[1] == {"h_bucket": [6.0, 6.0], "h_sum": [3.0], "h_count": [6.0], "up": [None]}
    assert found[2] == {"h_bucket": [1.0, 1.0], "h_sum": [0.5], "h_count": [1.0], "up": [None]}


def test_gauges_have_no_delta_and_what_is_not_finite_is_counted(server: Server, spool: Spool) -> None:
    source, rows = scraper(server, spool), Rows(spool)
    for value in ("1", "0.5", "NaN"):
        server.answers["/metrics"] = text(f"# TYPE g gauge\ng {value}\nh +Inf\n")
        source.scrape()
    assert [(row["value"], row["delta"]) for row in rows.new()["g"]] == [(1.0, None), (0.5, None)]
    assert source.status().counts["not_finite"] == 4


def test_a_sample_whose_time_stands_still_is_stored_once(server: Server, spool: Spool) -> None:
    server.answers["/metrics"] = text("# TYPE a_total counter\na_total 5 1795953914757\n")
    source, rows = scraper(server, spool), Rows(spool)
    source.scrape()
    assert {name: [row["time"] for row in found] for name, found in rows.new().items()} == {
        "up": [1795953914.757],
        "a_total": [1795953914.757],
    }
    source.scrape()
    assert rows.new() == {}
    assert source.status().counts["stale"] == 2
    server.answers["/metrics"] = text("# TYPE a_total counter\na_total 6 1795953915757\n")
    source.scrape()
    assert rows.deltas("a_total") == [1.0]


def test_the_same_recording_twice_adds_nothing(run3: Path, server: Server, spool: Spool) -> None:
    def play() -> dict[str, list[dict[str, Any]]]:
        source, rows = scraper(server, spool), Rows(spool)
        for number, file in enumerate(sorted((run3 / "metrics").iterdir())):
            stamped = b"\n".join(
                line if not line or line.startswith(b"#") else b"%b %d" % (line, 1795954210000 + number)
                for line in file.read_bytes().split(b"\n")
            )
            server.answers["/metrics"] = text(stamped)
            source.scrape()
        return rows.new()

    assert len(play()["vllm:prompt_tokens_total"]) == 4
    assert play() == {}


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


FAILURES = [
    pytest.param(text("broken", status=500), "HTTP 500", id="HTTP 500"),
    pytest.param(text("", status=302), "redirects are not followed", id="a redirect"),
    pytest.param(text("", status=401), "it wants a key", id="a key is wanted"),
    pytest.param(text("<html>", content_type="text/html"), "text/html, not metrics", id="a web page"),
    pytest.param(text(b"x" * (2 << 20)), "larger than 1 MiB", id="too large"),
    pytest.param(lambda handler: handler.wfile.write(b"SSH-2.0\r\n"), "not an HTTP answer", id="not HTTP"),
]


@pytest.mark.parametrize(("answer", "reason"), FAILURES)
def test_failures_are_told_once_stored_and_survived(
    answer: Answer, reason: str, server: Server, spool: Spool
) -> None:
    source, rows = scraper(server, spool, max_bytes=1 << 20), Rows(spool)
    server.answers["/metrics"] = answer
    source.scrape()
    source.scrape()
    status = source.status()
    assert status.state == "failing"
    assert reason in status.detail
    assert status.counts["failed"] == 2
    assert {name: [row["value"] for row in found] for name, found in rows.new().items()} == {"up": [0.0]}
    server.answers["/metrics"] = text("a 1\n")
    source.scrape()
    assert [row["value"] for row in rows.new()["up"]] == [1.0]
    assert source.status().state == "running"


def test_nobody_listens(server: Server, spool: Spool) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target = Target("s", f"http://127.0.0.1:{unused.getsockname()[1]}/metrics", timeout_s=1.0)
        source = Scraper(target, canonical_names, spool)
        source.scrape()
    assert source.status().detail == "Connection refused"


def test_a_server_that_says_nothing_does_not_hold_the_scraper(spool: Spool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = Target("s", f"http://127.0.0.1:{mute.getsockname()[1]}/metrics", timeout_s=0.2)
        source = Scraper(target, canonical_names, spool)
        source.scrape()
    assert source.status().detail == "no answer within 0.2 s"


def test_a_server_that_dies_in_the_middle_leaves_whole_lines_only(
    run3: Path, server: Server, spool: Spool
) -> None:
    body = (run3 / "metrics" / "r3_04_after_external.txt").read_bytes()
    at = body.index(b"prompt_tokens_total{") + len(
        b'prompt_tokens_total{engine="0",model_name="tiny-llama"} 43'
    )
    source, rows = scraper(server, spool), Rows(spool)
    server.answers["/metrics"] = cut(body, at)
    source.scrape()
    status, found = source.status(), rows.new()
    assert status.state == "failing"
    assert "broke off" in status.detail
    assert found["up"][0]["value"] == 0.0
    assert found["vllm:prefix_cache_queries_total"][0]["value"] == 4398.0
    assert "vllm:prompt_tokens_total" not in found, "43 of 4398"
    server.answers["/metrics"] = text(body)
    source.scrape()
    found = rows.new()
    assert found["vllm:prompt_tokens_total"][0]["value"] == 4398.0
    assert found["vllm:prefix_cache_queries_total"][0]["delta"] == 0.0


def test_a_full_spool_loses_no_growth(server: Server, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "small.sqlite", Tally())
    rows = Rows(spool)
    server.answers["/metrics"] = text(counter(5))
    source = scraper(server, spool)
    source.scrape()
    rows.new()
    spool.limit_bytes = 0
    server.answers["/metrics"] = text(counter(7))
    source.scrape()
    assert source.status().counts["refused"] == 1
    assert source.status().detail == str(Backpressure(2))
    spool.limit_bytes = 1 << 30
    server.answers["/metrics"] = text(counter(10))
    source.scrape()
    assert rows.deltas("a_total") == [5.0]
    spool.close()


def test_the_number_of_series_is_bounded(spool: Spool) -> None:
    tracker = SeriesTracker("s", canonical_names, max_series=3)
    many = parse(b"".join(b'a{b="%d"} 1\n' % number for number in range(10)))
    batch = tracker.batch(many, 1_795_953_914_000_000)
    assert len(batch.series_rows) == 3
    assert batch.counts["too_many"] == 8


def test_it_scrapes_at_its_interval_until_stopped(server: Server, spool: Spool) -> None:
    server.answers["/metrics"] = text("a 1\n")
    source = scraper(server, spool, interval_s=0.05, token="secret")
    source.start()
    wait_until(lambda: source.status().counts.get("scrapes", 0) >= 3)
    source.stop()
    assert server.requests[0][1]["Authorization"] == "Bearer secret"
    seen = len(server.requests)
    assert not wait_for_more(server, seen)


def wait_for_more(server: Server, seen: int) -> bool:
    try:
        wait_until(lambda: len(server.requests) > seen, timeout_s=0.3)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("part", ["header", "body"])
def test_a_server_that_drips_bytes_is_left_in_time(part: str) -> None:
    stop = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if part == "body":
            handler.send_header("Content-Type", "text/plain")
            handler.end_headers()
        else:
            handler.flush_headers()
            handler.wfile.write(b"X-Long: ")
        with contextlib.suppress(OSError):
            while not stop.wait(0.02):
                handler.wfile.write(b"a")

    with Server({"/metrics": drip}) as server:
        with pytest.raises(FetchError, match=r"no answer within 0\.2 s"):
            get(f"{server.url}/metrics", timeout_s=0.2)
        stop.set()


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
