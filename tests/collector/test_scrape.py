"""A server's /metrics is fetched and stored, and what goes wrong on the way is told."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from cachemodel.errors import UserError
from collector.dialects.vllm.detect import canonical_names
from collector.fetch import FetchError, get
from collector.scrape import Scraper, Target
from collector.series import fingerprint
from collector.source import ThreadSource
from collector.spool import Spool
from tests.collector.scraping import Rows, scraper
from tests.collector.support import Answer, Server, cut, text, wait_until


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


def test_a_scrape_takes_no_thread_of_its_own(
    server: Server, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be none left: the machine's limit is shared with whatever else runs on it."""
    start, here = threading.Thread.start, threading.get_ident()

    def none_left(thread: threading.Thread) -> None:
        if threading.get_ident() == here:
            raise RuntimeError("can't start new thread")
        start(thread)  # the server's

    server.answers["/metrics"] = text("a 1\n")
    monkeypatch.setattr(threading.Thread, "start", none_left)
    source = scraper(server, spool)
    source.scrape()
    assert source.status().state == "running"
    with pytest.raises(UserError, match="metrics s: can't start new thread: raise the limit"):
        source.start()
    source.stop()


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")]
)
def test_what_the_machine_refuses_is_one_line_and_tried_again(
    error: Exception, spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("collector.source._RETRY_S", 0.01)
    refused = [error, error]

    class Refused(ThreadSource):
        def work(self) -> None:
            if refused:
                raise refused.pop()
            self.tell("running", "after all")
            self._stopping.wait()

    source, seen = Refused("metrics s", spool), []
    monkeypatch.setattr(source, "tell", lambda *told: seen.append(told) or ThreadSource.tell(source, *told))
    source.start()
    wait_until(lambda: source.status().detail == "after all")
    source.stop()
    assert seen[:2] == [("failing", f"{type(error).__name__}: {error}")] * 2
    assert source.status().counts["errors"] == 2
    assert [record.exc_info for record in caplog.records] == [None]
    assert [record.getMessage() for record in caplog.records] == [
        f"metrics s: {type(error).__name__}: {error}"
    ]


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
