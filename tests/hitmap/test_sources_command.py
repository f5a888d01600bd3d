"""`hitmap sources` as a person calls it: a store, a command line, what comes out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from cachemodel.errors import UsageError, UserError
from hitmap.cli import cli
from tests.databases import Database, Databases
from tests.field_reports.bench import store
from tests.field_reports.form import Responses, Scrapes, Server
from tests.field_reports.texts import metrics, response

RANGE = ("--from", "2026-11-29T12:00", "--to", "2026-11-29T13:00")
FLAG = (
    '--kv-events-config \'{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557"}\''
)
RECOUNTED = {
    "vllm:prefix_cache_queries": 14_300,
    "vllm:prefix_cache_hits": 4320,
    "vllm:prompt_tokens": 10_000,
}


@pytest.fixture(scope="module")
def dsn(databases: Databases) -> Iterator[str]:
    """A server whose counters contradict each other, and one of which only responses tell, under a hostile name."""
    with databases.migrated() as database:
        signals = [("KV-cache events", False, "none listed", FLAG), ("metrics", True, "at /metrics", "")]
        told = [Server("vllm", "0.10.2", {"block_size": "16"}, signals), Scrapes(metrics(counters=RECOUNTED))]
        entries = [entry for one in told for entry in one.entries("blue")]
        entries += Responses([response("x", 1000, 500)]).entries("\x1b[31mred[bold]")
        store(database.client, entries, "sources")
        yield database.dsn


def sources(dsn: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sources", "--store", dsn, *arguments])


def test_what_a_server_tells_and_what_is_wrong(dsn: str) -> None:
    shown = sources(dsn, "blue", *RANGE)
    assert shown.exit_code == 0, shown.output
    flat = " ".join(shown.output.split())
    assert flat.startswith(
        "From 2026-11-29 12:00:00 UTC to 2026-11-29 13:00:00 UTC blue: vllm 0.10.2 at http://"
    )
    assert "metric samples 8 2026-11-29 12:05:24 UTC" in flat
    assert "request spans 0 none" in flat
    assert "counters of the device cache 30.2% 4,320 of 14,300 tokens" in flat
    assert "Does not see KV-cache events: none listed" in flat
    assert "wrong: More tokens were looked up than prompts had" in flat
    assert "[lookups-recounted]" in flat
    assert "figure: hit ratio: said 30.2%, right unknown" in flat
    assert (
        "known: a preempted request asked again, and found what it had just computed (before 0.11, vLLM pull"
        in flat
    )
    assert "do: Take the ratio of cached to prompt tokens" in flat


def test_a_flag_can_be_copied_whole(dsn: str) -> None:
    assert f"      {FLAG}\n" in sources(dsn, "blue", *RANGE).output


def test_all_servers_by_default_and_no_name_steers_the_terminal(dsn: str) -> None:
    shown = sources(dsn, *RANGE).output
    assert "blue: vllm" in shown
    assert "\N{REPLACEMENT CHARACTER}[31mred[bold]: never attached, known by what it sends" in shown
    assert "\x1b" not in shown
    assert "[not-scraped]" in shown


def test_json(dsn: str) -> None:
    data = json.loads(sources(dsn, "blue", *RANGE, "--json").output)
    (blue,) = data["servers"]
    assert data["from"] == "2026-11-29T12:00:00+00:00"
    assert (blue["server"], blue["version"], blue["last_seen"]) == (
        "blue",
        "0.10.2",
        "2026-11-29T12:05:24+00:00",
    )
    finding = next(finding for finding in blue["findings"] if finding["rule"] == "lookups-recounted")
    assert finding["said"] == pytest.approx(4320 / 14_300)
    assert finding["corrected"] is None
    assert finding["evidence"]["lookups"] == 14_300


def test_an_empty_time_range_says_so(dsn: str) -> None:
    shown = sources(dsn, "blue", "--from", "2026-11-01", "--to", "2026-11-02").output
    assert "nothing came in this time range" in " ".join(shown.split())
    assert "unknown: nothing tells" in shown
    assert "agrees with itself" not in shown


def test_check_fails_on_a_wrong_figure(dsn: str) -> None:
    assert sources(dsn, "blue", *RANGE, "--check").exit_code == 1
    assert sources(dsn, "\x1b[31mred[bold]", *RANGE, "--check").exit_code == 0


def test_mistakes_in_one_line(dsn: str) -> None:
    unknown = sources(dsn, "green", *RANGE).exception
    assert isinstance(unknown, UserError)
    assert "the store knows no server 'green'; it knows" in str(unknown)
    assert isinstance(sources(dsn, "--from", "yesterday").exception, UsageError)
    turned = sources(dsn, "--from", "now", "--to", "-1h").exception
    assert str(turned) == "--from now is not before --to -1h"


def test_an_empty_store(db: Database) -> None:
    shown = sources(db.dsn)
    assert (shown.exit_code, shown.output) == (
        0,
        "The store has nothing of any server yet: hitmap attach URL, or hitmap demo\n",
    )
    assert json.loads(sources(db.dsn, "--json").output)["servers"] == []


@pytest.fixture
def others(db: Database) -> Iterator[str]:
    """A server whose counters stand still and whose log is read, and one that sends its metrics by OTLP."""
    signals = [
        ("where two prompts part", None, "in the server's log only", "-lv 4"),
        ("cached tokens by request", None, "in the usage of responses", "--log FILE"),
    ]
    still = {"vllm:prefix_cache_queries": 0, "vllm:prefix_cache_hits": 0, "vllm:prompt_tokens": 0}
    entries = [
        *Server("vllm", "0.32.0", {}, signals).entries("still"),
        *Scrapes(metrics(counters=still)).entries("still"),
        *Responses([response("y", 1000, None)]).entries("sends"),
    ]
    store(db.client, entries, db.dsn.rpartition("/")[2])
    db.client.command(
        "INSERT INTO otel_logs (Timestamp, ServiceName, EventName) VALUES ('2026-11-29 12:01:00', 'still', 'x.y')"
    )
    db.client.command(
        "INSERT INTO otel_metrics_sum (ServiceName, MetricName, TimeUnix, Value) VALUES"
        " ('sends', 'requests', '2026-11-29 12:01:00', 1)"
    )
    return db.dsn


def test_counters_that_stand_still_are_no_silence(others: str) -> None:
    flat = " ".join(sources(others, "still", *RANGE).output.split())
    assert "counters of the device cache unknown 0 of 0 tokens: nothing was looked up in this time" in flat
    assert "nothing tells" not in flat


def test_what_comes_by_a_log_is_not_called_unseen(others: str) -> None:
    flat = " ".join(sources(others, "still", *RANGE).output.split())
    assert "where two prompts part" not in flat
    assert "cached tokens by request (cannot be asked)" in flat


def test_metrics_sent_by_otlp_are_metrics(others: str) -> None:
    flat = " ".join(sources(others, "sends", *RANGE).output.split())
    assert "OTLP metrics 1 2026-11-29 12:01:00 UTC" in flat
    assert "not-scraped" not in flat
