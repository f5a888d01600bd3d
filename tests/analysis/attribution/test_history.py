"""The user's own past: which requests, and which stretches of time nothing was deployed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from analysis.attribution.certainty.history import deploys, past_of
from analysis.attribution.reader import read_side
from analysis.over_time import latency, markers
from analysis.report.metrics import METRICS
from analysis.selection import parse_set
from tests.conftest import Database

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TTFT = METRICS["ttft"]


def fill(db: Database) -> None:
    """A request a minute for ten hours, of two servers in turn; three deployments, one of another server."""
    rows = [
        [START + timedelta(minutes=i), f"s{i % 2}", f"r{i}", i + 1, 1000 * (i + 1), {"arm": "x"}]
        for i in range(600)
    ]
    columns = ["time", "server", "request_id", "span_id", "ttft_us", "labels"]
    db.client.insert("requests", rows, column_names=columns)
    marked = [(2, "v1", ""), (5, "v2", "s0"), (6, "v3", "s9")]
    db.client.insert(
        "deploys",
        [[START + h * HOUR, name, server] for h, name, server in marked],
        column_names=["time", "name", "server"],
    )


def test_the_past_is_cut_where_something_was_deployed(db: Database) -> None:
    fill(db)
    now = START + 10 * HOUR
    a, b = (parse_set(text, now=now, labels=["arm"], prefix=p) for text, p in (
        ("-2h/-1h,arm=x,server=s0", "a"), ("-1h/now,arm=x,server=s0", "b")))  # fmt: skip
    left, right = (read_side(db.client, chosen, TTFT) for chosen in (a, b))
    marked = deploys(db.client, left, right)
    assert [name for _, name in marked] == ["v1", "v2"], "v3 went to another server"
    found = past_of(db.client, a, left, right, TTFT, marked)
    assert found.history is not None
    assert found.history.servers == ("s0",)
    assert found.history.n == 270  # one in two of nine hours
    hours = np.array(found.spans) / 3600 - START.timestamp() / 3600
    np.testing.assert_allclose(hours, [[0, 2], [2, 5], [5, 9]], atol=0.02)


def test_b_before_a_is_not_its_past(db: Database) -> None:
    fill(db)
    now = START + 10 * HOUR
    a, b = (parse_set(text, now=now, labels=[], prefix=p) for text, p in (("-1h/now", "a"), ("-3h/-2h", "b")))
    left, right = (read_side(db.client, chosen, TTFT) for chosen in (a, b))
    hours = np.array(past_of(db.client, a, left, right, TTFT, []).spans) / 3600 - START.timestamp() / 3600
    np.testing.assert_allclose(hours, [[0, 7], [8, 10]], atol=0.02)


def test_a_latency_over_time_is_of_what_has_the_metric(db: Database) -> None:
    fill(db)
    found = latency(db.client, TTFT, START, START + 10 * HOUR, bins=10)
    assert found.width_s == 3600
    assert [(line.begin, line.n) for line in found.bins] == [(START + h * HOUR, 60) for h in range(10)]
    assert abs(found.bins[0].p50 - 30.5) <= 1
    assert abs(found.bins[9].p99 - 599.4) <= 1
    assert latency(db.client, METRICS["e2e"], START, START + HOUR).bins == []
    assert [(m.name, m.server) for m in markers(db.client)] == [("v3", "s9"), ("v2", "s0"), ("v1", "")]
