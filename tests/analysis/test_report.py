"""The report: sums are exact, unknown stays unknown, the words say what the numbers say."""

from __future__ import annotations

import io
import json
import math
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from analysis.report.build import build
from analysis.report.json import to_json
from analysis.report.model import Report
from analysis.report.reader import METRICS, Requests, counters, read
from analysis.report.text import to_markdown, to_terminal
from analysis.selection import Selection
from cachemodel.errors import UserError
from tests.conftest import Database

START = datetime(2026, 11, 29, 12)
SNAPSHOTS = Path(__file__).parent / "snapshots"


def requests(n: int, seed: int, prefill: float, cached: float, metric: str = "ttft") -> Requests:
    """n requests of a server that tells of queue, prefill, decode and frontend, in ms."""
    rng = np.random.default_rng(seed)
    known = {
        "queue": rng.exponential(5, n),
        "prefill": prefill + rng.exponential(10, n),
        "frontend": rng.exponential(8, n),
        "decode": rng.exponential(100, n),
    }
    layers = np.stack([known.get(layer.name, np.full(n, math.nan)) for layer in METRICS[metric][1]])
    prompt = rng.integers(300, 400, n).astype(float)
    tokens = {"prompt_tokens": prompt, "cached_tokens": np.floor(prompt * cached)}
    tokens |= {f"{tier}_tokens": np.full(n, math.nan) for tier in ("device", "host", "remote")}
    return Requests(
        np.nansum(layers, axis=0), layers, tokens, START, START + timedelta(seconds=30), ["vllm-a"]
    )


@pytest.fixture(scope="module")
def report() -> Report:
    a, b = requests(14, 1, 30, 0.75), requests(28, 2, 110, 0.0)
    return build(("phase=last", "phase=first"), a, b, "ttft", 0.5, [])


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("metric", ["ttft", "e2e"])
def test_parts_sum_to_the_quantile_and_to_its_change(metric: str, q: float) -> None:
    a, b = requests(60, 1, 30, 0.7, metric), requests(200, 2, 90, 0.1, metric)
    found = build(("a", "b"), a, b, metric, q, [])
    chosen = next(c for c in found.quantiles if c.name == f"P{100 * q:g}")
    for pick in ("a", "b", "change"):
        parts = math.fsum(getattr(line.part, pick).value for line in found.layers)
        assert parts == pytest.approx(getattr(chosen, pick).value, abs=1e-6)
        means = math.fsum(getattr(line.mean, pick).value for line in found.layers)
        assert means == pytest.approx(getattr(found.quantiles[0], pick).value, abs=1e-6)


def test_the_planted_change_is_what_shows(report: Report) -> None:
    assert "rose" in report.answer
    assert "Where it shows: prefill +" in report.answer
    assert "Cached prompt tokens went from 74" in report.answer
    assert "to 0.0%" in report.answer
    prefill = next(line for line in report.layers if line.layer == "prefill")
    assert prefill.mean.change.value == pytest.approx(80, abs=12)
    assert prefill.mean.change.low < 80 < prefill.mean.change.high  # type: ignore[operator]


def test_the_same_requests_twice_name_nobody() -> None:
    found = build(("a", "b"), requests(80, 1, 30, 0.5), requests(80, 3, 30, 0.5), "ttft", 0.5, [])
    assert found.answer.startswith("No clear change")
    assert "Where it shows" not in found.answer


def test_layers_nobody_tells_of_are_left_out_not_zero(report: Report) -> None:
    assert [line.layer for line in report.layers] == ["frontend", "queue", "prefill"]


def test_every_interval_holds_its_estimate(report: Report) -> None:
    comparisons = [*report.quantiles, *(x.mean for x in report.layers), *(x.part for x in report.layers)]
    for estimate in (e for c in comparisons for e in (c.a, c.b, c.change)):
        assert estimate.low is None or estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]


def test_no_interval_where_hardly_a_request_lies_beyond(report: Report) -> None:
    told = {c.name: c.change.low is not None for c in report.quantiles}
    assert told == {"mean": True, "P50": True, "P90": False, "P95": False, "P99": False}
    assert not any(c.clear for c in report.quantiles if not told[c.name])
    far = build(("a", "b"), requests(14, 1, 30, 0.75), requests(28, 2, 110, 0.0), "ttft", 0.99, [])
    assert "too few requests for an interval" in far.answer
    assert "Where it shows" not in far.answer
    assert all(line.part.change.low is None for line in far.layers)


def test_the_same_set_twice_is_said() -> None:
    a = requests(30, 1, 30, 0.5)
    found = build(("x", "x"), a, a, "ttft", 0.5, [])
    assert "both sets are the same requests" in found.warnings
    assert len(set(found.warnings)) == len(found.warnings)


def test_unknown_cached_tokens_are_not_zero() -> None:
    a, b = requests(20, 1, 30, 0.5), requests(20, 2, 30, 0.5)
    b.tokens["cached_tokens"][:5] = math.nan
    found = build(("a", "b"), a, b, "ttft", 0.5, [])
    cached = found.tokens[0]
    assert cached.share.b.n == 15
    assert cached.share.b.value == pytest.approx(0.5, abs=0.01)
    assert "cached tokens are unknown for 5 of 20" in " ".join(found.warnings)
    b.tokens["cached_tokens"][:] = math.nan
    found = build(("a", "b"), a, b, "ttft", 0.5, [])
    assert found.tokens == []
    assert "no request says how many tokens were cached" in " ".join(found.warnings)


def test_cached_and_computed_make_the_prompt(report: Report) -> None:
    cached, computed = report.tokens
    assert (cached.source, computed.source) == ("cached", "computed")
    assert cached.share.a.value + computed.share.a.value == pytest.approx(1)
    assert computed.share.change.value == pytest.approx(-cached.share.change.value)
    assert computed.share.provenance == "derived"


def test_small_samples_are_called_small(report: Report) -> None:
    assert any("14 requests leave about 7 beyond P50" in w for w in report.warnings)


def test_too_few_requests_are_an_error() -> None:
    with pytest.raises(UserError, match="at least 3"):
        build(("a", "b"), requests(2, 1, 30, 0.5), requests(9, 1, 30, 0.5), "ttft", 0.5, [])


def test_json_has_no_nan_and_stable_keys(report: Report) -> None:
    data = json.loads(to_json(report), parse_constant=lambda name: pytest.fail(name))
    assert list(data)[:5] == ["metric", "quantile", "a", "b", "answer"]
    assert data["layers"][0]["part"]["change"].keys() == {"value", "low", "high", "n"}


@pytest.mark.parametrize("name", ["report.txt", "report.md"])
def test_what_people_see(name: str, report: Report) -> None:
    """Snapshots: look at the file in the diff when this fails, and commit it when it reads better."""
    if name.endswith("md"):
        shown = to_markdown(report)
    else:
        out = io.StringIO()
        to_terminal(report, Console(file=out, width=110, highlight=False))
        shown = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    file = SNAPSHOTS / name
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown)
        pytest.fail(f"{file} was written; look at it and commit it")
    assert shown == file.read_text()


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
    found = read(db.client, Selection("x", "labels['phase'] = {p:String}", {"p": "x"}), "ttft")
    assert found.n == 6
    assert np.nansum(found.totals) == 15.0
    assert int(np.isnan(found.totals).sum()) == 1
    assert np.nansum(found.layers[:, -1]) == 3.0
    assert int(np.isnan(found.tokens["cached_tokens"]).sum()) == 4
    with pytest.raises(UserError, match="no request matches 'y': the store has 6 requests of s"):
        read(db.client, Selection("y", "0", {}), "ttft")


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
