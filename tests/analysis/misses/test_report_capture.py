"""The report on what a live vLLM sent: every token has a cause, and phases that were made for a cause have it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from analysis.misses.parts import CAUSES, HITS, computed, total
from analysis.misses.report import build
from analysis.misses.report_model import MissLine, MissReport
from cachemodel.errors import UserError
from store.embedded import Embedded
from tests.analysis.misses.captured import SERVER, database, take_in
from tests.conftest import Database

NOW = datetime(2026, 11, 29, 13, tzinfo=UTC)


@pytest.fixture(scope="module")
def client(store_server: Embedded, run1: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with database(store_server, "misses_run1") as dsn:
        yield take_in(dsn, run1, tmp_path_factory.mktemp("run1"))


@pytest.fixture(scope="module")
def report(client: Client) -> MissReport:
    return build(client, "", by="phase", now=NOW)


def phases(report: MissReport, *names: str) -> list[MissLine]:
    return [line for line in report.lines if line.key.startswith(names)]


def share(lines: list[MissLine], *parts: str) -> float:
    """Of the computed tokens."""
    return sum(total(line.parts, parts) for line in lines) / sum(computed(line.parts) for line in lines)


def test_the_sums_hold(client: Client, report: MissReport) -> None:
    assert (report.total.requests, report.total.placed) == (175, 175)
    told = "SELECT sum(prompt_tokens), sum(cached_tokens) FROM requests WHERE cached_tokens IS NOT NULL"
    ((prompt, cached),) = client.query(told).result_rows
    assert (prompt, cached) == (94_499, 56_480)
    with_usage = build(client, "cached_tokens>=0", by="phase", now=NOW)
    assert with_usage.total.requests == 173
    assert with_usage.total.prompt == sum(with_usage.total.parts.values()) == prompt
    assert total(with_usage.total.parts, HITS) == cached
    for line in (*report.lines, *report.trend, report.total):
        assert sum(line.parts.values()) == line.prompt
    for lines in (report.lines, report.trend):
        assert sum(line.prompt for line in lines) == report.total.prompt
        for part in (*HITS, *CAUSES):
            assert sum(line.parts.get(part, 0) for line in lines) == report.total.parts.get(part, 0)


def test_each_request_adds_up(client: Client) -> None:
    """One by one as all together."""
    ids = [
        str(row[0])
        for row in client.query("SELECT request_id FROM requests ORDER BY time LIMIT 175").result_rows
    ]
    for request_id in ids[::12]:
        found = explain(client, request_id)
        assert [run.start for run in found.runs] == [0, *(run.end for run in found.runs[:-1])]
        assert found.runs[-1].end == found.prompt
        if found.cached is not None:
            assert sum(run.end - run.start for run in found.runs if run.part in HITS) == found.cached


def test_phases_made_for_a_cause_have_it(report: MissReport) -> None:
    assert share(phases(report, "tsfront"), "changed") > 0.9
    salted = phases(report, "salt")
    assert share(salted, "isolated") > 0.6
    assert (
        share(salted, "isolated", "evicted/capacity", "unaligned", "unknown") == 1
    )  # had been evicted before
    assert share(salted, "unknown") < 0.1  # less than a block each that only prompts of another salt share
    assert share(phases(report, "toolshuffle"), "changed") > 0.8
    assert "evicted/clear" in report.total.parts  # the seven after the reset
    assert share([line for line in report.lines if line.key == "tsfront"], "cold") < 0.1


def test_the_answer_names_the_largest_cause(report: MissReport) -> None:
    assert "because they were sent before, but the prompt had changed in front of them" in report.answer
    assert report.answer.startswith("60% of 95,678 prompt tokens came from the cache")
    assert report.total.parts.get("unknown", 0) == 89  # see the salted phase
    (need,) = report.unknown_needs  # no message was lost: nothing is said of a replay
    assert need.startswith(
        "nothing would tell 89 tokens of 6 requests, less than a block each, that only prompts of"
    )
    assert any(step.startswith("changed: ") for step in report.next_steps)
    assert report.derived == 2  # two were aborted and have no usage
    assert report.name == "the last hour, up to 2026-11-29 13:00:00 UTC"
    assert (report.begin, report.sampled) == ("2026-11-29T12:05:14.382Z", 1)


def test_the_ceiling_has_the_servers_unit(report: MissReport) -> None:
    (line,) = report.ceilings
    assert (line.server, line.unit, line.dropped_units) == (SERVER, 32, 0)
    assert line.reachable is not None
    assert line.achieved <= line.reachable <= line.attainable <= line.prompt


def test_events_alone_tell_the_same_by_window(client: Client, report: MissReport) -> None:
    """Blocks of generated tokens are stored too, which no prompt has: they are cold."""
    assert all(sum(line.parts.values()) == line.stored for line in report.events_alone)
    stored = client.query("SELECT sum(token_count) FROM kv_events WHERE action = 'stored'").result_rows[0][0]
    assert sum(line.stored for line in report.events_alone) == stored
    ((begin, end),) = client.query(
        "SELECT toString(min(time)), toString(max(time)) FROM requests WHERE labels['phase'] = 'tsfront'"
    ).result_rows
    during = build(client, f"phase=tsfront,{begin}/{end}", now=NOW)
    parts: dict[str, int] = {}
    for line in during.events_alone:
        for part, tokens in line.parts.items():
            parts[part] = parts.get(part, 0) + tokens
    assert parts["changed"] / sum(parts.values()) > 0.7
    last = build(client, "phase=salt", now=NOW).events_alone
    assert sum(line.parts.get("isolated", 0) for line in last) >= 640
    after = [line for line in report.events_alone if line.begin >= "2026-11-29T12:05:46Z"]
    assert sum(line.parts.get("evicted/clear", 0) for line in after) >= 400


def test_an_explanation_says_who_and_when(client: Client) -> None:
    found = explain(client, "chatcmpl-r1-salt-0131", SERVER)
    assert [(run.start, run.end, run.part) for run in found.runs] == [
        (0, 320, "isolated"),
        (320, 364, "evicted/capacity"),
    ]
    assert found.runs[0].evidence.startswith(
        "held by vllm-a under another salt, adapter or image key, first 28 s"
    )
    assert found.runs[1].evidence == "evicted to make room 12:05:33, 9 s before"
    assert (found.cached, found.told_by, found.block_size, found.derived) == (0, "tokenizer", 32, False)
    assert set(found.layers) == {"frontend", "queue", "prefill", "decode", "other"}
    cleared = explain(client, "r1post-shared-0001")
    assert [(run.part, run.evidence) for run in cleared.runs] == [
        ("evicted/clear", "gone when the cache was cleared 12:05:47")
    ]


def test_a_reset_in_front_of_another_tier(store_server: Embedded, run3: Path, tmp_path: Path) -> None:
    """The tier behind it tells no events: by events alone what it gave back had been cleared."""
    with database(store_server, "misses_run3") as dsn:
        client = take_in(dsn, run3, tmp_path)
        report = build(client, "", by="phase", now=NOW)
        assert (report.total.requests, report.total.prompt) == (12, 3 * (367 + 364 + 364 + 371))
        assert sum(report.total.parts.values()) == report.total.prompt
        assert "evicted/clear" not in report.total.parts  # the other tier served all of it
        assert total(report.total.parts, HITS) == 320 * 3 + 352 * 8
        stored: dict[str, int] = {}
        for line in report.events_alone:
            for part, tokens in line.parts.items():
                stored[part] = stored.get(part, 0) + tokens
        assert stored["evicted/clear"] >= 352
        local, given_back = (
            explain(client, f"r3-{phase}").runs[0] for phase in ("local_hit-0005", "external_hit-0009")
        )
        assert ", held since 12:10:26" in local.evidence
        assert given_back.part == local.part == "cached"
        assert "held since" not in given_back.evidence  # what the device had was cleared
        client.close()


def test_with_events_alone_there_is_a_report_too(client: Client, db: Database) -> None:
    db.client.command(f"INSERT INTO kv_events SELECT * FROM {client.database}.kv_events")
    report = build(db.client, "2026-11-29T12:00/2026-11-29T13:00", now=NOW)
    assert report.total.requests == 0
    assert report.lines == report.trend == report.ceilings == []
    assert report.answer.startswith("No request is known of that time; KV events alone tell that ")
    assert sum(line.stored for line in report.events_alone) > 30_000
    assert {"changed", "isolated", "evicted/capacity", "evicted/clear", "cold"} <= {
        part for line in report.events_alone for part in line.parts
    }
    with pytest.raises(UserError, match="no request matches"):
        build(db.client, "2026-11-29T12:00/2026-11-29T13:00,model=x", now=NOW)
