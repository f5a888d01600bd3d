"""The whole path on real recordings: what a live vLLM sent, through real ports, into rows with the right values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from rich.console import Console

from analysis.report.compare import compare
from hitmap.demo.recorded import played
from hitmap.demo.stage import Watched
from hitmap.replay.player import Shift
from store.client import connect

SPEED = 10
QUIET = Console(quiet=True)
COUNTED = ("otel_traces", "kv_events", "samples", "request_usage", "requests")


def play(
    run: Path, home: Path, shift: Shift = "now", *, with_log: bool = True
) -> Iterator[tuple[Client, Watched]]:
    with played(run, home, speed=SPEED, shift=shift, with_log=with_log, console=QUIET) as result:
        yield connect(result.dsn), result


def one(client: Client, sql: str) -> tuple[object, ...]:
    return tuple(client.query(sql).result_rows[0])


def counts(client: Client) -> dict[str, int]:
    return {table: int(one(client, f"SELECT count() FROM {table}")[0]) for table in COUNTED}  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run1")


@pytest.fixture(scope="module")
def client(run1: Path, home: Path) -> Iterator[Client]:
    """run1, played with its log, moved to now."""
    for client, _ in play(run1, home):
        yield client


def test_every_request_has_its_usage(client: Client) -> None:
    assert one(client, "SELECT count(), countIf(cached_tokens IS NOT NULL) FROM requests") == (175, 173)
    totals = "SELECT sum(prompt_tokens), sum(cached_tokens) FROM requests WHERE cached_tokens IS NOT NULL"
    assert one(client, totals) == (94_499, 56_480)
    aborted = "SELECT sum(prompt_tokens), count() FROM requests WHERE cached_tokens IS NULL"
    assert one(client, aborted) == (1_179, 2)


def test_hit_rates_by_phase(client: Client) -> None:
    rows = client.query(
        "SELECT replaceRegexpOne(labels['phase'], '_c\\\\d.*', '') AS phase,"
        " round(100 * sum(cached_tokens) / sum(prompt_tokens), 1) FROM requests"
        " WHERE cached_tokens IS NOT NULL GROUP BY phase"
    ).result_rows
    expected = {
        "shared": 83.0,
        "tsfront": 0.0,
        "tsend": 76.1,
        "multiturn": 88.5,
        "long": 55.4,
        "toolshuffle": 48.3,
    }
    expected |= {"salt": 58.2, "mixed_shared": 87.1, "mixed_ts": 0.0, "mixed_doc": 75.3}
    assert dict(rows) == expected


def test_layers_add_up_to_the_microsecond(client: Client) -> None:
    wrong = (
        "SELECT count() FROM requests WHERE queue_us + prefill_us + decode_us + frontend_us + other_us != e2e_us"
        " OR queue_us + prefill_us + frontend_us != ttft_us OR e2e_us IS NULL"
    )
    assert one(client, wrong) == (0,)
    assert one(client, "SELECT countIf(prefix_us IS NULL AND host_us IS NULL) FROM requests") == (175,)


def test_the_hidden_wait_is_a_layer_of_its_own(client: Client) -> None:
    p50, p95 = one(
        client, "SELECT quantileExact(0.5)(frontend_us), quantileExact(0.95)(frontend_us) FROM requests"
    )
    assert (round(p50 / 1000), round(p95 / 1000)) == (13, 280)  # type: ignore[operator]


def test_kv_events(client: Client) -> None:
    rows = client.query("SELECT action, count() FROM kv_events GROUP BY action").result_rows
    assert dict(rows) == {"stored": 1215, "removed": 938, "cleared": 1}
    assert one(client, "SELECT count() FROM kv_events WHERE action = 'stored' AND depth IS NULL") == (0,)


def test_the_report_shows_the_lost_cache(client: Client) -> None:
    report = compare(client, "phase=tsend", "phase=tsfront")
    assert (report.a.n, report.b.n) == (14, 28)
    cached = next(t for t in report.tokens if t.source == "cached").share
    assert (round(cached.a.value, 3), cached.b.value) == (0.761, 0.0)
    assert "(n = 14) to " in report.answer  # in time these are too few for its interval to leave zero out
    assert next(c for c in report.quantiles if c.name == "P50").change.value > 0
    largest = max(report.layers, key=lambda line: line.part.change.value)
    assert largest.layer in ("prefill", "frontend")
    source = {(c.metric, c.labels) for c in report.counters}
    assert ("prompt_tokens_by_source", "local_compute") in source


def test_a_second_play_adds_no_request(run1: Path, tmp_path: Path) -> None:
    """Ids are as recorded, times are later."""
    seen = []
    for _ in range(2):
        for client, _ in play(run1, tmp_path):
            seen.append(
                client.query("SELECT server, request_id, span_id FROM requests ORDER BY ALL").result_rows
            )
            cached = "SELECT countIf(cached_tokens IS NOT NULL), sum(cached_tokens) FROM requests"
            assert one(client, cached) == (173, 56_480)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 175


def test_unshifted_a_second_play_adds_no_row_anywhere(run1: Path, tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        for client, _ in play(run1, tmp_path, "none"):
            seen.append(counts(client))
    assert seen[0] == seen[1]
    assert seen[0]["requests"] == 175


def test_without_the_log_nothing_tells_of_cached_tokens(run1: Path, tmp_path: Path) -> None:
    for client, _ in play(run1, tmp_path, with_log=False):
        assert one(client, "SELECT count(), countIf(cached_tokens IS NULL) FROM requests") == (175, 175)
        report = compare(client, "ttft_us<100000", "ttft_us>=100000")
        assert report.tokens == []
        assert any("no request says how many tokens were cached" in w for w in report.warnings)


def test_external_hits_show(run3: Path, tmp_path: Path) -> None:
    for client, _ in play(run3, tmp_path):
        rows = client.query(
            "SELECT labels['phase'], sum(cached_tokens) FROM requests GROUP BY 1 ORDER BY 1"
        ).result_rows
        assert rows == [("cold", 960), ("external_hit", 1408), ("local_hit", 1408)]
        external = (
            "SELECT max(value) FROM samples WHERE fingerprint IN"
            " (SELECT fingerprint FROM series WHERE metric = 'external_cache.hit_tokens')"
        )
        assert one(client, external) == (448.0,)
        report = compare(client, "phase=local_hit", "phase=external_hit")
        shown = {(c.metric, c.labels): (c.a, c.b) for c in report.counters}
        assert ("prompt_tokens_by_source", "external_kv_transfer") in shown


def test_the_demo_command_ends_with_the_report(run1: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "hitmap",
        "demo",
        "--capture",
        str(run1),
        "--speed",
        str(SPEED),
        "--json",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    cached = next(t["share"] for t in report["tokens"] if t["source"] == "cached")
    assert (round(cached["a"]["value"], 3), cached["b"]["value"]) == (0.761, 0.0)
    assert "175 requests came in" in done.stderr
    assert not list(tmp_path.iterdir()), "the demo leaves nothing behind"
