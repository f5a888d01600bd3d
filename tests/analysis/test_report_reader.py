"""What a report reads from the store."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from analysis.report.compare import compare, compare_deploy
from analysis.report.metrics import METRICS
from analysis.report.reader import Requests, counters, read
from analysis.selection import Selection
from cachemodel.errors import UserError
from tests.analysis.sets import START, compared, requests
from tests.conftest import Database


def test_reading_from_the_store(db: Database) -> None:
    names = ["time", "server", "request_id", "span_id", "ttft_us", "queue_us", "prefill_us", "frontend_us",
             "prompt_tokens", "cached_tokens", "labels"]  # fmt: skip
    rows = [
        [
            START + timedelta(seconds=i),
            "s",
            f"r{i}",
            i,
            3000,
            1000,
            1500,
            500,
            100,
            None if i else 0,
            {"phase": "x"},
        ]
        for i in reversed(range(5))
    ]
    rows.append([START, "s", "untimed", 9, None, None, None, None, 100, 50, {"phase": "x"}])
    db.client.insert("requests", rows, column_names=names)
    found = read(db.client, Selection("x", "labels['phase'] = {p:String}", {"p": "x"}), METRICS["ttft"])
    assert found.n == 6
    assert np.nansum(found.totals) == 15.0
    assert int(np.isnan(found.totals).sum()) == 1
    assert np.nansum(found.layers[:, -1]) == 3.0
    assert int(np.isnan(found.tokens["cached_tokens"]).sum()) == 4
    with pytest.raises(UserError, match=r"no request matches 'y': the store has 6 requests of s, [^;]*$"):
        read(db.client, Selection("y", "0", {}), METRICS["ttft"])


def test_a_set_that_matches_nothing_tells_the_values_there_are(db: Database) -> None:
    """Of the labels and columns that were asked for: the commonest, with how many requests have each."""
    faults = ["layer=host,delay_ms=5"] * 3 + ["evict=0.5\x1b[31m"] * 2 + [f"f{n}" for n in range(9)]
    rows = [
        [START, "s", f"r{n}", n + 1, "m", {"fault": fault, "phase": "x"}] for n, fault in enumerate(faults)
    ]
    rows += [[START, "s", f"c{n}", n + 90, "m", {}] for n in range(1200)]
    db.client.insert(
        "requests", rows, column_names=["time", "server", "request_id", "span_id", "model", "labels"]
    )
    with pytest.raises(UserError) as raised:
        compare(db.client, "fault=lose*, model=other", "fault=")
    told = str(raised.value)
    assert "; fault: none (1,200), layer=host,delay_ms=5 (3), evict=0.5" in told
    assert told.endswith("f4 (1), and others; model: m (1,214)")
    assert "phase" not in told
    assert "\x1b" not in told


def test_large_sets_are_thinned_evenly(db: Database) -> None:
    rows = [[START + timedelta(seconds=i), "s", f"r{i}", i, 1000 * i] for i in range(3000)]
    db.client.insert("requests", rows, column_names=["time", "server", "request_id", "span_id", "ttft_us"])
    every = Selection("all", "1", {})
    found = read(db.client, every, METRICS["ttft"], most=1000)
    assert found.sampled == 3
    assert 850 < found.n < 1150
    assert found.totals.mean() == pytest.approx(1500, rel=0.1)
    assert (np.diff(found.totals) > 0).all()
    assert found.end - found.begin == timedelta(seconds=2999)
    whole = read(db.client, every, METRICS["ttft"])
    assert (whole.n, whole.sampled) == (3000, 1)
    assert "one in 3 requests was read" in " ".join(compared(found, whole).warnings)


def test_a_deployment_to_one_server_leaves_others_out(db: Database) -> None:
    rows = [
        [START + timedelta(seconds=i), server, f"{server}{i}", i + 20, 1000]
        for server in ("x", "y")
        for i in range(-20, 20)
    ]
    db.client.insert("requests", rows, column_names=["time", "server", "request_id", "span_id", "ttft_us"])
    db.client.insert(
        "deploys", [[START, "x", "v2"], [START, "", "v3"]], column_names=["time", "server", "name"]
    )
    one = compare_deploy(db.client, "v2", timedelta(seconds=15))
    assert (one.a.n, one.b.n, one.a.servers, one.b.servers) == (15, 15, ["x"], ["x"])
    assert one.next_steps[0] == "hitmap report --deploy v2 --window 15s --metric e2e"
    both = compare_deploy(db.client, "v3", timedelta(seconds=15))
    assert (both.a.n, both.b.n, both.a.servers) == (30, 30, ["x", "y"])
    db.client.insert("deploys", [[START, "z", "v4"]], column_names=["time", "server", "name"])
    with pytest.raises(
        UserError, match=r"'v4' is marked for server 'z', and no request is of it: .* of x, y,"
    ):
        compare_deploy(db.client, "v4", timedelta(seconds=15))
    with pytest.raises(UserError, match="no deployment 'v9'; marked are v2, v3, v4"):
        compare_deploy(db.client, "v9", timedelta(seconds=15))


def test_counters_are_summed_from_scrape_to_scrape(db: Database) -> None:
    db.client.insert(
        "series",
        [[1, "vllm-a", "prompt_tokens_by_source", "counter", "tokens", {"source": "external_kv_transfer"}]],
        column_names=["fingerprint", "server", "metric", "kind", "unit", "labels"],
    )
    growth = [(-5, 1000.0), (10, 20.0), (20, 100.0), (40, 3.0), (55, 1000.0), (100, 7.0), (500, 1000.0)]
    db.client.insert(
        "samples",
        [[START + timedelta(seconds=s), 1, 0.0, d] for s, d in growth],
        column_names=["time", "fingerprint", "value", "delta"],
    )
    a = requests(5, 1, 30, 0.5)  # runs from 0 to 30 s: scrapes at -5 and 40 s enclose it
    b = Requests(
        **{**a.__dict__, "begin": START + timedelta(seconds=60), "end": START + timedelta(seconds=90)}
    )
    (line,) = counters(db.client, a, b)
    assert (line.server, line.labels, line.a, line.b) == ("vllm-a", "external_kv_transfer", 123.0, 7.0)
